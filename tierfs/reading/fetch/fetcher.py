"""Fill spans from the disk cache or the cold tier, with a second GET (a hedge) when the first is slow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.words.errors import Closed, TierfsError, Unavailable, unexpected
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ByteRange, LocationId
from tierfs.engine.chunkstore.http.on_loop import LoopGets, StartedGet
from tierfs.engine.chunkstore.link import Links
from tierfs.engine.chunkstore.protocol import ChunkStorage, RangeUrls
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.fetch.hedge import HedgePolicy
from tierfs.reading.fetch.queue import HEDGE, SMALL_BYTES, WANTED_NOW, FetchQueue
from tierfs.reading.fetch.span import BrokenOff, Span, Transfer
from tierfs.reading.fetch.span_cache import SpanCache
from tierfs.reading.plain_bytes import SmallRequest

if TYPE_CHECKING:
    from tierfs.base.words.types import Payer
    from tierfs.reading.cache.cache import DiskCache
    from tierfs.reading.cache.writer import CacheWriter
    from tierfs.reading.fetch.gate import FetchGate


# Limit of a copy from the disk cache on the loop, which blocks the loop (a guess).
_CACHED_NOW_BYTES = MIB

_CACHE_STEP_BYTES = MIB

# Labels of GETs on the loop, as of a thread's GET.
_COLD, _READ = "cold", "read"

StorageOf = Callable[[LocationId], ChunkStorage]


class Fetcher:
    """Threads that fill spans from the cold tier. Methods are for the trio loop."""

    def __init__(
        self,
        spans: SpanCache,
        storage_of: StorageOf,
        links: Links,
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
            from tierfs.reading.cache.writer import CacheWriter

            self._writer = CacheWriter(cache, spans.pool.budget_bytes // 4)
        self._links = links
        self._hedges = HedgePolicy(links)
        self._queue = FetchQueue(lambda: links.streams, urgent_streams, self._run)
        self._gets = LoopGets(urgent_streams)
        self._count_requests = metrics.counter(MetricName.STORAGE_REQUESTS, tier=_COLD, verb=_READ)
        self._count_bytes = metrics.counter(MetricName.STORAGE_BYTES, tier=_COLD, verb=_READ)
        self._range_urls: dict[LocationId, RangeUrls] = {}
        """Of locations that threads have used before: making a storage may take too long for the loop."""
        self.gate: FetchGate | None = None
        """Keeps fetches waiting while there are limits."""
        self.proved = trio.Event()
        """Set when objects were read under another etag than their records name."""
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
        """Deliver to the running trio loop from now on."""
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()

    def close(self) -> None:
        """Start nothing more; threads end after their current fetch."""
        self._queue.close()
        self._gets.close()
        if self._writer is not None:
            self._writer.close()

    async def connect(self, record: ObjectRecord) -> None:
        """Make the storage of an object, and its signed URL, in a thread, so that small reads there need none.

        Raises what making them raises.
        """
        await trio.to_thread.run_sync(self._connect, record, abandon_on_cancel=True)

    def submit(self, span: Span, priority: int, payer: Payer) -> None:
        """Queue a new span; one wanted now and held by the disk cache is filled on return."""
        span.urgent = priority == WANTED_NOW
        if span.urgent and self._cached_now(span):
            return
        if self.gate is not None and self.gate.keeps(span, payer, priority):
            return
        if span.urgent and self._got_on_loop(span):
            return
        self._queue.put(span.transfers[0], priority)

    def hurry(self, span: Span, payer: Payer) -> None:
        """Move a queued span to the front: a reader waits for it."""
        if span.queued:
            if self.gate is not None and self.gate.hurries(span, payer):
                span.urgent = True
            elif not span.urgent:
                span.urgent = True
                self._queue.put(span.transfers[0], WANTED_NOW)

    def pass_gate(self, span: Span) -> None:
        """Begin to fetch a span that waited at the gate."""
        if not (span.urgent and self._got_on_loop(span)):
            self._queue.put(span.transfers[0], WANTED_NOW if span.urgent else 0)

    def refuse(self, span: Span, error: TierfsError) -> None:
        """End a span that waited at the gate with an error."""
        if span.transfers[0].own():
            self._ended(span.transfers[0], error)

    async def wait_for(self, span: Span, wanted: ByteRange, payer: Payer) -> None:
        """Wait until the bytes have arrived, with a second GET if the first is slow; raise the fetch's error."""
        self.hurry(span, payer)
        while not span.has(wanted) and span.leader is None and len(span.transfers) == 1:
            with trio.move_on_after(self._hedges.delay_s):
                await span.wait_for(wanted)
                return
            self._hedge(span)
        await span.wait_for(wanted)

    def _hedge(self, span: Span) -> None:
        """Send a second GET for a span whose first byte is late."""
        late = not span.queued and span.leader is None and len(span.transfers) == 1
        if late and self._hedges.allowed and self._spans.give_transfer(span):
            self._hedges.sent()
            self._metrics.count(MetricName.READ_HEDGES)
            if self.gate is not None:
                self.gate.hedged(span)
            self._queue.put(span.transfers[1], HEDGE)

    def _cached_now(self, span: Span) -> bool:
        """Fill a small span from the part of the disk cache in the kernel's memory; return whether it is full."""
        transfer = span.transfers[0]
        if self._cache is None or len(transfer.view) > _CACHED_NOW_BYTES:
            return False
        held = self._cache.read_now(span.record.id, span.start, transfer.view, span.grid)
        if held < len(transfer.view) or not transfer.own():
            return False
        transfer.resume(held)
        self._spans.ended(transfer, None)
        return True

    def _got_on_loop(self, span: Span) -> bool:
        """Start to fetch a small span on the loop, if its location was read before and so has URLs."""
        transfer, storage = span.transfers[0], self._range_urls.get(span.record.location_id)
        if storage is None or self._nursery is None or len(transfer.view) > SMALL_BYTES or not self._gets.free:
            return False
        if self._cache is not None and self._cache.holds(span.record.id, span.start):
            return False  # not in the kernel's memory: a thread has to wait for the disk
        url = storage.range_url(span.record.name)
        request = None if url is None else self._small_request(transfer)
        if url is None or request is None or not transfer.own():
            return False
        transfer.clock_started()
        transfer.etag = etag = self._etags.of(span.record)
        began_s = trio.current_time()
        started = self._gets.begin(url, request.offset, request.view, etag)
        self._nursery.start_soon(self._get_on_loop, transfer, request, started, began_s)
        self._spans.pool.prepare(len(transfer.view))  # while the server works
        return True

    def _small_request(self, transfer: Transfer) -> SmallRequest | None:
        """Return the request for a transfer; None if a thread has to make it."""
        try:
            return self._etags.plain.small_request(transfer.span.record, transfer.span.start, transfer.view)
        except TierfsError:
            return None  # as the thread will report

    async def _get_on_loop(
        self, transfer: Transfer, request: SmallRequest, started: StartedGet, began_s: float
    ) -> None:
        """Receive on the loop; hand over to a thread if that fails."""
        try:
            done = await self._gets.finish(started)
        except trio.Cancelled:
            self._ended(transfer, Closed("the store was closed while it was read"))
            raise
        if done:
            seconds = trio.current_time() - began_s
            link = self._links.get(transfer.span.record.location_id)
            if link is not None:
                link.answered(seconds)
            self._take_in(transfer, request, seconds)
        else:
            self._queue.hand_over(transfer)

    def _take_in(self, transfer: Transfer, request: SmallRequest, seconds: float) -> None:
        """Check bytes fetched on the loop; hand over to a thread if they are damaged."""
        try:
            request.finish()
            transfer.arrived(len(transfer.view))
        except BlockDiffers:
            self._metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
            self._queue.hand_over(transfer)
            return
        except BrokenOff as exc:
            self._ended(transfer, Unavailable(str(exc)))
            return
        self._count_get(len(request.view), seconds)
        if self._keep(transfer):
            transfer.span.wake()
        else:
            self._ended(transfer, None)

    def _count_get(self, length_bytes: int, seconds: float) -> None:
        """Count a GET on the loop as a storage counts a thread's."""
        self._count_requests(1)
        self._count_bytes(length_bytes)
        self._metrics.observe(MetricName.STORAGE_SECONDS, seconds, tier=_COLD, verb=_READ)

    def _run(self, transfer: Transfer) -> None:
        """In a thread: fetch, store in the disk cache, and notify the loop."""
        assert self._token is not None
        transfer.deliver_to(self._token, last=self._writer is not None)
        error = self._fetch(transfer)
        if error is not None or not self._keep(transfer):
            self._tell(transfer, error)

    def _keep(self, transfer: Transfer) -> bool:
        """Store fetched bytes in the disk cache, then notify the loop; return False if they are not stored."""
        start = transfer.cached_bytes
        if self._writer is None or start == len(transfer.view):
            return False
        return self._writer.offer(transfer, start, lambda: self._tell(transfer, None))

    def _tell(self, transfer: Transfer, error: TierfsError | None) -> None:
        assert self._token is not None
        with suppress(trio.RunFinishedError):  # no reader is left
            self._token.run_sync_soon(self._ended, transfer, error)

    def _fetch(self, transfer: Transfer) -> TierfsError | None:
        """In a thread: fill the transfer's buffer; return the error."""
        span = transfer.span
        try:
            if self._cache is not None:
                _fill_from(self._cache, transfer)
                if transfer.cached_bytes == len(transfer.view):
                    return None  # works even without access to the cold tier
            storage = self._storage_at(span.record.location_id)
            transfer.run(storage, self._etags, self._metrics)
        except BrokenOff as exc:
            return Unavailable(str(exc))
        except Exception as exc:
            return unexpected(exc, printable(span.record.name))
        return None

    def _connect(self, record: ObjectRecord) -> None:
        storage = self._storage_at(record.location_id)
        if isinstance(storage, RangeUrls):
            storage.range_url(record.name)

    def _storage_at(self, location_id: LocationId) -> ChunkStorage:
        """In a thread: return a location's storage, whose URLs the loop may use from now on."""
        storage = self._storage_of(location_id)
        self._links.add(location_id, storage)
        if isinstance(storage, RangeUrls):
            self._range_urls[location_id] = storage
        return storage

    def _ended(self, transfer: Transfer, error: TierfsError | None) -> None:
        """On the loop: finish a transfer."""
        if transfer.first_byte_s is not None:
            self._hedges.note(transfer.first_byte_s)
        fetched = error is None and transfer.cached_bytes < len(transfer.view)
        if fetched and self._etags.proved(transfer.span.record, transfer.etag):
            self.proved.set()
        self._spans.ended(transfer, error)


def _fill_from(cache: DiskCache, transfer: Transfer) -> None:
    """Fill the beginning of a transfer from the disk cache, as far as it has the blocks."""
    span, view = transfer.span, transfer.view
    held = filled = 0
    while held < len(view):
        step = view[held : held + _CACHE_STEP_BYTES]
        filled = cache.read(span.record.id, span.start + held, step, span.grid)
        held += filled
        transfer.resume(held)
        if filled < len(step):
            break
