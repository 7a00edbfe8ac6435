"""StoreReader: all reads of one process, with shared memory, fetches and files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio

from tierfs.base.options.config import ReadSettings
from tierfs.base.options.precedence import Effective
from tierfs.base.system.metrics import MetricSink
from tierfs.base.words import errors
from tierfs.base.words.types import LocationId, Payer, ReadPriority, SegmentId
from tierfs.engine.chunkstore.link import Links
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading.cold_path import ColdPath
from tierfs.reading.copies import CopyMarks
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.buffers import BufferPool
from tierfs.reading.fetch.checksum_cache import ChecksumCache
from tierfs.reading.fetch.fetcher import Fetcher
from tierfs.reading.fetch.span_cache import SpanCache
from tierfs.reading.handle import ReadHandle
from tierfs.reading.local import LocalPath, LocalReader
from tierfs.reading.open_handles import OpenHandles
from tierfs.reading.pack_ahead import PackAhead
from tierfs.reading.patience import Waits
from tierfs.reading.readahead import FairShare
from tierfs.reading.verified import VerifiedReader
from tierfs.reading.view import SegmentView

if TYPE_CHECKING:
    from tierfs.base.system.throttle import Throttle
    from tierfs.reading.cache.cache import DiskCache
    from tierfs.reading.fetch.gate import FetchGate


# Time for which changed etags are gathered: a transaction is a sync of the disk.
_ADOPT_AFTER_S = 1.0

T = TypeVar("T")
Args = TypeVarTuple("Args")


class StoreReader:
    """Reads segments from both tiers. An async context manager: fetches are delivered while it is entered."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        storage_of: Callable[[LocationId], ChunkStorage],
        settings: ReadSettings,
        metrics: MetricSink,
        cache: DiskCache | None = None,
    ) -> None:
        """`cache` is closed with the reader."""
        self.metadata = metadata
        self.settings = settings
        self.metrics = metrics
        self.spans = SpanCache(BufferPool(settings.budget_bytes))
        self.links = Links(settings.streams)
        self.shares = FairShare(settings.budget_bytes, settings.max_window_bytes, self.links)
        self._etags = Etags(metadata, metrics)
        self.fetcher = Fetcher(self.spans, storage_of, self.links, settings.urgent_streams, metrics, self._etags, cache)
        self.cache = cache
        self.local = LocalReader(files, settings.open_files, settings.local_threads, metrics)
        self.open_handles = OpenHandles(metrics)
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery, bool | None] | None = None
        self._nursery: trio.Nursery | None = None
        self._packs = PackAhead(self.shares, self.spans)
        self._checksums = ChecksumCache(metadata)
        self.waits = Waits()
        self._verified = VerifiedReader(metadata, storage_of, lambda: files, self._etags)
        self._marks = CopyMarks(metadata, self._verified)
        self._gate: FetchGate | None = None
        self._handles = itertools.count()
        self.mount_option: ReadPriority | None = None
        """Of the mount that reads with it."""
        self._policies = PolicyCache()
        self._cold: dict[SegmentId, ColdPath] = {}

    def limit(self, settings: ReadSettings, throttle: Callable[[], Throttle], budgets: tuple[Path, Path]) -> None:
        """Apply new settings, of limits and deadlines; the others stay. On the loop once it runs.

        `throttle` returns that of all reads of the process, `budgets` is the file of what users have spent, and its
        lock.
        """
        self.settings = settings
        limits = (settings.bandwidth, settings.user_bandwidth, settings.hourly_bytes, settings.hourly_requests)
        is_on = any(limits)
        if self._gate is None and not is_on:
            return
        from tierfs.reading.fetch.gate import FetchGate, ahead_limits

        if self._gate is None:
            from tierfs.reading.budgets import Budgets

            spent = Budgets(*budgets, self.metadata.clock)
            self._gate = FetchGate(throttle(), spent, self.fetcher.pass_gate, self.fetcher.refuse, self.metrics)
            self._start_gate()
        self._gate.limit(settings)
        self.shares.limit(ahead_limits(settings))
        self.fetcher.gate = self._gate if is_on else None
        self.spans.settle = self._gate.settle
        self.waits.is_limited = self._gate.holds

    def _start_gate(self) -> None:
        if self._gate is not None and self._nursery is not None:
            self._nursery.start_soon(self._gate.run)
            self._nursery.start_soon(self._gate.budgets.keep_saving)

    def budget_of(self, uid: int) -> str:
        """Return what a user has read of the hourly budget, as a text; `unlimited` without one."""
        return "unlimited" if self.fetcher.gate is None else self.fetcher.gate.budgets.told(uid)

    @property
    def gate(self) -> FetchGate | None:
        """The gate before fetches; None while there never was a limit."""
        return self._gate

    def open(
        self, segment_id: SegmentId, *, priority: ReadPriority | None = None, uid: int | None = None
    ) -> ReadHandle:
        """Open a segment; `priority` is the call's, `uid` the user who reads: None for that of the process.

        Raises NotFound.
        """
        view = SegmentView(self.metadata, segment_id)
        with self.metadata.read() as txn:
            chosen = self.read_priority(txn, view.segment, priority)
        cold = self._cold.get(segment_id)
        if cold is None:
            cold = self._cold[segment_id] = self._new_cold_path()
        cold.handles += 1
        local = LocalPath(self.metadata, self.local)
        deadline_s = self.settings.deadline_s
        payer = Payer(os.getuid() if uid is None else uid, next(self._handles))
        return ReadHandle(
            view, chosen, local, cold, deadline_s, self.metrics, self._marks, self.waits, payer, self._closed
        )

    def window_bytes(self, segment_id: SegmentId) -> int:
        """Return the length of a segment's read-ahead windows, summed over its readers."""
        cold = self._cold.get(segment_id)
        return 0 if cold is None else sum(session.window_bytes for session in cold.sessions)

    def read_priority(
        self, txn: ReadTransaction, segment: SegmentRecord, call: ReadPriority | None = None
    ) -> Effective[ReadPriority]:
        """Return the priority by which a segment is read, and its origin."""
        return self._policies.of(txn, segment).read_priority(call, self.mount_option)

    async def __aenter__(self) -> StoreReader:
        manager = self._nursery_manager = trio.open_nursery()
        self._nursery = await manager.__aenter__()
        self.fetcher.start(self._nursery)
        self._nursery.start_soon(self._adopt_etags)
        self._nursery.start_soon(self._marks.keep_writing)
        self._nursery.start_soon(self.waits.keep_telling)
        self._start_gate()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._nursery is not None
        assert self._nursery_manager is not None
        self.fetcher.close()
        self._nursery.cancel_scope.cancel()
        try:
            return await self._nursery_manager.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if group.exceptions != (error,):
                raise
            return False  # the block's own error passes as it is: none of our tasks failed
        finally:
            self._marks.finish()
            if self._gate is not None:
                self._gate.budgets.finish()
            self._etags.adopt()
            self.local.close()
            if self.cache is not None:
                self.cache.close()

    async def settle(self) -> None:
        """Mark lost copies that prove right as good; a mount does it as it runs, other processes before they end."""
        await self._marks.settle()

    async def _adopt_etags(self) -> None:
        """Record the etags of objects that were copied or restored, many at once, without delaying readers."""
        while True:
            await self.fetcher.proved.wait()
            await trio.sleep(_ADOPT_AFTER_S)
            self.fetcher.proved = trio.Event()
            await trio.to_thread.run_sync(self._etags.adopt)

    def _new_cold_path(self) -> ColdPath:
        return ColdPath(
            self._checksums, self.spans, self.fetcher, self._packs, self._verified.whole_chunk, self.metrics
        )

    def _closed(self, handle: ReadHandle) -> None:
        """Stop reading ahead for a segment whose last handle was closed."""
        handle.cold.handles -= 1
        if handle.cold.handles == 0:
            handle.cold.close()
            del self._cold[handle.segment.id]


def run_loop(work: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Return the result of `work` in a loop of its own. Raises its error alone, where trio raises a group."""
    try:
        # Else Ctrl-C would be raised in any running code, and trio loses tasks that are just being started.
        return trio.run(work, *args, restrict_keyboard_interrupt_to_checkpoints=True)
    except BaseExceptionGroup as group:
        failed = errors.leaf(group)
    raise failed  # out here: inside, the group would become its context, and the group holds it
