"""Fetching spans in threads: those that readers wait for at once, read-ahead in a few streams.

Read-ahead takes `streams` threads, nearest to its reader first: more gain nothing and delay each other.
Spans that a reader waits for have threads of their own, so that random reads run beside each other and
beside any read-ahead.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

import trio

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss, TierfsError, Unavailable
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.hedge import HedgePolicy
from tierfs.reading.spans import Span, SpanCache
from tierfs.reading.transfer import BlockDiffers, BrokenOff, Transfer
from tierfs.types import ByteRange, LocationId

log = logging.getLogger(__name__)

WANTED_NOW = -1
"""Priority of a span a reader waits for; read-ahead uses its distance in bytes."""

_ATTEMPTS = 2
"""A block that fails its check is fetched once more: a flipped bit on the way is not a bad object."""

StorageOf = Callable[[LocationId], ChunkStorage]


class Fetcher:
    """Threads that fill spans from the cold tier. Methods are for the trio loop."""

    def __init__(
        self, spans: SpanCache, storage_of: StorageOf, streams: int, urgent_streams: int, metrics: MetricSink
    ) -> None:
        self._spans = spans
        self._storage_of = storage_of
        self._metrics = metrics
        self._hedges = HedgePolicy()
        self._streams = streams
        self._most_threads = streams + urgent_streams
        self._changed = threading.Condition()
        self._urgent: list[tuple[int, Transfer]] = []
        self._ahead: list[tuple[int, int, Transfer]] = []
        self._ahead_running = 0
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._numbers = itertools.count()
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def busy(self) -> bool:
        """Whether a fetch runs or waits for its turn."""
        return self._spans.transfers > 0

    @property
    def running(self) -> int:
        """Threads that fetch now."""
        return self._threads - self._idle

    def start(self) -> None:
        """Deliver to the trio loop that runs now."""
        self._token = trio.lowlevel.current_trio_token()

    def close(self) -> None:
        """Start nothing more; threads end with what they are fetching."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def submit(self, span: Span, priority: int) -> None:
        """Queue a new span."""
        self._queue(span.transfers[0], priority)

    def hurry(self, span: Span) -> None:
        """Somebody waits for a span that is still queued."""
        if span.queued:
            self._queue(span.transfers[0], WANTED_NOW)

    async def wait_for(self, span: Span, wanted: ByteRange) -> None:
        """Return when the bytes have arrived, with a second GET when the first is slow; raises the fetch's error."""
        self.hurry(span)
        while not span.has(wanted) and span.leader is None and len(span.transfers) == 1:
            with trio.move_on_after(self._hedges.delay_s):
                await span.wait_for(wanted)
                return
            self._hedge(span)
        await span.wait_for(wanted)

    def _hedge(self, span: Span) -> None:
        """Ask again for a span whose first byte is late."""
        late = not span.queued and span.leader is None and len(span.transfers) == 1
        if late and self._hedges.allow() and self._spans.give_transfer(span):
            self._metrics.count(MetricName.READ_HEDGES)
            self._queue(span.transfers[1], WANTED_NOW)

    def _queue(self, transfer: Transfer, priority: int) -> None:
        number = next(self._numbers)
        with self._changed:
            if priority == WANTED_NOW:
                heapq.heappush(self._urgent, (number, transfer))
            else:
                heapq.heappush(self._ahead, (priority, number, transfer))
                if self._ahead_running >= self._streams:
                    return  # a thread that ends takes it
            if self._idle:
                self._idle -= 1  # here, not when it wakes: the next one queued needs another thread
                self._changed.notify()
            elif self._threads < self._most_threads:
                self._threads += 1
                threading.Thread(target=self._work, name="tierfs-fetch", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._changed:
                taken = self._take()
                while taken is None:
                    if self._closed:
                        return
                    self._idle += 1
                    self._changed.wait()
                    taken = self._take()
            ahead, transfer = taken
            error = self._fetch(transfer)
            if ahead:
                with self._changed:
                    self._ahead_running -= 1
            assert self._token is not None
            with suppress(trio.RunFinishedError):  # nobody is left to read it
                self._token.run_sync_soon(self._ended, transfer, error)

    def _take(self) -> tuple[bool, Transfer] | None:
        """What to fetch next, and whether it counts as read-ahead; the lock is held."""
        while not self._closed and self._urgent:
            transfer = heapq.heappop(self._urgent)[1]
            if transfer.begin():
                return False, transfer
        while not self._closed and self._ahead and self._ahead_running < self._streams:
            transfer = heapq.heappop(self._ahead)[2]
            if transfer.begin():
                self._ahead_running += 1
                return True, transfer
        return None

    def _fetch(self, transfer: Transfer) -> TierfsError | None:
        """In a thread: fill the transfer's buffer; returns what went wrong."""
        assert self._token is not None
        span = transfer.span
        try:
            storage = self._storage_of(span.holder.location_id)
            for attempt in range(_ATTEMPTS):
                try:
                    transfer.run(storage, self._token)
                    break
                except BlockDiffers:
                    self._metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
                    if attempt + 1 == _ATTEMPTS:
                        raise
        except BrokenOff as exc:
            return Unavailable(str(exc))
        except TierfsError as exc:
            return exc
        except Exception as exc:
            log.exception("fetching %s failed", span.holder.name)
            return DataLoss(f"{span.holder.name}: {exc}")
        return None

    def _ended(self, transfer: Transfer, error: TierfsError | None) -> None:
        """On the loop: a transfer is over."""
        if transfer.first_byte_s is not None:
            self._hedges.note(transfer.first_byte_s)
        self._spans.ended(transfer, error)
