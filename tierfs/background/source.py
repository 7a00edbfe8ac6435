"""The bytes of an offload: neighbouring chunks as one Source, every byte's CRC checked on the way.

A chunk is a file or, after a concat, a part of one. Reads cut the bytes where either grid has a line: that
of the files they come from, and that of the object they become. The CRCs of these cuts combine to both, so
one pass over the bytes both verifies the source and yields the object's own grid. Where a chunk begins or
ends inside a block of its file, the rest of that block is read besides, to check the block at all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from tierfs.checksum import Buffer, combine, crc32c
from tierfs.chunkstore.chunkfiles import ChunkFiles, map_os_errors
from tierfs.errors import DataLoss
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


@dataclass(frozen=True, slots=True)
class _Part:
    start: int
    """In the object."""
    fd: int
    chunk: SourceChunk

    @property
    def end(self) -> int:
        return self.start + self.chunk.length_bytes

    @property
    def shift(self) -> int:
        """From offsets in the object to offsets in the file."""
        return self.chunk.held.start - self.start


@dataclass(frozen=True, slots=True)
class _Cut:
    """Consecutive bytes and their CRC32C."""

    length: int
    crc: int

    def then(self, other: _Cut) -> _Cut:
        return _Cut(self.length + other.length, combine(self.crc, other.crc, other.length))


_NOTHING = _Cut(0, 0)


class ChunkSource:
    """A Source over chunk files. Thread-safe; close it."""

    def __init__(self, files: ChunkFiles, chunks: Sequence[SourceChunk]) -> None:
        """Open the files; raises NotFound."""
        self._parts: list[_Part] = []
        self._cuts: dict[int, _Cut] = {}
        self._lock = threading.Lock()
        start = 0
        try:
            for chunk in chunks:
                self._parts.append(_Part(start, files.open_for_read(chunk.name), chunk))
                start += chunk.length_bytes
        except BaseException:
            self.close()
            raise
        self._length = start

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._length

    def crc32c(self) -> int:
        """CRC32C of all bytes, from the files' checksums.

        Only blocks that a chunk shares with others are read. Raises DataLoss for one that does not match.
        """
        return _joined(_checked_block(part, index) for part in self._parts for index in part.chunk.blocks).crc

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Exactly these bytes, in a buffer of their own. Raises DataLoss when a file is too short."""
        buffer = memoryview(bytearray(length_bytes))
        end = offset + length_bytes
        cuts: dict[int, _Cut] = {}
        for part in self._parts:
            start, stop = max(offset, part.start), min(end, part.end)
            if start < stop:
                view = buffer[start - offset : stop - offset]
                _fill(part, view, start + part.shift)
                cuts.update(_cut_crcs(part, view, start))
        with self._lock:
            self._cuts.update(cuts)
        return buffer

    def verified_grid(self) -> tuple[int, ...]:
        """The object's block CRCs, once everything was read. Raises DataLoss naming a file that is damaged."""
        cuts = sorted(self._cuts.items())
        for part in self._parts:
            self._verify(part, [(start, cut) for start, cut in cuts if part.start <= start < part.end])
        return tuple(block.crc for block in _blocks([cut for _, cut in cuts]))

    def close(self) -> None:
        """Close the files; idempotent."""
        for part in self._parts:
            os.close(part.fd)
        self._parts = []

    def _verify(self, part: _Part, cuts: Sequence[tuple[int, _Cut]]) -> None:
        """Compare what was read, with the rest of the blocks at both ends, to the file's checksums."""
        by_block: dict[int, _Cut] = {}
        for start, cut in cuts:
            index = (start + part.shift) // CRC_BLOCK_BYTES
            by_block[index] = by_block.get(index, _NOTHING).then(cut)
        for index in part.chunk.blocks:
            before, inside, after = _pieces(part.chunk, index)
            read = by_block.get(index, _NOTHING)
            whole = _joined([_read_crc(part, before), read, _read_crc(part, after)])
            if read.length != inside.length_bytes or whole.crc != _expected(part.chunk, index):
                raise _damaged(part.chunk)


def _pieces(chunk: SourceChunk, index: int) -> tuple[ByteRange, ByteRange, ByteRange]:
    """A block of the file: what lies in it before the chunk, of the chunk, and behind the chunk."""
    block = chunk.block(index)
    inside = block.intersect(chunk.held)
    return ByteRange(block.start, inside.start), inside, ByteRange(inside.end, block.end)


def _checked_block(part: _Part, index: int) -> _Cut:
    """The chunk's bytes in one block of the file."""
    before, inside, after = _pieces(part.chunk, index)
    expected = _expected(part.chunk, index)
    if not before and not after:
        return _Cut(inside.length_bytes, expected)
    found = _read_crc(part, inside)
    if _joined([_read_crc(part, before), found, _read_crc(part, after)]).crc != expected:
        raise _damaged(part.chunk)
    return found


def _expected(chunk: SourceChunk, index: int) -> int:
    if index >= len(chunk.crcs):
        raise DataLoss(f"chunk file {chunk.name} has no checksum", remedy="run: tierfs fsck")
    return chunk.crcs[index]


def _read_crc(part: _Part, wanted: ByteRange) -> _Cut:
    """Length and CRC32C of some bytes of a file."""
    if not wanted:
        return _NOTHING
    view = memoryview(bytearray(wanted.length_bytes))
    _fill(part, view, wanted.start)
    return _Cut(wanted.length_bytes, crc32c(view))


def _fill(part: _Part, view: memoryview, offset: int) -> None:
    """Read from an offset of the file."""
    with map_os_errors(part.chunk.name):
        while view:
            count = os.preadv(part.fd, [view], offset)
            if count == 0:
                raise DataLoss(
                    f"chunk file {part.chunk.name} ends at {offset}, its record says {part.chunk.file_length}"
                )
            view, offset = view[count:], offset + count


def _cut_crcs(part: _Part, view: memoryview, start: int) -> Iterator[tuple[int, _Cut]]:
    """Object offset -> length and CRC of each stretch between two grid lines."""
    at, end = start, start + len(view)
    while at < end:
        to_object_line = CRC_BLOCK_BYTES - at % CRC_BLOCK_BYTES
        to_file_line = CRC_BLOCK_BYTES - (at + part.shift) % CRC_BLOCK_BYTES
        size = min(to_object_line, to_file_line, end - at)
        yield at, _Cut(size, crc32c(view[at - start : at - start + size]))
        at += size


def _blocks(cuts: Sequence[_Cut]) -> Iterator[_Cut]:
    """The object's 128 KiB blocks, combined from consecutive cuts."""
    block = _NOTHING
    for cut in cuts:
        block = block.then(cut)
        if block.length == CRC_BLOCK_BYTES:
            yield block
            block = _NOTHING
    if block.length:
        yield block


def _joined(cuts: Iterator[_Cut] | Sequence[_Cut]) -> _Cut:
    return reduce(_Cut.then, cuts, _NOTHING)


def _damaged(chunk: SourceChunk) -> DataLoss:
    return DataLoss(f"chunk file {chunk.name} does not match its checksums", remedy="run: tierfs fsck")
