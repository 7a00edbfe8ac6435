"""What a run of the reading benchmark is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.reading.figures import LINK_NAMES, LOOPBACK
from tests.benchmarks.reading.peers import KNOWN
from tierfs.base.words.types import MIB

ONE, SEVERAL, FIRST_LOCAL, SECOND_LOCAL, FIRST_BYTE, RANDOM, MANY, CACHE, FETCHED = QUESTIONS = range(1, 10)

LOCAL = frozenset({FIRST_LOCAL, SECOND_LOCAL, CACHE})
"""Questions about a segment in the local tier."""

NO_S3 = frozenset({FIRST_LOCAL, SECOND_LOCAL})
ON_EVERY_LINK = frozenset({ONE, SEVERAL, FIRST_BYTE, RANDOM, FETCHED})
"""Questions to which a link makes a difference; peers answer them too."""

MANY_READERS = 64


@dataclass(frozen=True)
class Plan:
    """What a run is asked to do."""

    questions: frozenset[int]
    repetitions: int
    size_bytes: int
    docs: Path
    """The directory the results go to, and where earlier ones are."""
    keep: Path | None = None
    """A new directory to work in, which stays with the logs of all mounts and of the server."""
    peers: tuple[str, ...] | None = None
    """Only these programs."""
    links: tuple[str, ...] = LINK_NAMES
    """Their names."""

    def on(self, link: str) -> frozenset[int]:
        """The chosen questions that are asked on a link."""
        return self.questions if link == LOOPBACK else self.questions & ON_EVERY_LINK

    def asks(self, number: int) -> bool:
        """Whether a question is asked on any link."""
        return any(number in self.on(link) for link in self.links)

    @property
    def needs_s3(self) -> bool:
        """Whether any chosen question reads from S3."""
        return any(self.on(link) - NO_S3 for link in self.links)

    @property
    def compares(self) -> bool:
        """Whether other mounts are measured."""
        return any(self.on(link) & ON_EVERY_LINK for link in self.links)


def parse_questions(text: str) -> frozenset[int]:
    """Numbers of questions from `1,5,6`. Raises ValueError naming one that does not exist."""
    known = {str(number): number for number in QUESTIONS}
    for part in text.split(","):
        if part not in known:
            raise ValueError(f"no question {part!r}; there are {QUESTIONS.start} to {QUESTIONS.stop - 1}")
    return frozenset(known[part] for part in text.split(","))


def parse_links(text: str) -> tuple[str, ...]:
    """Names of links from `far,https`, in the order of the report. Raises ValueError naming one that does not exist."""
    chosen = text.split(",")
    for word in chosen:
        if word not in LINK_NAMES:
            raise ValueError(f"no link {word!r}; there are {', '.join(LINK_NAMES)}")
    return tuple(name for name in LINK_NAMES if name in chosen)


def parse_peers(text: str) -> tuple[str, ...]:
    """Programs from `s3fs,rclone`. Raises ValueError naming one that is not known."""
    known = [peer.program for peer in KNOWN]
    found = tuple(word for word in text.split(",") if word)
    for word in found:
        if word not in known:
            raise ValueError(f"no program {word!r}; known are {', '.join(known)}")
    return found


def check_size(size_bytes: int) -> int:
    """Return the same size. Raises ValueError where the workloads need more, or whole MiB."""
    least = MANY_READERS * MIB
    if size_bytes < least or size_bytes % MIB:
        raise ValueError(f"the size must be whole MiB and at least {least // MIB} MiB")
    return size_bytes
