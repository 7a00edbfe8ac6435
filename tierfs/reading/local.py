"""Read chunk files: from the page cache on the loop, else by a thread.

`preadv2(RWF_NOWAIT)` into page-aligned pooled buffers; the loop never waits for the disk and no chunk is ever mapped (a
cold page would stop every thread, a cut file is SIGBUS). Each 128 KiB block is checked on its first read in this
process, against the CRCs of the newest commit; until then whole blocks are read.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import replace

import trio

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import os_errors, osio
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import DataLoss, NotFound, TierfsError
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, ObjectId
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChecksumRun
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.reading.fetch.buffers import BufferPool, PooledBuffer
from tierfs.reading.fetch.grid import Grid, grid_of, run_matches

# Objects whose checked blocks are remembered: 64 bytes each for 64 MiB chunks; older ones are checked again.
_CHECKED_OBJECTS = 65_536

# Buffers for local reads; one 1 MiB request needs at most 2 MiB of it for an instant.
_READ_BUFFERS_BYTES = 64 * MIB

# Period of looking for deleted files among the open ones: one system call for each, 256 take 0.1 ms.
_LET_GO_S = 1.0


@dataclass(slots=True)
class _OpenChunkFile:
    fd: int
    users: int = 0
    dropped: bool = False


class LocalReader:
    """Reads local chunk files for one process. On the trio loop."""

    def __init__(self, files: ChunkFiles, open_files: int, threads: int, metrics: MetricSink) -> None:
        self._files = files
        self._metrics = metrics
        self._limit = osio.open_files_within_limit(open_files)
        self._limiter = trio.CapacityLimiter(threads)
        self._open: OrderedDict[str, _OpenChunkFile] = OrderedDict()
        self._checked: OrderedDict[ObjectId, bytearray] = OrderedDict()
        self._pool = BufferPool(_READ_BUFFERS_BYTES)
        self._lent: list[PooledBuffer] = []
        self._page_cache = osio.PageCache()

    def is_checked(self, object_id: ObjectId, wanted: ByteRange) -> bool:
        """Return whether every block that `wanted` touches was checked before."""
        checked = self._checked.get(object_id)
        if checked is None:
            return False
        first, last = wanted.start // CRC_BLOCK_BYTES, (wanted.end - 1) // CRC_BLOCK_BYTES
        return last < len(checked) and 0 not in checked[first : last + 1]

    def read_now(self, name: str, wanted: ByteRange) -> memoryview | None:
        """Return the bytes if they are in the page cache, without waiting and without checking; else None.

        The view is valid until the next call. Raises NotFound for a missing file.
        """
        self._take_back()
        if not self._page_cache.tells:
            return None
        buffer = self._buffer(wanted.length_bytes)
        self._lent.append(buffer)
        view = buffer.view[: wanted.length_bytes]
        done = self._page_cache.read(self._opened(name).fd, view, wanted.start)
        return view if done == wanted.length_bytes else None

    def mark_checked(self, object_id: ObjectId, checked: ByteRange) -> None:
        """Remember that whole blocks match; a partial one may still grow and is checked each time."""
        marks = self._checked.setdefault(object_id, bytearray())
        self._checked.move_to_end(object_id)
        while len(self._checked) > _CHECKED_OBJECTS:
            self._checked.popitem(last=False)
        first, end = -(-checked.start // CRC_BLOCK_BYTES), checked.end // CRC_BLOCK_BYTES
        if end > len(marks):
            marks.extend(bytes(end - len(marks)))
        marks[first:end] = b"\1" * (end - first)

    async def read(self, object_id: ObjectId, name: str, wanted: ByteRange, grid: Grid | None) -> memoryview:
        """Return bytes of a chunk file; `grid` holds the blocks to check, None if all were checked.

        The view is valid until the next call. Raises NotFound for a missing file, DataLoss for a short one
        or for bytes that do not match their checksum.
        """
        self._take_back()
        blocks = wanted if grid is None else grid.range
        buffer = self._buffer(blocks.length_bytes)
        try:
            await self._fill(name, buffer.view[: blocks.length_bytes], blocks.start)
            if grid is not None:
                self._check(object_id, name, grid, buffer.view)
        except BaseException:
            self._pool.give_back(buffer)
            raise
        self._lent.append(buffer)
        return wanted.of(buffer.view, blocks.start)

    async def let_go(self) -> None:
        """Until cancelled: close what was deleted. Bytes of an evicted file take room while the file is open."""
        while True:
            await trio.sleep(_LET_GO_S)
            self.close_deleted()

    def close_deleted(self) -> None:
        """Close files that have no name any more."""
        for name in [name for name, file in self._open.items() if not os.fstat(file.fd).st_nlink]:
            self._drop(self._open.pop(name))

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            os.close(file.fd)
        self._open.clear()

    def _buffer(self, length_bytes: int) -> PooledBuffer:
        buffer = self._pool.take(length_bytes)
        if buffer is None:
            self._pool.budget_bytes += _READ_BUFFERS_BYTES  # each request in flight holds one; requests are bounded
            buffer = self._pool.take(length_bytes)
        assert buffer is not None
        return buffer

    def _take_back(self) -> None:
        """Take back lent buffers: their reply was written before any other task could run."""
        for buffer in self._lent:
            self._pool.give_back(buffer)
        self._lent.clear()

    async def _fill(self, name: str, view: memoryview, offset: int) -> None:
        file = self._opened(name)
        file.users += 1
        try:
            done = self._page_cache.read(file.fd, view, offset)
            if done < len(view):
                await trio.to_thread.run_sync(
                    _fill_blocking, name, file.fd, view[done:], offset + done, limiter=self._limiter
                )
        finally:
            file.users -= 1
            if file.dropped and file.users == 0:
                os.close(file.fd)

    def _opened(self, name: str) -> _OpenChunkFile:
        file = self._open.get(name)
        if file is None:
            file = self._open[name] = _OpenChunkFile(self._open_file(name))
            while len(self._open) > self._limit:
                self._drop(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(name)
        return file

    def _open_file(self, name: str) -> int:
        """Open a file, in the place of others where the process has too many open."""
        while True:
            try:
                return self._files.open_for_read(name)
            except TierfsError as exc:
                if not self._open or not os_errors.lacks_files(exc):
                    raise
                self._drop(self._open.popitem(last=False)[1])

    def _drop(self, file: _OpenChunkFile) -> None:
        if file.users == 0:
            os.close(file.fd)
        else:
            file.dropped = True

    def _check(self, object_id: ObjectId, name: str, grid: Grid, view: memoryview) -> None:
        bad, _ = grid.first_bad(view, grid.range.start, 0, grid.range.end)
        if bad is not None:
            self._metrics.count(MetricName.CHECKSUM_FAILURES, source="local")
            raise DataLoss(f"chunk file {name}: bytes {bad.start} to {bad.end} do not match their checksum")
        self.mark_checked(object_id, grid.range)


def _fill_blocking(name: str, fd: int, view: memoryview, offset: int) -> None:
    with map_os_errors(name):
        done = osio.read_all(fd, view, offset)
        if done < len(view):
            raise DataLoss(f"chunk file {name} ends at {offset + done}; {len(view) - done} more bytes were committed")


class LocalPath:
    """The local path of one open handle; remembers the checksums used last."""

    def __init__(self, metadata: MetadataStore, local: LocalReader) -> None:
        self._metadata = metadata
        self._local = local
        self._run: ChecksumRun | None = None

    def read_now(self, placed: PlacedChunk, held: ByteRange, *, growing: bool) -> memoryview | None:
        """Return bytes of a local chunk from the page cache; `growing` for the active chunk of its segment.

        Returns None in every other case: `read` handles those, and reports errors.
        """
        try:
            if self._local.is_checked(placed.object.id, held):
                return self._local.read_now(placed.object.name, held)
            # A chunk that grows: its last checksum must be read together with its length.
            return None if growing else self._checked_now(placed, held)
        except TierfsError:
            return None

    async def read(self, placed: PlacedChunk, held: ByteRange) -> memoryview:
        """Return bytes of a local chunk. Raises NotFound when it was evicted, DataLoss for wrong or missing bytes."""
        grid = self._grid_to_check(placed, held)
        return await self._local.read(placed.object.id, placed.object.name, held, grid)

    def _checked_now(self, placed: PlacedChunk, held: ByteRange) -> memoryview | None:
        start = held.start - held.start % CRC_BLOCK_BYTES
        end = min(-(-held.end // CRC_BLOCK_BYTES) * CRC_BLOCK_BYTES, placed.object.length)
        run = self._run
        if run is None or run.object_id != placed.object.id or not run.covers(start, end):
            with self._metadata.read() as txn:
                stored = checksums.run_at(txn, placed.object.id, start)
            if stored is None or not stored.covers(start, end):
                return None
            run = self._run = replace(stored, object_id=placed.object.id)
        view = self._local.read_now(placed.object.name, ByteRange(start, end))
        if view is None or not run_matches(run, view, start):
            return None
        self._local.mark_checked(placed.object.id, ByteRange(start, end))
        return held.of(view, start)

    def _grid_to_check(self, placed: PlacedChunk, held: ByteRange) -> Grid | None:
        """Return the blocks of a local chunk not checked yet, with the CRCs of the newest commit; None if all were."""
        if self._local.is_checked(placed.object.id, held):
            return None
        with self._metadata.read() as txn:
            record = txn.get(OBJECTS, tables.u64(placed.object.id))
            if record is None:
                raise NotFound(f"chunk file {placed.object.name} was evicted")
            runs = checksums.runs_covering(txn, placed.object.id, held)
            return grid_of(runs, held, record.length)
