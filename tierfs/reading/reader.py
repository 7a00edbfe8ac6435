"""Reader: all reads of one process, with the memory, fetches and files they share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio

from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.config import ReadSettings
from tierfs.errors import NotFound
from tierfs.metadata import directories, policies
from tierfs.metadata.layout import load
from tierfs.metadata.store import MetadataStore
from tierfs.metrics import MetricSink
from tierfs.reading.buffers import BufferPool
from tierfs.reading.fetch import Fetcher
from tierfs.reading.handle import ReadHandle
from tierfs.reading.local import LocalReader
from tierfs.reading.spans import SpanCache
from tierfs.reading.stats import OpenHandles
from tierfs.types import MIB, LocationId, ReadPriority, SegmentId

_MIN_WINDOW_BYTES = 2 * MIB


class Reader:
    """Reads segments from both tiers. An async context manager: its nursery runs the fetches."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        storage_of: Callable[[LocationId], ChunkStorage],
        settings: ReadSettings,
        metrics: MetricSink,
    ) -> None:
        self.metadata = metadata
        self.settings = settings
        self.metrics = metrics
        self.spans = SpanCache(BufferPool(settings.budget_bytes))
        self.fetcher = Fetcher(self.spans, storage_of, settings.streams, metrics)
        self.local = LocalReader(files, settings.open_files, settings.local_threads, metrics)
        self.handles = 0
        self.open_handles = OpenHandles(metrics)
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery, bool | None] | None = None
        self._nursery: trio.Nursery | None = None

    def open(self, segment_id: SegmentId, *, priority: ReadPriority | None = None) -> ReadHandle:
        """Open a segment. Precedence of the priority: argument, settings, policy. Raises NotFound."""
        with self.metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                raise NotFound(f"segment {segment_id} does not exist")
            chosen = priority or self.settings.priority or policies.effective(txn, segment).read_priority
            layout = load(txn, segment, segment.start_offset)
        self.handles += 1
        handle = ReadHandle(self, layout, chosen)
        self.open_handles.add(handle)
        return handle

    @property
    def max_window_bytes(self) -> int:
        """How far one handle may run ahead: its share of the budget."""
        share = self.settings.budget_bytes // max(1, self.handles) // 2
        return max(_MIN_WINDOW_BYTES, min(self.settings.max_window_bytes, share))

    async def __aenter__(self) -> Reader:
        manager = self._nursery_manager = trio.open_nursery()
        self._nursery = await manager.__aenter__()
        self._nursery.start_soon(self.fetcher.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._nursery is not None
        assert self._nursery_manager is not None
        self._nursery.cancel_scope.cancel()
        try:
            return await self._nursery_manager.__aexit__(kind, error, trace)
        finally:
            self.local.close()
