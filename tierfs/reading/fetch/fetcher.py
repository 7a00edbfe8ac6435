"""Filling spans: from the disk cache or the cold tier, with a second GET when the first is slow.

When to ask a second time: a GET whose first byte takes longer than nearly all recent ones did.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from tierfs.chunkstore.http.on_loop import LoopGets
from tierfs.chunkstore.protocol import ChunkStorage, RangeUrl, RangeUrls
from tierfs.errors import Closed, DataLoss, TierfsError, Unavailable
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.grid import BlockDiffers
from tierfs.reading.fetch.queue import HEDGE, SMALL_BYTES, WANTED_NOW, FetchQueue
from tierfs.reading.fetch.span import BrokenOff, Span, Transfer
from tierfs.reading.fetch.span_cache import SpanCache
from tierfs.types import MIB, ByteRange, LocationId, PayloadEncoding

if TYPE_CHECKING:
    from tierfs.reading.cache.cache import CacheWriter, DiskCache

_RECENT = 512
_ENOUGH = 32
"""Fewer samples tell nothing of a 99th percentile."""

_QUANTILE = 0.99
_FLOOR_S = 0.05
"""Below this a busy processor is more likely than a slow server (a guess; a GET takes 2 ms on one machine)."""

_UNKNOWN_S = 1.0
"""Until enough is known."""

_RENEW_EVERY = 32
_EARNED_PER_FETCH = 0.05
_MOST_SAVED = 4.0
"""At most one hedge for twenty fetches, a few at once: a server that is slow for all is not asked twice."""


class HedgePolicy:
    """On the trio loop only."""

    def __init__(self) -> None:
        self._first_bytes_s: deque[float] = deque(maxlen=_RECENT)
        self._since_renewal = 0
        self._saved = 1.0
        self.delay_s = _UNKNOWN_S
        """How long a first byte may take before a second GET is worth it."""

    def note(self, first_byte_s: float) -> None:
        """A fetch delivered its first byte after so long."""
        self._first_bytes_s.append(first_byte_s)
        self._saved = min(_MOST_SAVED, self._saved + _EARNED_PER_FETCH)
        self._since_renewal += 1
        if self._since_renewal >= _RENEW_EVERY and len(self._first_bytes_s) >= _ENOUGH:
            self._since_renewal = 0
            ordered = sorted(self._first_bytes_s)
            self.delay_s = max(_FLOOR_S, ordered[int(len(ordered) * _QUANTILE)])

    @property
    def allowed(self) -> bool:
        """Whether one more hedge may go out now."""
        return self._saved >= 1

    def sent(self) -> None:
        """A hedge went out."""
        self._saved -= 1


log = logging.getLogger(__name__)

_CACHED_NOW_BYTES = MIB
"""Most bytes that are copied from the disk cache on the loop, which does nothing else meanwhile (a guess)."""

_CACHE_STEP_BYTES = MIB

_COLD, _READ = "cold", "read"
"""Labels of GETs on the loop: those that a thread's GET has."""

StorageOf = Callable[[LocationId], ChunkStorage]


