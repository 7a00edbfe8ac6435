"""The time for which an owner has shown no sign of life, as one standby counts it."""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """The owner as a look into the bucket showed it: any difference is a sign of life."""

    slot: int
    """The newest one of the journal."""
    epoch: int
    beat: str = ""
    """Of the owner's newest sign of life; empty for that of an earlier owner, and for none."""


class Silence:
    """Sums the time between looks that showed the same.

    Time counts only between two looks that succeeded: while the bucket cannot be reached, nobody knows. A pause longer
    than `most_s` counts as that: the standby's machine, or its process, was stopped, and did not look.
    """

    def __init__(self, most_s: float, seen: Evidence | None = None, silent_s: float = 0.0) -> None:
        """Continue the count of another process, which `seen` ended; the time between both counts as none.

        If a look still shows `seen`, there was no sign of life in between either: each has a random number.
        """
        self._most_s = most_s
        self.seen = seen
        self._looked_s: float | None = None
        self.silent_s = silent_s

    def look(self, evidence: Evidence, began_s: float, ended_s: float) -> bool:
        """Note what a look between these times showed; return whether it was a sign of life."""
        is_new = evidence != self.seen
        if is_new:
            self.silent_s = 0.0
        elif self._looked_s is not None:
            self.silent_s += min(max(0.0, began_s - self._looked_s), self._most_s)
        self.seen, self._looked_s = evidence, ended_s
        return is_new

    def miss(self) -> None:
        """Note a look that failed."""
        self._looked_s = None

    def restart(self) -> None:
        """Count from the next look on."""
        self.seen, self._looked_s, self.silent_s = None, None, 0.0
