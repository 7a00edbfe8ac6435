"""How a read waits for a tier that does not answer now: it tries again until its deadline, and ends then."""

from __future__ import annotations

import logging
import random
from collections import deque
from dataclasses import dataclass
from itertools import takewhile

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


_WAITS_AFTER_S = 2.0
"""A read that takes longer waits for a tier that does not answer: the slowest answers of S3 take a second (guess)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Reads that wait for a tier which does not answer."""

    reads: int = 0
    longest_s: float = 0
    why: str = ""
    """What the newest try of the one that waits longest met."""


class Waits:
    """The reads of one process that are not answered yet."""

    def __init__(self) -> None:
        self._since: dict[Patience, float] = {}
        """In the order of their begin."""

    @property
    def now(self) -> Waiting:
        """Those that take too long."""
        latest = trio.current_time() - _WAITS_AFTER_S
        waiting = list(takewhile(lambda item: item[1] <= latest, self._since.items()))
        if not waiting:
            return Waiting()
        longest, since = waiting[0]
        why = "no answer yet" if longest.last is None else str(longest.last)
        return Waiting(len(waiting), trio.current_time() - since, why)

    def add(self, patience: Patience) -> None:
        """A read began."""
        self._since[patience] = trio.current_time()

    def remove(self, patience: Patience) -> None:
        """It ended."""
        del self._since[patience]


class Patience:
    """The pauses of one read, with full jitter. A context, for as long as the read lasts."""

    def __init__(self, subject: str, waits: Waits) -> None:
        """`subject`: what is read, for the log."""
        self._subject = subject
        self._waits = waits
        self._failed = 0
        self._longest_s = _FIRST_PAUSE_S
        self.last: TierfsError | None = None
        """What ended the last try."""

    def __enter__(self) -> Patience:
        self._waits.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._waits.remove(self)

    async def pause(self, error: TierfsError) -> None:
        """Wait before the next try; `error` ended the last one."""
        self.last = error
        self._failed += 1
        level = logging.WARNING if self._failed == _TOLD_AFTER else logging.DEBUG
        log.log(level, "%s waits for a tier that does not answer: %s", self._subject, error)
        await trio.sleep(random.uniform(0, self._longest_s))
        self._longest_s = min(_LONGEST_PAUSE_S, 2 * self._longest_s)

    def ended(self, message: str) -> Unavailable:
        """The error of the read once its deadline has passed, with why the last try failed."""
        if self.last is None:
            return Unavailable(message)
        return Unavailable(f"{message}: {self.last}", remedy=self.last.remedy)


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
