"""The places where a process can die: each commit, storage call, sync and removal, in the order they happen."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

_READING = "tierfs.reading."
"""In the names of threads for readers, which write etags and marks at any time, and may outlive a writer."""


class Death(BaseException):
    """The process ends here. No code of the product may catch it."""


@dataclass
class Points:
    """Counts the points of a step, and ends the process at one of them.

    A dead process stays dead: whatever it still tries, on its way up or in other threads, raises Death too.
    """

    armed: bool = False
    """Whether a verb runs; checks pass no points."""
    passed: int = 0
    fatal: int = 0
    """The number of the point that ends the process; 0: none does."""
    dead: bool = False
    seen: dict[str, int] = field(default_factory=dict)
    """Passed points of the whole life by their kind."""

    def arm(self, fatal: int = 0) -> None:
        """Begin to count a step's points."""
        self.armed, self.passed, self.fatal, self.dead = True, 0, fatal, False

    def disarm(self) -> None:
        """End the step; nothing is counted, nobody dies."""
        self.armed = self.dead = False

    def reach(self, kind: str) -> None:
        """Pass one point. Raises Death."""
        if not self.armed or _READING in threading.current_thread().name:
            return
        if not self.dead:
            self.passed += 1
            self.seen[kind] = self.seen.get(kind, 0) + 1
            self.dead = self.passed == self.fatal
        if self.dead:
            raise Death(f"at {kind}")