class Fetcher:
    """Threads that fill spans from the cold tier. Methods are for the trio loop."""

    def __init__(
        self,
        spans: SpanCache,
        storage_of: StorageOf,
        streams: int,
        urgent_streams: int,
        metrics: MetricSink,
        etags: Etags,
        cache: DiskCache | None = None,
    ) -> None:
        self._spans = spans
        self._etags = etags
        self._storage_of = storage_of
        self._metrics = metrics
        self._cache = cache
        self._writer: CacheWriter | None = None
        if cache is not None:
            from tierfs.reading.cache.cache import CacheWriter  # `cat` starts fast without one

            self._writer = CacheWriter(cache, spans.pool.budget_bytes // 4)
        self._hedges = HedgePolicy()
        self._queue = FetchQueue(streams, urgent_streams, self._run)
        self._gets = LoopGets(urgent_streams)
        self._count_requests = metrics.counter(MetricName.STORAGE_REQUESTS, tier=_COLD, verb=_READ)
        self._count_bytes = metrics.counter(MetricName.STORAGE_BYTES, tier=_COLD, verb=_READ)
        self._range_urls: dict[LocationId, RangeUrls] = {}
        """Of locations that were read before."""
        """What threads have read from: making a storage may take a while, which the loop must not."""
        self.proved = trio.Event()
        """Set when objects were read under another etag than their records tell."""
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def busy(self) -> bool:
        """Whether a fetch runs or waits for its turn."""
        return self._spans.transfers > 0

    @property
    def running(self) -> int:
        """Fetches that run now."""
        return self._queue.running + self._gets.running

    @property
    def unstored_bytes(self) -> int:
        """Fetched bytes that wait for the disk cache's disk."""
        return 0 if self._writer is None else self._writer.pending_bytes

    def start(self, nursery: trio.Nursery) -> None:
        """Deliver to the trio loop that runs now."""
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()

    def close(self) -> None:
        """Start nothing more; threads end with what they are fetching."""
        self._queue.close()
        self._gets.close()
        if self._writer is not None:
            self._writer.close()

    def submit(self, span: Span, priority: int) -> None:
        """Queue a new span; what is wanted now and held by the disk cache is there when this returns."""
        span.urgent = priority == WANTED_NOW
        if span.urgent and (self._cached_now(span) or self._got_on_loop(span)):
            return
        self._queue.put(span.transfers[0], priority)

    def hurry(self, span: Span) -> None:
        """Somebody waits for a span that is still queued."""
        if span.queued and not span.urgent:
            span.urgent = True
            self._queue.put(span.transfers[0], WANTED_NOW)

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
        if late and self._hedges.allowed and self._spans.give_transfer(span):
            self._hedges.sent()
            self._metrics.count(MetricName.READ_HEDGES)
            self._queue.put(span.transfers[1], HEDGE)

    def _cached_now(self, span: Span) -> bool:
        """Fill a small span that the disk cache holds in the kernel's memory."""
        transfer = span.transfers[0]
        if self._cache is None or len(transfer.view) > _CACHED_NOW_BYTES:
            return False
        held = self._cache.read_now(span.holder.id, span.start, transfer.view, span.grid)
        if held < len(transfer.view) or not transfer.own():
            return False
        transfer.resume(held)
        self._spans.ended(transfer, None)
        return True

    def _got_on_loop(self, span: Span) -> bool:
        """Begin to fetch a small span on the loop, if its object was read before and so has a URL."""
        transfer, storage = span.transfers[0], self._range_urls.get(span.holder.location_id)
        if storage is None or self._nursery is None or len(transfer.view) > SMALL_BYTES or not self._gets.free:
            return False
        if span.holder.encoding is not PayloadEncoding.RAW:
            return False  # its payloads lie between frames
        if self._cache is not None and self._cache.holds(span.holder.id, span.start):
            return False  # but not in the kernel's memory: a thread may wait for the disk
        url = storage.range_url(span.holder.name)
        if url is None or not transfer.own():
            return False
        self._gets.reserve()
        self._nursery.start_soon(self._get_on_loop, transfer, url)
        return True

    async def _get_on_loop(self, transfer: Transfer, url: RangeUrl) -> None:
        """Fetch on the loop; handed over to a thread when that fails."""
        span, started_s = transfer.span, trio.current_time()
        transfer.clock_started()
        try:
            transfer.etag = etag = self._etags.of(span.holder)
            done = await self._gets.get(url, span.start, transfer.view, etag)
        except trio.Cancelled:
            self._ended(transfer, Closed("the store was closed while it was read"))
            raise
        if done:
            self._take_in(transfer, trio.current_time() - started_s)
        else:
            self._queue.hand_over(transfer)

    def _take_in(self, transfer: Transfer, seconds: float) -> None:
        """Check what came on the loop; handed over to a thread when it is damaged."""
        length_bytes = len(transfer.view)
        try:
            transfer.arrived(length_bytes)
        except BlockDiffers:
            self._metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
            self._queue.hand_over(transfer)
            return
        except BrokenOff as exc:
            self._ended(transfer, Unavailable(str(exc)))
            return
        self._count_get(length_bytes, seconds)
        if self._keep(transfer):
            transfer.span.wake()
        else:
            self._ended(transfer, None)

    def _count_get(self, length_bytes: int, seconds: float) -> None:
        """What a thread's GET is counted with by its storage."""
        self._count_requests(1)
        self._count_bytes(length_bytes)
        self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=_COLD, verb=_READ)

    def _run(self, transfer: Transfer) -> None:
        """In a thread: fetch, keep what was fetched, and tell the loop."""
        assert self._token is not None
        transfer.deliver_to(self._token, last=self._writer is not None)
        error = self._fetch(transfer)
        if error is not None or not self._keep(transfer):
            self._tell(transfer, error)

    def _keep(self, transfer: Transfer) -> bool:
        """Store what was fetched in the disk cache, and tell the loop then; False when it is not stored."""
        start = transfer.cached_bytes
        if self._writer is None or start == len(transfer.view):
            return False
        return self._writer.offer(transfer, start, lambda: self._tell(transfer, None))

    def _tell(self, transfer: Transfer, error: TierfsError | None) -> None:
        assert self._token is not None
        with suppress(trio.RunFinishedError):  # nobody is left to read it
            self._token.run_sync_soon(self._ended, transfer, error)

    def _fetch(self, transfer: Transfer) -> TierfsError | None:
        """In a thread: fill the transfer's buffer; returns what went wrong."""
        span = transfer.span
        try:
            if self._cache is not None:
                _fill_from(self._cache, transfer)
                if transfer.cached_bytes == len(transfer.view):
                    return None  # without a way to the cold tier, if need be
            storage = self._storage_of(span.holder.location_id)
            if isinstance(storage, RangeUrls):
                self._range_urls[span.holder.location_id] = storage
            transfer.run(storage, self._etags, self._metrics)
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
        fetched = error is None and transfer.cached_bytes < len(transfer.view)
        if fetched and self._etags.proved(transfer.span.holder, transfer.etag):
            self.proved.set()
        self._spans.ended(transfer, error)


def _fill_from(cache: DiskCache, transfer: Transfer) -> None:
    """Fill the beginning of a transfer as far as the disk cache goes."""
    span, view = transfer.span, transfer.view
    held = found = 0
    while held < len(view):
        step = view[held : held + _CACHE_STEP_BYTES]
        found = cache.read(span.holder.id, span.start + held, step, span.grid)
        held += found
        transfer.resume(held)
        if found < len(step):
            break
