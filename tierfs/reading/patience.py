"""Waiting of reads for a tier that does not answer: a read tries again until its deadline, and fails then."""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from operator import itemgetter

import trio

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import TierfsError, Unavailable
from tierfs.base.words.types import ByteRange
from tierfs.reading.view import SegmentView

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
# Bounds of the pauses (a guess): the storage already pauses between tries, and a reader waits for each.
_LONGEST_PAUSE_S = 1.0

# Time in which the kernel repeats the first page of a failed read-ahead (measured: at once).
_REPEATED_WITHIN_S = 1.0

# Reads of one handle that may fail before the first one is repeated: those of one read-ahead window (a guess).
_REMEMBERED = 64

# A read that takes longer waits for a tier that does not answer: the slowest answers of S3 take a second (guess).
_WAITS_AFTER_S = 2.0

# Stall time before a warning; also the polling interval (guess).
_SILENCE_S = 5.0

# Steps of that time: one that takes longer shows for how long this process did not run.
_STEPS = 10


@dataclass(frozen=True, slots=True)
class Waiting:
    """Reads that wait for a tier which does not answer, or were refused by it."""

    reads: int = 0
    longest_s: float = 0
    why: str = ""
    """Last error of the longest waiting read."""
    refused: str = ""
    """Error of the newest read that a tier refused, until one of a cold tier succeeds."""


class Waits:
    """The unanswered reads of one process. Time in which the process did not run is no silence of a tier."""

    def __init__(self) -> None:
        self._since: dict[Patience, float] = {}
        """When they began, by `_ran_s`."""
        self._lost_s = 0.0
        """Seconds in which the process was stopped, suspended with its machine, or short of a processor."""
        self.refused = ""
        """See Waiting.refused."""
        self.is_limited: Callable[[int], bool] | None = None
        """Whether the limits keep a user's reads waiting: no tier is silent then. None: there are no limits."""

    @property
    def now(self) -> Waiting:
        """The reads that take too long."""
        now_s = self._ran_s
        waiting = [(since, read) for read, since in self._since.items() if since <= now_s - _WAITS_AFTER_S]
        if self.is_limited is not None:
            waiting = [(since, read) for since, read in waiting if not self.is_limited(read.uid)]
        if not waiting:
            return Waiting(refused=self.refused)
        since, longest = min(waiting, key=itemgetter(0))
        why = f"no response{longest.place} yet" if longest.last is None else str(longest.last)
        return Waiting(len(waiting), now_s - since, why, self.refused)

    async def keep_telling(self) -> None:
        """Warn when reads begin to wait, once for all that wait at a time: a mount may have thousands."""
        is_told = False
        while True:
            for _ in range(_STEPS):
                due_s = trio.current_time() + _SILENCE_S / _STEPS
                await trio.sleep_until(due_s)
                self._lost_s += trio.current_time() - due_s
            now = self.now
            if now.reads and not is_told:
                first = next(iter(self._since))
                others = f" (one of {now.reads:,} reads)" if now.reads > 1 else ""
                log.warning("read of %s is blocked%s: %s", first.view.name, others, now.why)
            is_told = bool(now.reads)

    def add(self, patience: Patience) -> None:
        """Add a read that began."""
        self._since[patience] = self._ran_s

    def remove(self, patience: Patience) -> None:
        """Remove a read that ended."""
        del self._since[patience]

    @property
    def _ran_s(self) -> float:
        return trio.current_time() - self._lost_s


class Patience:
    """The pauses of one read, with full jitter. A context, for as long as the read lasts."""

    def __init__(self, view: SegmentView, wanted: ByteRange, waits: Waits, uid: int) -> None:
        """`wanted`: the bytes that are read; `uid`: the user who reads them."""
        self.uid = uid
        self.view = view
        self._wanted = wanted
        self._waits = waits
        self._longest_s = _FIRST_PAUSE_S
        self.last: TierfsError | None = None
        """The error that ended the last try."""

    def __enter__(self) -> Patience:
        self._waits.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._waits.remove(self)

    async def pause(self, error: TierfsError) -> None:
        """Wait before the next try; `error` ended the last one."""
        self.last = error
        log.debug("read of %s is blocked: %s", self.view.name, error)
        await trio.sleep(random.uniform(0, self._longest_s))
        self._longest_s = min(_LONGEST_PAUSE_S, 2 * self._longest_s)

    @property
    def place(self) -> str:
        """` from` and the place that is asked, if it is known."""
        place = self.view.cold_place(self._wanted.start)
        return f" from {place}" if place else ""

    def ended(self, deadline_s: float) -> Unavailable:
        """Return the error of a read past its deadline, with the error of the last try."""
        if self.last is None:
            return Unavailable(
                f"{self.view.name}: no answer within {deadline_s:g} s{self.place}",
                remedy="check it with: tierfs doctor",
            )
        return Unavailable(f"{self.view.name}: no answer within {deadline_s:g} s: {self.last}", remedy=self.last.remedy)


class Unanswered:
    """Ranges whose reads just failed at their deadline.

    When a read-ahead fails, the kernel requests its first page once more before it notifies the process. That read
    fails at once, so that a process waits for one deadline and not for two.
    """

    def __init__(self) -> None:
        self._reads: deque[tuple[ByteRange, float, TierfsError]] = deque(maxlen=_REMEMBERED)

    def add(self, wanted: ByteRange, error: TierfsError) -> None:
        """Remember a read that failed now."""
        self._reads.append((wanted, trio.current_time(), error))

    def check(self, wanted: ByteRange) -> None:
        """Raise the error again for a part of a read that has just failed."""
        while self._reads and trio.current_time() - self._reads[0][1] > _REPEATED_WITHIN_S:
            self._reads.popleft()
        for ended, _, error in self._reads:
            if ended.contains(wanted):
                raise type(error)(str(error), remedy=error.remedy) from error
