"""What must hold of compressed objects, and the sheet that says whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.compression.material import AUTO, BEFORE, HAS_COMPRESSION, OFF, ZSTD
from tests.benchmarks.compression.offloading import OFFLOAD
from tests.benchmarks.compression.reading import RANDOM_READS, READING, fetched_title
from tests.benchmarks.compression.site import STORED, TIERFS
from tests.benchmarks.compression.small_files import EVICTED_GREP, INGEST, SMALL
from tests.benchmarks.compression.small_files import OFFLOAD as OFFLOAD_RATE
from tests.benchmarks.compression.spark import BY_NAME, BY_PATH, SPARK
from tests.benchmarks.compression.texts import KINDS, LOGS, RANDOM
from tests.benchmarks.reading.figures import (
    CPU,
    FAR,
    FARTHER,
    HTTPS,
    KIB_FETCHED,
    LOOPBACK,
    P50,
    RATE,
    Answer,
    Part,
)
from tests.benchmarks.reading.links import BY_NAME as LINKS
from tests.benchmarks.reading.peers import JUICE, JUICE_ZSTD
from tests.benchmarks.reading.s3_questions import RAW

BEST_PEER = "the best peer"
_PEERS = (JUICE.label, JUICE_ZSTD.label)
_LITTLE = 100
"""Figures below it are shown with their digits."""
_MANY_DIGITS, _FEW_DIGITS = 3, 0
_RATIO_DIGITS = 3


@dataclass(frozen=True)
class Bound:
    """A bound on one figure of a part, itself or as a ratio to that of another subject."""

    part: str
    metric: str
    bound: float
    against: str = ""
    policy: str = ZSTD
    at_least: bool = True

    def find(self, part: Part) -> float | None:
        """The figure; None where it was not measured."""
        ours = part.median(TIERFS[self.policy], self.metric)
        if not self.against or ours is None:
            return ours
        others = _PEERS if self.against == BEST_PEER else (self.against,)
        found = [value for label in others if (value := part.median(label, self.metric)) is not None]
        return ours / max(found) if found else None

    def told(self, found: float | None) -> str:
        """A line about it."""
        sign = "≥" if self.at_least else "≤"
        of = f" of {self.against}" if self.against else ""
        what = f"{self.part or 'all'}, {TIERFS[self.policy]}, {self.metric}{of}: wanted {sign} {self.bound:.4g}"
        if found is None:
            return f"{what}, not measured"
        held = found >= self.bound if self.at_least else found <= self.bound
        return f"{what}, found {found:.3f}" if held else f"**{what}, found {found:.3f}: MISSED**"


def _most(part: str, metric: str, bound: float, against: str = "", policy: str = ZSTD) -> Bound:
    return Bound(part, metric, bound, against, policy, at_least=False)


_OFF = TIERFS[OFF]
_STORED = (_most(LOGS, STORED, 1 / 6), _most(RANDOM, STORED, 1.001), _most(RANDOM, STORED, 1.001, policy=AUTO))
_AUTO_READ = Bound(RANDOM, RATE, 1.0, _OFF, AUTO)
_OFF_READ = tuple(Bound(kind, RATE, 1.0, TIERFS[BEFORE], OFF) for kind in KINDS)
_OFF_OFFLOADED = tuple(Bound(kind, RATE, 0.97, TIERFS[BEFORE], OFF) for kind in KINDS)
_AUTO_OFFLOADED = Bound(RANDOM, RATE, 0.97, _OFF, AUTO)
_FETCHED = _most(fetched_title(LOGS), KIB_FETCHED, 1 / 4, _OFF)
_FAR_BLOCKS = (_most(LOGS, P50, 1.0, _OFF), _FETCHED)
_NEAR_BLOCKS = (_most(LOGS, P50, 1.05, _OFF), _FETCHED)

BOUNDS: Mapping[tuple[int, str], Sequence[Bound]] = {
    (READING, LOOPBACK): (
        *_STORED,
        Bound(LOGS, RATE, 1.2, RAW),
        Bound(LOGS, RATE, 1.5, BEST_PEER),
        _AUTO_READ,
        *_OFF_READ,
    ),
    (READING, HTTPS): (_most(LOGS, CPU, 1.2), _AUTO_READ, *_OFF_READ),
    (READING, FAR): (Bound(LOGS, RATE, 1.3, RAW), Bound(LOGS, RATE, 1.8, BEST_PEER), _AUTO_READ, *_OFF_READ),
    (READING, FARTHER): (Bound(LOGS, RATE, 1.8, RAW), _AUTO_READ, *_OFF_READ),
    (RANDOM_READS, LOOPBACK): _NEAR_BLOCKS,
    (RANDOM_READS, HTTPS): _NEAR_BLOCKS,
    (RANDOM_READS, FAR): _FAR_BLOCKS,
    (RANDOM_READS, FARTHER): _FAR_BLOCKS,
    (OFFLOAD, LOOPBACK): (*_STORED, Bound(LOGS, RATE, 0.9, _OFF), _AUTO_OFFLOADED, *_OFF_OFFLOADED),
    (OFFLOAD, FARTHER): (*_STORED, Bound(LOGS, RATE, 3.0, _OFF), _AUTO_OFFLOADED, *_OFF_OFFLOADED),
    (SMALL, LOOPBACK): (
        _most("", STORED, 1 / 3),
        *(Bound("", metric, 1.0, _OFF) for metric in (INGEST, OFFLOAD_RATE, EVICTED_GREP)),
    ),
    (SPARK, LOOPBACK): tuple(Bound(way, RATE, 1.0, _OFF) for way in (BY_NAME, BY_PATH)),
    (SPARK, FARTHER): tuple(Bound(way, RATE, 1.5, _OFF) for way in (BY_NAME, BY_PATH)),
}
"""By question and link."""


def sheet(answer: Answer) -> str:
    """Markdown: a table of medians and ratios for each part, and below them what was wanted."""
    link = LINKS[answer.link].title
    if answer.number == SPARK:
        link = link.removesuffix(", HTTPS")
    lines = [f"### {answer.title}; {link}; {answer.size_bytes >> 20} MiB, medians of {answer.repetitions}", ""]
    lines += [answer.method, ""]
    if not HAS_COMPRESSION:
        lines += ["This tierfs has no policy `compression`: all stores are `off`.", ""]
    for part in answer.parts:
        lines += [*_table(part), ""]
    parts = {part.title: part for part in answer.parts}
    for bound in BOUNDS.get((answer.number, answer.link), ()):
        found = bound.find(parts[bound.part]) if bound.part in parts else None
        if found is not None or bound.against != TIERFS[BEFORE]:
            lines.append(f"* {bound.told(found)}")
    lines += [f"* {remark.splitlines()[0]} {remark.splitlines()[-1]}" for remark in answer.remarks]
    return "\n".join(lines) + "\n"


def _table(part: Part) -> Iterator[str]:
    """A row for each subject; a cell has a figure and its ratio to the limit's."""
    yield f"| {part.title or 'all'} (ratio to {part.limit}) | " + " | ".join(part.metrics) + " |"
    yield "|---|" + "---|" * len(part.metrics)
    for subject in part.found:
        cells = (_cell(part, subject, metric) for metric in part.metrics)
        yield f"| {subject} | " + " | ".join(cells) + " |"


def _cell(part: Part, subject: str, metric: str) -> str:
    found, limit = part.median(subject, metric), part.median(part.limit, metric)
    if found is None:
        return ""
    digits = _MANY_DIGITS if found < _LITTLE else _FEW_DIGITS
    return f"{found:.{digits}f}" + (f" ({found / limit:.{_RATIO_DIGITS}f})" if limit else "")
