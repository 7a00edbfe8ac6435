"""How a read waits for a tier that does not answer now: it tries again until its deadline, and ends then."""

from __future__ import annotations

import logging
import random
from collections import deque

import trio

from tierfs.errors import TierfsError, Unavailable
from tierfs.types import ByteRange

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
"""Bounds of the pauses (a guess): the storage has paused between its own tries, and a reader waits for each more."""

_REPEATED_WITHIN_S = 1.0
"""How soon the kernel asks again for the first page of a read-ahead that failed (measured: at once)."""

_REMEMBERED = 64
"""Reads of one handle that may fail before the first one is repeated: those of one read-ahead window (a guess)."""


_TOLD_AFTER = 3
"""Failed rounds of tries, each with pauses of its own, that an operator should know of: some seconds."""


class Patience:
    """The pauses of one read, with full jitter."""

    def __init__(self, subject: str) -> None:
        """`subject`: what is read, for the log."""
        self._subject = subject
        self._failed = 0
        self._longest_s = _FIRST_PAUSE_S
        self._last: TierfsError | None = None

    async def pause(self, error: TierfsError) -> None:
        """Wait before the next try; `error` ended the last one."""
        self._last = error
        self._failed += 1
        level = logging.WARNING if self._failed == _TOLD_AFTER else logging.DEBUG
        log.log(level, "%s waits for a tier that does not answer: %s", self._subject, error)
        await trio.sleep(random.uniform(0, self._longest_s))
        self._longest_s = min(_LONGEST_PAUSE_S, 2 * self._longest_s)

    def ended(self, message: str) -> Unavailable:
        """The error of the read once its deadline has passed, with why the last try failed."""
        if self._last is None:
            return Unavailable(message)
        return Unavailable(f"{message}: {self._last}", remedy=self._last.remedy)


class Unanswered:
    """Ranges whose reads just ended at their deadline.

    When a read-ahead fails, the kernel asks for its first page once more before the process learns of it. That read
    ends at once, so that a process waits for one deadline and not for two.
    """

    def __init__(self) -> None:
        self._reads: deque[tuple[ByteRange, float, Unavailable]] = deque(maxlen=_REMEMBERED)

    def add(self, wanted: ByteRange, error: Unavailable) -> None:
        """Remember a read that ended now."""
        self._reads.append((wanted, trio.current_time(), error))

    def check(self, wanted: ByteRange) -> None:
        """Raise Unavailable for a part of a read that ended an instant ago."""
        while self._reads and trio.current_time() - self._reads[0][1] > _REPEATED_WITHIN_S:
            self._reads.popleft()
        for ended, _, error in self._reads:
            if ended.contains(wanted):
                raise Unavailable(str(error), remedy=error.remedy) from error
