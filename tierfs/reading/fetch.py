"""Fetching spans: a bounded number of streams, waiting readers first, bytes checked as they arrive."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress

import trio

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss, TierfsError
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.spans import Span, SpanCache
from tierfs.types import LocationId

log = logging.getLogger(__name__)

WANTED_NOW = -1
"""Priority of a span a reader waits for; read-ahead uses its distance in bytes."""

_ATTEMPTS = 2
"""A block that fails its check is fetched once more: a flipped bit on the way is not a bad object."""

StorageOf = Callable[[LocationId], ChunkStorage]


class Fetcher:
    """Worker tasks that fill spans from the cold tier; run it in the reader's nursery."""

    def __init__(self, spans: SpanCache, storage_of: StorageOf, streams: int, metrics: MetricSink) -> None:
        self._spans = spans
        self._storage_of = storage_of
        self._metrics = metrics
        self._streams = streams
        self._heap: list[tuple[int, int, Span]] = []
        self._numbers = itertools.count()
        self._arrival = trio.Event()
        self._filling = 0
        self._limiter = trio.CapacityLimiter(streams)

    async def run(self) -> None:
        """Fetch until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._streams):
                nursery.start_soon(self._work)

    def submit(self, span: Span, priority: int) -> None:
        """Queue a span; again with a better priority is fine."""
        heapq.heappush(self._heap, (priority, next(self._numbers), span))
        self._arrival.set()

    @property
    def busy(self) -> bool:
        """Whether a fetch runs or waits for its turn."""
        return self._filling > 0 or bool(self._heap)

    @property
    def in_flight(self) -> int:
        """How many fetches run."""
        return self._filling

    @property
    def waiting(self) -> int:
        """How many fetches wait for their turn."""
        return len({id(span) for _, _, span in self._heap if span.queued})

    async def _work(self) -> None:
        while True:
            while not self._heap:
                self._arrival = trio.Event()
                await self._arrival.wait()
            span = heapq.heappop(self._heap)[2]
            if span.queued:
                span.queued = False
                await self._fill(span)

    async def _fill(self, span: Span) -> None:
        token = trio.lowlevel.current_trio_token()
        self._filling += 1
        try:
            await trio.to_thread.run_sync(self._fetch, span, token, limiter=self._limiter, abandon_on_cancel=True)
        except TierfsError as exc:
            span.error = exc
        except Exception as exc:
            log.exception("fetching %s failed", span.holder.name)
            span.error = DataLoss(f"{span.holder.name}: {exc}")
        finally:
            self._filling -= 1
            self._spans.finished(span)
            span.wake()

    def _fetch(self, span: Span, token: trio.lowlevel.TrioToken) -> None:
        """In a thread: stream the bytes into the span, checking each block before anybody sees it."""
        storage = self._storage_of(span.holder.location_id)
        for attempt in range(_ATTEMPTS):
            try:
                _Stream(span, token).run(storage)
                return
            except BlockDiffers:
                self._metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
                if attempt + 1 == _ATTEMPTS:
                    raise


class BlockDiffers(DataLoss):
    """Bytes arrived that do not match their CRC32C."""


class _Stream:
    """One transfer into a span."""

    def __init__(self, span: Span, token: trio.lowlevel.TrioToken) -> None:
        self._span = span
        self._token = token
        self._next_block = 0

    def run(self, storage: ChunkStorage) -> None:
        span = self._span
        if span.holder.length < span.end:
            raise DataLoss(f"{span.holder.name} has {span.holder.length} bytes, its chunks need {span.end}")
        storage.read_into(span.holder.name, span.start, span.view, if_match=span.holder.etag, progress=self._arrived)
        self._arrived(span.end - span.start)

    def _arrived(self, received: int) -> None:
        span = self._span
        bad, self._next_block = span.grid.first_bad(span.view, span.start, self._next_block, span.start + received)
        if bad is not None:
            raise BlockDiffers(f"{span.holder.name}: bytes {bad.start} to {bad.end} do not match their checksum")
        blocks = span.grid.blocks
        checked = (blocks[self._next_block].start if self._next_block < len(blocks) else span.end) - span.start
        if checked <= span.filled:
            return
        span.filled = checked
        if any(needed <= checked for needed, _ in list(span.waiters)):
            with suppress(trio.RunFinishedError):  # the reader is gone; so is whoever waited
                self._token.run_sync_soon(span.wake)
