"""What a reading benchmark finds: figures by question, part, subject and metric, to JSON and back."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

DIRECTORY = "benchmarks"
"""Where figures and plots are, beside the document that shows them."""

RESULTS_NAME = "reading.json"

LOOPBACK, HTTPS, FAR, FARTHER = "loopback", "https", "far", "farther"
LINK_NAMES = (LOOPBACK, HTTPS, FAR, FARTHER)
"""The links on which questions are asked, in the order of the report."""

RATE = "MB/s"
CPU = "CPU s/GiB"
CPU_PER_READ = "CPU ms/read"
RSS = "RSS MiB"
SPREAD = "slowest/fastest"
P50 = "p50 ms"
IOPS = "IOPS"
FETCHED = "bytes fetched/read"
KIB_FETCHED = "KiB fetched per read"

MORE_IS_BETTER = frozenset({RATE, IOPS})
DIGITS = {RATE: 0, CPU: 2, CPU_PER_READ: 2, RSS: 0, SPREAD: 2, P50: 2, IOPS: 0, FETCHED: 3, KIB_FETCHED: 1}

Sample = dict[str, float]
"""What one measured run found, by metric."""


@dataclass(frozen=True)
class Part:
    """One table: its first metric is what it is about, and ratios are to the subject `limit`."""

    title: str
    limit: str
    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Subjects of which a run failed; the answer's remarks say how."""

    def add(self, subject: str, sample: Sample) -> None:
        """Take in one run of a subject."""
        for metric, value in sample.items():
            self.found.setdefault(subject, {}).setdefault(metric, []).append(value)

    def fail(self, subject: str) -> None:
        """Take in a run of a subject that found nothing."""
        if subject not in self.failed:
            self.failed.append(subject)

    @property
    def metrics(self) -> list[str]:
        """In the order they are shown."""
        return list(dict.fromkeys(metric for found in self.found.values() for metric in found))

    def median(self, subject: str, metric: str) -> float | None:
        """None where the subject has no such figure."""
        values = self.found.get(subject, {}).get(metric)
        return statistics.median(values) if values else None

    def ratio(self, subject: str) -> float | None:
        """Median of the first metric, against the limit's."""
        ours, limit = (self.median(name, self.metrics[0]) for name in (subject, self.limit))
        return ours / limit if ours is not None and limit else None


@dataclass(frozen=True)
class Answer:
    """All figures of one question, and under which conditions they were found."""

    number: int
    title: str
    method: str
    size_bytes: int
    repetitions: int
    parts: tuple[Part, ...]
    remarks: list[str] = field(default_factory=list)
    """What failed or was skipped, and why."""
    link: str = LOOPBACK
    programs: dict[str, str] = field(default_factory=dict)
    """Versions of what was measured and of what it was measured with."""
    measured: str = ""
    """The day, as 2026-11-23."""


@dataclass
class Results:
    """All questions answered so far, in one run or several."""

    machine: dict[str, str]
    notes: list[str] = field(default_factory=list)
    """Programs that the last run skipped, and why."""
    answers: list[Answer] = field(default_factory=list)

    def put(self, answer: Answer) -> None:
        """Add an answer; it replaces an earlier one to the same question on the same link."""
        others = [one for one in self.answers if (one.link, one.number) != (answer.link, answer.number)]
        self.answers = sorted([*others, answer], key=lambda one: (LINK_NAMES.index(one.link), one.number))

    def save(self, path: Path) -> None:
        """Write all of it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def load(path: Path) -> Results:
    """What `save` wrote."""
    stored = json.loads(path.read_text())
    answers = [
        Answer(**{**answer, "parts": tuple(Part(**part) for part in answer["parts"])}) for answer in stored["answers"]
    ]
    return Results(**{**stored, "answers": answers})
