"""The patience of a task with a server that answered before and does not answer now (docs/design/0012-outages.md).

One that never answered is more likely named wrongly than away: for that a task fails at once.
"""

from __future__ import annotations

import logging
import random
import threading

from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words.errors import TierfsError

log = logging.getLogger(__name__)

# As `read.deadline_s` by default: a rolling restart is waited for.
DEADLINE_S = 90.0

# The storage pauses between its own tries, too (a guess).
_LONGEST_PAUSE_S = 1.0


class TaskPatience:
    """The pauses of one task's threads. Thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._ended = threading.Event()

    def answered(self) -> None:
        """Note that bytes arrived: the next failure begins another wait."""
        self._since_s = None

    def pause(self, error: TierfsError) -> bool:
        """Wait before the next try; return False, at once, after the deadline and when the task ends."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            since_s = self._since_s  # another thread may have an answer meanwhile
            if since_s is None:
                since_s = self._since_s = now_s
                log.warning("waiting up to %g s for a tier that does not respond: %s", DEADLINE_S, error)
        return now_s - since_s < DEADLINE_S and not self._ended.wait(random.uniform(0, _LONGEST_PAUSE_S))

    def end(self) -> None:
        """End all pauses, for good."""
        self._ended.set()
