"""The gate before the fetches of a process: bytes per second of all readers and of each user, and hourly budgets.

A fetch within all limits passes at once. Others wait here, in memory that they have taken already, so that there are no
more of them than memory allows; one task lets them pass when there are bytes for them. Fetches that a reader waits for
pass before read-ahead and before warm-ups, and readers share what there is (fair_queue.py). A fetch counts with all of
its bytes when it passes; what it did not transfer after all is given back. On the trio loop only. Without limits there
is no gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.system.throttle import SAVED_S, Throttle, TokenBucket
from tierfs.base.words import units
from tierfs.base.words.errors import BudgetSpent, TierfsError, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, Payer
from tierfs.reading.budgets import Budgets
from tierfs.reading.fetch.fair_queue import FairQueue
from tierfs.reading.fetch.queue import WANTED_NOW
from tierfs.reading.fetch.span import Span, Transfer
from tierfs.reading.spending import HOUR_S

# Users whose limit is remembered; a bucket that is full is a new one.
_USERS = 1024

# Fetches that were withdrawn are dropped from the queue when they are most of it.
_DROPPED = 64

# Time in which one range of read-ahead passes, at most: a reader that comes next waits for it (a guess).
_RANGE_S = 0.1

# The same at the rate of an hourly budget: the last range of a budget exceeds it, and its reader waits so much longer.
# Below the deadline of reads (a guess).
_HOURLY_RANGE_S = 30

# Smaller ranges cost more requests than they save time (a guess).
_LEAST_RANGE_BYTES = 2 * CRC_BLOCK_BYTES

# Read-ahead of one reader, as a time at the limit: more is fetched long before it is read (a guess).
_WINDOW_S = 2.0


class FetchGate:
    """Lets fetches pass within the limits."""

    def __init__(
        self,
        throttle: Throttle,
        budgets: Budgets,
        start: Callable[[Span], None],
        fail: Callable[[Span, TierfsError], None],
        metrics: MetricSink,
    ) -> None:
        """`start` begins a fetch, `fail` ends one that nobody may pay for."""
        self._throttle = throttle
        self.budgets = budgets
        self._start = start
        self._fail = fail
        self._metrics = metrics
        self._user_bytes_per_s = 0
        self._users: dict[int, TokenBucket] = {}
        self._queue = FairQueue[Span]()
        self._pending: dict[int, tuple[Span, set[Payer]]] = {}
        self._changed = trio.Event()

    def limit(self, settings: ReadSettings) -> None:
        """Apply the settings, to the fetches that wait too."""
        self._throttle.limit(settings.bandwidth)
        self.budgets.limit(settings)
        if settings.user_bandwidth != self._user_bytes_per_s:
            self._user_bytes_per_s = settings.user_bandwidth
            self._users.clear()
        self._changed.set()

    @property
    def waiting(self) -> int:
        """Fetches that wait here."""
        return len(self._pending)

    @property
    def queued(self) -> int:
        """Entries of the queue, those of withdrawn fetches included."""
        return len(self._queue)

    def require(self, payer: Payer, priority: int) -> None:
        """Raise BudgetSpent for a reader that may fetch nothing more now, where that is refused."""
        try:
            self.budgets.require(payer.uid)
        except BudgetSpent:
            if priority == WANTED_NOW:
                self._metrics.count(MetricName.BUDGET_REFUSALS)
            raise

    def keeps(self, span: Span, payer: Payer, priority: int) -> bool:
        """Return whether a new fetch has to wait here; else it passes now, and is counted."""
        urgent = priority == WANTED_NOW
        comes_first = not self._pending or (urgent and not self._queue.urgent)
        if comes_first and not self._throttle.ready_in_s() and not self._user_waits_s(payer.uid):
            self._grant(span, payer)
            return False
        self.budgets.note_wait(payer.uid)
        self._pending[id(span)] = (span, {payer})
        self._put(span, payer, priority, urgent=urgent)
        return True

    def hurries(self, span: Span, payer: Payer) -> bool:
        """Return whether a fetch waits here; it does so for this reader too then, who may pay for it."""
        pending = self._pending.get(id(span))
        if pending is None:
            return False
        if not span.urgent or payer not in pending[1]:
            pending[1].add(payer)
            self._put(span, payer, WANTED_NOW, urgent=True)
        return True

    def hedged(self, span: Span) -> None:
        """Note the second fetch of a span: the same reader pays for the bytes that it transfers."""
        payer = span.transfers[0].payer
        if payer is not None:
            span.transfers[1].payer = payer
            self.budgets.charge(payer.uid, 0, 1)

    def settle(self, transfer: Transfer) -> None:
        """Correct the count of a transfer that ended."""
        self._pending.pop(id(transfer.span), None)
        payer, transfer.payer = transfer.payer, None
        if payer is not None:
            fetched = transfer.span.record.in_storage(max(0, transfer.filled - transfer.cached_bytes))
            self._charge(payer, fetched - transfer.charged_bytes, 0)

    def holds(self, uid: int) -> bool:
        """Return whether fetches of a user wait here."""
        return any(payer.uid == uid for payer in self._queue.payers)

    def late(self, uid: int) -> TierfsError | None:
        """Return the error of a user's read that waited here for as long as reads may; None if it waited elsewhere."""
        if not self.holds(uid):
            return None
        if self.budgets.wait_s(uid):
            return self.budgets.spent_error(uid)
        limits = {"read.bandwidth": self._throttle.bytes_per_s, "read.user_bandwidth": self._user_bytes_per_s}
        shown = " and ".join(f"{name} = {units.format_size(per_s)}" for name, per_s in limits.items() if per_s)
        return Unavailable(
            f"{units.count(self.waiting, 'fetch')} wait for bandwidth: {shown}",
            remedy="raise the limit: tierfs config, then reload the mount (SIGHUP)",
        )

    async def run(self) -> None:
        """Let fetches pass when their time has come, until cancelled."""
        while True:
            wait_s = self._release()
            with trio.move_on_after(wait_s):
                await self._changed.wait()
            if self._changed.is_set():
                self._changed = trio.Event()

    def _release(self) -> float:
        """Let pass what may; return the time until the next may."""
        rest_s = math.inf
        while self._queue:
            wait_s = self._throttle.ready_in_s()
            taken = None if wait_s else self._queue.take(self._may_pass)
            if taken is None:
                rest_s = max(wait_s, min(self._user_waits_s(payer.uid) for payer in self._queue.payers))
                break
            self._pass(*taken)
        self._throttle.let_readers_first(waits=self._queue.urgent and self._throttle.ready_in_s() > 0)
        return rest_s

    def _pass(self, span: Span, payer: Payer) -> None:
        if self._pending.pop(id(span), None) is None or not span.queued:
            return  # withdrawn, or paid for by another reader
        if self.budgets.refuses and self.budgets.wait_s(payer.uid):
            self._fail(span, self.budgets.spent_error(payer.uid))
            return
        self._grant(span, payer)
        self._queue.granted(payer, span.end - span.start)
        self._start(span)

    def _may_pass(self, payer: Payer) -> bool:
        return not self._user_waits_s(payer.uid)

    def _user_waits_s(self, uid: int) -> float:
        bucket = self._users.get(uid)
        wait_s = 0.0 if bucket is None else bucket.wait_s(trio.current_time())
        return wait_s if self.budgets.refuses else max(wait_s, self.budgets.wait_s(uid))

    def _grant(self, span: Span, payer: Payer) -> None:
        transfer = span.transfers[0]
        transfer.payer, transfer.charged_bytes = payer, span.record.in_storage(span.end - span.start)
        self._charge(payer, transfer.charged_bytes, 1)

    def _charge(self, payer: Payer, length_bytes: int, requests: int) -> None:
        self._throttle.charge(length_bytes)
        self.budgets.charge(payer.uid, length_bytes, requests)
        if self._user_bytes_per_s:
            self._bucket(payer.uid).take(length_bytes, trio.current_time())

    def _bucket(self, uid: int) -> TokenBucket:
        bucket = self._users.get(uid)
        if bucket is None:
            if len(self._users) >= _USERS:
                now_s = trio.current_time()
                self._users = {user: each for user, each in self._users.items() if each.wait_s(now_s)}
            per_s = self._user_bytes_per_s
            bucket = self._users[uid] = TokenBucket(per_s, per_s * SAVED_S, trio.current_time())
        return bucket

    def _put(self, span: Span, payer: Payer, priority: int, *, urgent: bool) -> None:
        if len(self._queue) > 2 * len(self._pending) + _DROPPED:
            self._queue.keep(lambda each: id(each) in self._pending)
        self._queue.put(span, payer, priority, urgent=urgent)
        self._changed.set()


def ahead_limits(settings: ReadSettings) -> tuple[int, int | None] | None:
    """Return the longest range of read-ahead and the longest window of one reader, None for any; None without limits.

    A range is granted as one: a reader that comes next waits for it, and a user who has spent a budget waits longer.
    """
    per_s = min((limit for limit in (settings.bandwidth, settings.user_bandwidth) if limit), default=None)
    ranges = [] if per_s is None else [per_s * _RANGE_S]
    if settings.hourly_bytes:
        ranges.append(settings.hourly_bytes / HOUR_S * _HOURLY_RANGE_S)
    if not ranges:
        return None
    return max(_LEAST_RANGE_BYTES, int(min(ranges))), None if per_s is None else max(MIB, int(per_s * _WINDOW_S))
