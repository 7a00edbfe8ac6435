"""The bytes of an offload: neighbouring chunks as one Source, every byte's CRC checked on the way.

A chunk is a file or, after a concat, a part of one. Reads cut the bytes where either grid has a line: that
of the files they come from, and that of the object they become. The CRCs of these cuts combine to both, so
one pass over the bytes both verifies the source and yields the object's own grid. Where a chunk begins or
ends inside a block of its file, the rest of that block is read besides, to check the block at all.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tierfs import osio
from tierfs.checksum import Buffer, GridBuilder, Stretch, cut_at_lines, joined
from tierfs.chunkstore.local_files import ChunkFiles
from tierfs.errors import DataLoss, NotFound, TierfsError
from tierfs.osio import map_os_errors
from tierfs.types import CRC_BLOCK_BYTES, ByteRange


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """One chunk: its file with the CRC32C of each of its committed blocks, and which of its bytes it is."""

    name: str
    file_length: int
    crcs: tuple[int, ...]
    held: ByteRange

    @property
    def length_bytes(self) -> int:
        """Bytes of the chunk."""
        return self.held.length_bytes

    def block(self, index: int) -> ByteRange:
        """The file's block number `index`."""
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
    """Below 0: opened for each use."""

    @property
    def end(self) -> int:
        return self.start + self.chunk.length_bytes

    @property
    def shift(self) -> int:
        """From offsets in the object to offsets in the file."""
        return self.chunk.held.start - self.start


_NOTHING = Stretch()

_KEPT_OPEN = 64
"""Files of a source kept open; those of one with more are opened for each use: they are small."""


class DamagedChunk(DataLoss):
    """A chunk of a source is not what its checksums say, or too short, or gone; `index` counts the source's chunks."""

    def __init__(self, index: int, cause: TierfsError) -> None:
        super().__init__(str(cause), remedy=cause.remedy)
        self.index = index
        self.cause = cause


class ChunkSource:
    """A Source over chunk files, and bytes of memory behind them. Thread-safe; close it."""

    def __init__(self, files: ChunkFiles, chunks: Sequence[SourceChunk], *, keeps_open: bool = True) -> None:
        """Open the files; raises NotFound. Without `keeps_open` each use opens them, and tells what is missing."""
        self._files = files
        self._parts: list[_SourcePart] = []
        self._starts: list[int] = []
        self._cuts: dict[int, Stretch] = {}
        self._lock = threading.Lock()
        self._tail = memoryview(b"")
        self._known: list[Stretch] = []
        at = 0
        keeps_open = keeps_open and len(chunks) <= _KEPT_OPEN
        try:
            for chunk in chunks:
                fd = files.open_for_read(chunk.name) if keeps_open else -1
                self._parts.append(_SourcePart(at, chunk, fd))
                self._starts.append(at)
                at += chunk.length_bytes
        except BaseException:
            self.close()
            raise
        self._tail_start = at

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._tail_start + len(self._tail)

    def add_tail(self, data: Buffer) -> None:
        """Bytes behind those of the files, before any is read."""
        self._tail = memoryview(data)

    def chunk_crcs(self) -> list[Stretch]:
        """Length and CRC32C of each chunk, from the files' checksums.

        Only blocks that a chunk shares with others are read. Raises DamagedChunk for one that does not match.
        """
        if not self._known:
            self._known = [self._part_crc(index) for index in range(len(self._parts))]
        return self._known

    def crc32c(self) -> int:
        """CRC32C of all bytes; as `chunk_crcs`."""
        return joined([*self.chunk_crcs(), Stretch.of(self._tail)]).crc32c

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Exactly these bytes, in a buffer of their own. Raises DataLoss when a file is too short."""
        buffer = memoryview(bytearray(length_bytes))
        end = offset + length_bytes
        cuts: dict[int, Stretch] = {}
        for index in range(max(0, bisect_right(self._starts, offset) - 1), bisect_left(self._starts, end)):
            part = self._parts[index]
            start, stop = max(offset, part.start), min(end, part.end)
            view = buffer[start - offset : stop - offset]
            with self._opened(index) as fd:
                _fill(part, fd, view, start + part.shift)
            cuts.update((start + at, cut) for at, cut in cut_at_lines(view, start, start + part.shift))
        if end > self._tail_start:
            start = max(offset, self._tail_start)
            view = buffer[start - offset :]
            view[:] = self._tail[start - self._tail_start : end - self._tail_start]
            cuts.update((start + at, cut) for at, cut in cut_at_lines(view, start))
        with self._lock:
            self._cuts.update(cuts)
        return buffer

    def verified_grid(self) -> GridBuilder:
        """The object's checksums, once everything was read. Raises DamagedChunk naming a file that is damaged."""
        starts = sorted(self._cuts)
        for index, part in enumerate(self._parts):
            mine = starts[bisect_left(starts, part.start) : bisect_left(starts, part.end)]
            self._verify(index, part, [(start, self._cuts[start]) for start in mine])
        grid = GridBuilder()
        for start in starts:
            grid.add(self._cuts[start])
        return grid

    def damaged(self) -> list[DamagedChunk]:
        """Every chunk that is not what its checksums say. Reads all files."""
        found: list[DamagedChunk] = []
        for index in range(len(self._parts)):
            try:
                self._check(index)
            except DamagedChunk as exc:
                found.append(exc)
        return found

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
        """Compare what was read, with the rest of the blocks at both ends, to the file's checksums."""
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
        """The descriptor of a chunk's file. What is wrong with it is raised as DamagedChunk."""
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
    """A block of the file: what lies in it before the chunk, of the chunk, and behind the chunk."""
    block = chunk.block(index)
    inside = block.intersect(chunk.held)
    return ByteRange(block.start, inside.start), inside, ByteRange(inside.end, block.end)


def _checked_block(part: _SourcePart, fd: int, index: int) -> Stretch:
    """The chunk's bytes in one block of the file."""
    before, inside, after = _pieces(part.chunk, index)
    expected = _expected(part.chunk, index)
    if not before and not after:
        return Stretch(inside.length_bytes, expected)
    found = _read_crc(part, fd, inside)
    if joined([_read_crc(part, fd, before), found, _read_crc(part, fd, after)]).crc32c != expected:
        raise _damaged(part.chunk)
    return found


def _expected(chunk: SourceChunk, index: int) -> int:
    if index >= len(chunk.crcs):
        raise DataLoss(f"chunk file {chunk.name} has no checksum", remedy="run: tierfs fsck")
    return chunk.crcs[index]


def _read_crc(part: _SourcePart, fd: int, wanted: ByteRange) -> Stretch:
    """Length and CRC32C of some bytes of a file."""
    if not wanted:
        return _NOTHING
    view = memoryview(bytearray(wanted.length_bytes))
    _fill(part, fd, view, wanted.start)
    return Stretch.of(view)


def _fill(part: _SourcePart, fd: int, view: memoryview, offset: int) -> None:
    """Read from an offset of the file."""
    with map_os_errors(part.chunk.name):
        done = osio.read_all(fd, view, offset)
    if done < len(view):
        end = offset + done
        raise DataLoss(f"chunk file {part.chunk.name} ends at {end}, its record says {part.chunk.file_length}")


def _damaged(chunk: SourceChunk) -> DataLoss:
    return DataLoss(f"chunk file {chunk.name} does not match its checksums", remedy="run: tierfs fsck")
