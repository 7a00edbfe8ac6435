"""The bytes of an offload: neighbouring chunks as one Source, with every byte's CRC checked during the upload.

A chunk is a file or, after a concat, a part of one. Reads cut the bytes at the lines of two grids: that of the source
files and that of the new object. The CRCs of these cuts combine to both, so one pass over the bytes verifies the
source and yields the object's own grid. If a chunk begins or ends inside a block of its file, the rest of that block
is read too, because only a whole block can be checked.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tierfs.base.bytes.checksum import Buffer, GridBuilder, Stretch, cut_at_lines, joined
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import DataLoss, NotFound, TierfsError, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange
from tierfs.engine.chunkstore.local_files import ChunkFiles

_NOTHING = Stretch()

# Files that a source keeps open; a source with more opens each one per use: they are small.
_KEPT_OPEN = 64


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """One chunk: its file, the CRC32C of each committed block of the file, and the range that the chunk holds."""

    name: str
    file_length: int
    crcs: tuple[int, ...]
    held: ByteRange

    @property
    def length_bytes(self) -> int:
        """Bytes of the chunk."""
        return self.held.length_bytes

    def block(self, index: int) -> ByteRange:
        """Return the range of the file's block number `index`."""
        start = index * CRC_BLOCK_BYTES
        return ByteRange(start, min(start + CRC_BLOCK_BYTES, self.file_length))

    @property
    def blocks(self) -> range:
        """Numbers of the file's blocks that the chunk touches."""
        return range(self.held.start // CRC_BLOCK_BYTES, -(-self.held.end // CRC_BLOCK_BYTES))


@dataclass(slots=True)
class _SourcePart:
    start: int
    """In the object."""
    chunk: SourceChunk
    fd: int = -1
    """Below 0: the file is opened for each use."""

    @property
    def range(self) -> ByteRange:
        """In the object."""
        return ByteRange(self.start, self.start + self.chunk.length_bytes)

    @property
    def shift(self) -> int:
        """Difference between an offset in the file and the same byte's offset in the object."""
        return self.chunk.held.start - self.start


class DamagedChunk(DataLoss):
    """A source chunk contradicts its checksums, is too short or is missing; `index` is its number in the source."""

    def __init__(self, index: int, cause: TierfsError) -> None:
        super().__init__(str(cause), remedy=cause.remedy)
        self.index = index
        self.cause = cause


class ChunkSource:
    """A Source over chunk files and, after them, a tail of bytes in memory. Thread-safe; close it."""

    def __init__(self, files: ChunkFiles, chunks: Sequence[SourceChunk]) -> None:
        """Open the files, if they are few; each use of a missing one reports it."""
        self._files = files
        self._parts: list[_SourcePart] = []
        self._starts: list[int] = []
        self._cuts: dict[int, Stretch] = {}
        self._lock = threading.Lock()
        self._tail = memoryview(b"")
        self._crcs: list[Stretch] = []
        at = 0
        try:
            for chunk in chunks:
                part = _SourcePart(at, chunk)
                self._parts.append(part)
                self._starts.append(at)
                at += chunk.length_bytes
                if len(chunks) <= _KEPT_OPEN:
                    with suppress(NotFound):  # its use raises DamagedChunk: a missing file fails only its own chunk
                        part.fd = files.open_for_read(chunk.name)
        except BaseException:
            self.close()
            raise
        self._tail_start = at

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._tail_start + len(self._tail)

    def add_tail(self, data: Buffer) -> None:
        """Append bytes after those of the files; call it before any read of them."""
        self._tail = memoryview(data)

    def chunk_crcs(self) -> list[Stretch]:
        """Return the length and CRC32C of each chunk, from the files' checksums.

        Reads only the blocks that a chunk shares with others. Raises DamagedChunk for one that does not match.
        """
        if not self._crcs:
            self._crcs = [self._part_crc(index) for index in range(len(self._parts))]
        return self._crcs

    def crc32c(self) -> int:
        """Return the CRC32C of all bytes. Reads and raises as `chunk_crcs`."""
        return joined([*self.chunk_crcs(), Stretch.of(self._tail)]).crc32c

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Return exactly these bytes, in a buffer of their own. Raises DataLoss when a file is too short."""
        buffer = memoryview(bytearray(length_bytes))
        wanted = ByteRange(offset, offset + length_bytes)
        cuts: dict[int, Stretch] = {}
        for index in range(max(0, bisect_right(self._starts, offset) - 1), bisect_left(self._starts, wanted.end)):
            part = self._parts[index]
            held = part.range.intersect(wanted)
            view = held.of(buffer, offset)
            if not view:  # the read begins in the tail, after the last file
                continue
            with self._opened(index) as fd:
                _fill(part, fd, view, held.start + part.shift)
            cuts.update((held.start + at, cut) for at, cut in cut_at_lines(view, held.start, held.start + part.shift))
        tail = ByteRange(self._tail_start, self.length_bytes).intersect(wanted)
        if tail:
            view = tail.of(buffer, offset)
            view[:] = tail.of(self._tail, self._tail_start)
            cuts.update((tail.start + at, cut) for at, cut in cut_at_lines(view, tail.start))
        with self._lock:
            self._cuts.update(cuts)
        return buffer

    def verified_grid(self) -> GridBuilder:
        """Return the object's checksums after everything was read.

        Raises DamagedChunk, which names the file; Unavailable when the tail was not read as it is.
        """
        starts = sorted(self._cuts)
        for index, part in enumerate(self._parts):
            mine = starts[bisect_left(starts, part.start) : bisect_left(starts, part.range.end)]
            self._verify(index, part, [(start, self._cuts[start]) for start in mine])
        tail = joined(self._cuts[start] for start in starts[bisect_left(starts, self._tail_start) :])
        if tail != Stretch.of(self._tail):  # its bytes are in memory: no disk is to blame
            raise Unavailable("the bytes sent differ from the pack's index", remedy="retry")
        grid = GridBuilder()
        for start in starts:
            grid.add(self._cuts[start])
        return grid

    def damaged(self) -> list[DamagedChunk]:
        """Return every chunk that contradicts its checksums. Reads all files."""
        damages: list[DamagedChunk] = []
        for index in range(len(self._parts)):
            try:
                self._check(index)
            except DamagedChunk as exc:
                damages.append(exc)
        return damages

    def close(self) -> None:
        """Close the files; idempotent."""
        for part in self._parts:
            if part.fd >= 0:
                os.close(part.fd)
        self._parts = []

    def _check(self, index: int) -> None:
        part = self._parts[index]
        with self._opened(index) as fd:
            for block in part.chunk.blocks:
                if _read_crc(part, fd, part.chunk.block(block)).crc32c != _expected(part.chunk, block):
                    raise _damaged(part.chunk)

    def _verify(self, index: int, part: _SourcePart, cuts: Sequence[tuple[int, Stretch]]) -> None:
        """Compare the bytes read, completed to whole blocks at both ends, with the file's checksums."""
        by_block: dict[int, Stretch] = {}
        for start, cut in cuts:
            block = (start + part.shift) // CRC_BLOCK_BYTES
            by_block[block] = by_block.get(block, _NOTHING).then(cut)
        for block in part.chunk.blocks:
            before, inside, after = _pieces(part.chunk, block)
            read = whole = by_block.get(block, _NOTHING)
            if before or after:
                with self._opened(index) as fd:
                    whole = joined([_read_crc(part, fd, before), read, _read_crc(part, fd, after)])
            if read.length_bytes != inside.length_bytes or whole.crc32c != _expected(part.chunk, block):
                raise DamagedChunk(index, _damaged(part.chunk))

    def _part_crc(self, index: int) -> Stretch:
        try:
            return self._part_crc_or_loss(index)
        except DamagedChunk:
            raise
        except DataLoss as exc:
            raise DamagedChunk(index, exc) from exc

    def _part_crc_or_loss(self, index: int) -> Stretch:
        part = self._parts[index]
        if part.chunk.held == ByteRange(0, part.chunk.file_length):
            chunk = part.chunk
            return joined(Stretch(chunk.block(index).length_bytes, _expected(chunk, index)) for index in chunk.blocks)
        with self._opened(index) as fd:
            return joined(_checked_block(part, fd, block) for block in part.chunk.blocks)

    @contextmanager
    def _opened(self, index: int) -> Iterator[int]:
        """Yield the descriptor of a chunk's file. Raises DamagedChunk for any failure of the file."""
        part = self._parts[index]
        fd = part.fd
        try:
            if fd < 0:
                fd = self._files.open_for_read(part.chunk.name)
            try:
                yield fd
            finally:
                if part.fd < 0:
                    os.close(fd)
        except (DataLoss, NotFound) as exc:
            raise DamagedChunk(index, exc) from exc


def _pieces(chunk: SourceChunk, index: int) -> tuple[ByteRange, ByteRange, ByteRange]:
    """Split a block of the file into the bytes before, inside and after the chunk."""
    block = chunk.block(index)
    inside = block.intersect(chunk.held)
    return ByteRange(block.start, inside.start), inside, ByteRange(inside.end, block.end)


def _checked_block(part: _SourcePart, fd: int, index: int) -> Stretch:
    """Return length and CRC32C of the chunk's bytes in one block of the file. Raises DataLoss for a damaged block."""
    before, inside, after = _pieces(part.chunk, index)
    expected = _expected(part.chunk, index)
    if not before and not after:
        return Stretch(inside.length_bytes, expected)
    held = _read_crc(part, fd, inside)
    if joined([_read_crc(part, fd, before), held, _read_crc(part, fd, after)]).crc32c != expected:
        raise _damaged(part.chunk)
    return held


def _expected(chunk: SourceChunk, index: int) -> int:
    if index >= len(chunk.crcs):
        raise DataLoss(f"chunk file {chunk.name} has no checksum", remedy="run: tierfs check")
    return chunk.crcs[index]


def _read_crc(part: _SourcePart, fd: int, wanted: ByteRange) -> Stretch:
    """Return length and CRC32C of a range of a file."""
    if not wanted:
        return _NOTHING
    view = memoryview(bytearray(wanted.length_bytes))
    _fill(part, fd, view, wanted.start)
    return Stretch.of(view)


def _fill(part: _SourcePart, fd: int, view: memoryview, offset: int) -> None:
    """Fill a buffer from an offset of the file. Raises DataLoss if the file ends too early."""
    with map_os_errors(part.chunk.name):
        done = osio.read_all(fd, view, offset)
    if done < len(view):
        end = offset + done
        raise DataLoss(f"chunk file {part.chunk.name} ends at {end}, its record says {part.chunk.file_length}")


def _damaged(chunk: SourceChunk) -> DataLoss:
    return DataLoss(f"chunk file {chunk.name} does not match its checksums", remedy="run: tierfs check")
