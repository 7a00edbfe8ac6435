"""One problem of a store: its kind, its gravity, a sentence and the remedy. Every report of trouble is made of these.

docs/monitoring.md has a row for each kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum

from tierfs.base.bytes.frozen import dataclass


class Gravity(IntEnum):
    """How bad a problem is; its number is the exit code of `status --check`."""

    NOTE = 0
    """A choice with a risk: nothing fails, and it lasts until the choice is changed."""
    WARNING = 1
    """Work waits or fails; bytes are safe as long as this disk is."""
    CRITICAL = 2
    """Bytes are lost or cannot be read now, or nothing can be written."""

    @property
    def label(self) -> str:
        """The gravity as a word."""
        return self.name.lower()


class ProblemKind(StrEnum):
    """The kinds of problems; within a gravity, the first is the worst."""

    LOST = "lost"
    FENCED = "fenced"
    OLD_COPY = "old-copy"
    WRONG_COLD_TIER = "wrong-cold-tier"
    DAMAGED = "damaged"
    SUSPECT = "suspect"
    NOT_REACHABLE = "not-reachable"
    DISK_FULL = "disk-full"
    STALE_MOUNT = "stale-mount"
    SILENT_MOUNT = "silent-mount"
    READS_WAIT = "reads-wait"
    NO_HOLDER = "no-holder"
    UNREADABLE_RECORDS = "unreadable-records"
    STUCK = "stuck"
    COLD_TIER_AWAY = "cold-tier-away"
    QUOTA = "quota"
    OFFLOAD_LATE = "offload-late"
    UNPUBLISHED = "unpublished"
    OWNER_SILENT = "owner-silent"
    STANDBY_BLOCKED = "standby-blocked"
    OWNER_UNKNOWN = "owner-unknown"
    NOT_ALLOWED = "not-allowed"
    CLOCK = "clock"
    OVERDUE = "overdue"
    GARBAGE_KEPT = "garbage-kept"
    GAP = "gap"
    READ_BUDGET = "read-budget"
    COVERED_MOUNT = "covered-mount"
    WEAK_FENCE = "weak-fence"
    NO_DELETIONS = "no-deletions"
    NO_COLD_TIER = "no-cold-tier"
    SAME_DISK = "same-disk"

    @property
    def gravity(self) -> Gravity:
        """Return how bad it is."""
        if self in CRITICAL:
            return Gravity.CRITICAL
        return Gravity.NOTE if self in NOTES else Gravity.WARNING


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a store now."""

    kind: ProblemKind
    text: str
    """A sentence without its kind: the subject, and what is wrong with it."""
    remedy: str

    @property
    def gravity(self) -> Gravity:
        """Return how bad it is."""
        return self.kind.gravity


def worst_first(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems by gravity, then in the order of their kinds."""
    order = {kind: number for number, kind in enumerate(ProblemKind)}
    return sorted(problems, key=lambda problem: (-problem.gravity, order[problem.kind]))


def worst(problems: Iterable[Problem]) -> Gravity:
    """Return the gravity of the worst of them; NOTE, which is ok, if there are none."""
    return max((problem.gravity for problem in problems), default=Gravity.NOTE)


CRITICAL = frozenset(
    {
        ProblemKind.LOST,
        ProblemKind.FENCED,
        ProblemKind.OLD_COPY,
        ProblemKind.WRONG_COLD_TIER,
        ProblemKind.DAMAGED,
        ProblemKind.SUSPECT,
        ProblemKind.NOT_REACHABLE,
        ProblemKind.DISK_FULL,
        ProblemKind.STALE_MOUNT,
        ProblemKind.SILENT_MOUNT,
        ProblemKind.READS_WAIT,
    }
)

NOTES = frozenset({ProblemKind.WEAK_FENCE, ProblemKind.NO_DELETIONS, ProblemKind.NO_COLD_TIER, ProblemKind.SAME_DISK})
