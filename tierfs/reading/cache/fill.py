"""Filling the disk cache of this process: a few threads that fetch, check and store, each one part at a time.

A reader's fetches are dropped when the cache's disk lags behind. Here a thread stores what it fetched before
it fetches more, so the disk sets the pace and nothing is fetched in vain.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.bytes.progress import Meter
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.system.throttle import Throttle
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId, ObjectId, Tier
from tierfs.engine.chunkstore.link import Links
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.cache.fill_plan import WantedBytes
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.verified import TRIES, VerifiedReader, grid_in

log = logging.getLogger(__name__)

# One GET at most: long enough to be cheap, short enough that Ctrl-C and the progress bar need not wait.
PART_BYTES = 4 * MIB

# The same within a limit of bandwidth: a reader that comes waits until a part's time has passed.
_LIMITED_BYTES = MIB // 2

# How soon Ctrl-C is seen: a wait without timeout is not interrupted everywhere (guess).
_POLL_S = 0.2

# How long parts in flight may go on after an error or Ctrl-C; a tier that does not answer is not waited for.
_END_S = 2.0


class _Replaced(Exception):
    """The object of a part is named by no record any more."""


class Warmer:
    """One run; used once."""

    def __init__(
        self,
        cache: DiskCache,
        metadata: MetadataStore,
        storage_of: Callable[[LocationId], ChunkStorage],
        metrics: MetricSink,
        advance: Meter,
        most_threads: int,
        files: ChunkFiles,
        check: Callable[[], object] = lambda: None,
        throttle: Throttle | None = None,
    ) -> None:
        """`most_threads` bounds the threads, whose number follows the link; each takes a part's memory.

        `throttle` is the limit of what is fetched, which readers share.
        `check` is called every now and then by the thread that runs it, and raises what shall end the run.
        """
        self._cache = cache
        self._metadata = metadata
        self._storage_of = storage_of
        self._metrics = metrics
        self._advance = advance
        self._reader = VerifiedReader(metadata, storage_of, lambda: files)
        self._check = check
        self._throttle = throttle or Throttle()
        self.uncached_bytes = 0
        """In blocks that differ, and so cannot be cached."""
        self._links = Links(most_threads)
        self._workers: list[threading.Thread] = []
        self._parts: Iterator[tuple[WantedBytes, bool]] = iter(())
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._error: BaseException | None = None

    def run(self, wanted: Iterable[WantedBytes]) -> None:
        """Return when the cache was offered every byte and has stored what it keeps.

        What it holds is checked and counts as just read. Objects that were replaced meanwhile are left out. Raises
        what fetching raises, and what `check` raises; what was stored stays. Raises DataLoss for a missing object or
        damaged chunks once all others were stored; a block that only another segment's bytes damage is left out.
        """
        self._parts = _parts(wanted, _LIMITED_BYTES if self._throttle.bytes_per_s else PART_BYTES)
        self._start_workers()
        try:
            while not self._stop.is_set() and (left := [worker for worker in self._workers if worker.is_alive()]):
                left[0].join(_POLL_S)
                self._check()
        finally:
            self._stop.set()
            end = time.monotonic() + _END_S
            for worker in self._workers:
                worker.join(max(0.0, end - time.monotonic()))
            self._reader.etags.adopt()
        if self._error is not None:
            raise self._error
        self._check()

    def _start_workers(self) -> None:
        """Start as many as the link has streams by now."""
        with self._lock:
            while len(self._workers) < self._links.streams and not self._stop.is_set():
                # Daemons, so that one that waits for a dead server does not hold up the end of the process.
                worker = threading.Thread(target=self._work, name="tierfs-warm", daemon=True)
                self._workers.append(worker)
                worker.start()

    def _work(self) -> None:
        memory = memoryview(bytearray(PART_BYTES + CRC_BLOCK_BYTES))
        try:
            while (item := self._next()) is not None:
                part, ends = item
                with suppress(_Replaced):
                    self._fill(part, memory)
                self._advance(part.held.length_bytes, part.name, ends)
                self._start_workers()
        except BaseException as exc:  # raised again by `run`
            self._error = self._error or exc
            self._stop.set()

    def _next(self) -> tuple[WantedBytes, bool] | None:
        with self._lock:
            return None if self._stop.is_set() else next(self._parts, None)

    def _fill(self, part: WantedBytes, memory: memoryview) -> None:
        """Let the cache hold all of a part."""
        record = part.record
        with self._metadata.read() as txn:
            _named(txn, record.id)
            grid = grid_in(txn, record, part.held)
        start, end = grid.range.start, grid.range.end
        view = memory[: end - start]
        at = start
        while at < end:
            at += self._cache.read(record.id, at, view[at - start :], grid)
            if at == end:
                break
            missing = ByteRange(at, self._next_held(record, at, end))
            try:
                bad = self._fetch(record, grid.cut(missing), missing.of(view, start))
            except NotFound as exc:
                with self._metadata.read() as txn:
                    now = _named(txn, record.id)
                if now.name != record.name:  # it went to another storage class meanwhile
                    self._fill(replace(part, record=now), memory)
                    return
                self._damaged(DataLoss(f"{printable(part.name)}: {exc}", remedy="run: tierfs check"))
                return
            if self._stop.is_set():
                return
            for block in bad:
                self._judge(part, block)
            for right in ranges.gaps(missing, bad):
                self._cache.store(record.id, right.start, right.of(view, start))
            at = missing.end

    def _next_held(self, record: ObjectRecord, at: int, end: int) -> int:
        """Where the next block that is held begins, behind the one at `at`."""
        following = range(at + CRC_BLOCK_BYTES, end, CRC_BLOCK_BYTES)
        return next((start for start in following if self._cache.holds(record.id, start)), end)

    def _fetch(self, record: ObjectRecord, grid: Grid, view: memoryview) -> list[ByteRange]:
        """Fill `view` with blocks of an object; return those that differ in two reads."""
        self._links.add(record.location_id, self._storage_of(record.location_id))
        self._throttle.take(len(view))
        place, tries = self._reader.place(record), 0
        while bad := self._reader.bad_blocks(record, grid, view):
            self._metrics.count(MetricName.CHECKSUM_FAILURES, source="cold")
            tries = 0 if place.was_left() else tries + 1
            if tries == TRIES:
                break
        return bad

    def _judge(self, part: WantedBytes, block: ByteRange) -> None:
        """Leave out a block that differs; note a DataLoss unless the wanted chunks in it prove right by themselves."""
        inside = block.intersect(part.held)
        shift = part.start - part.held.start
        with self._metadata.read() as txn:
            overlapping = chains.overlapping(
                txn, part.segment_id, Tier.COLD, ByteRange(inside.start + shift, inside.end + shift)
            )
            chunks = [PlacedChunk(chunk, part.record) for chunk in overlapping if chunk.object_id == part.record.id]
        with self._lock:
            self.uncached_bytes += inside.length_bytes
        name = printable(part.name)
        if all(map(self._reader.proves, chunks)):
            log.warning("%s: its bytes at %d are valid, but cannot be cached: the block is damaged", name, inside.start)
        else:
            where = f"{printable(part.record.name)} does not match its checksums at {block.start}"
            self._damaged(DataLoss(f"{name}: {where}", remedy="run: tierfs check"))

    def _damaged(self, error: DataLoss) -> None:
        """Note an error that keeps no other part from being stored."""
        with self._lock:
            self._error = self._error or error


def _named(txn: ReadTransaction, object_id: ObjectId) -> ObjectRecord:
    record = txn.get(OBJECTS, tables.u64(object_id))
    if record is None:
        raise _Replaced
    return record


def _parts(wanted: Iterable[WantedBytes], part_bytes: int) -> Iterator[tuple[WantedBytes, bool]]:
    """Cut at multiples of a size of the objects, so that no block is in two parts; tell the last of each range."""
    for whole in wanted:
        at = whole.held.start
        while at < whole.held.end:
            end = min(whole.held.end, at - at % part_bytes + part_bytes)
            yield (
                replace(whole, start=whole.start + at - whole.held.start, held=ByteRange(at, end)),
                end == whole.held.end,
            )
            at = end
