"""Reading a composed object back once: every byte against the checksums of the objects it came from.

The checksums of its pieces are stretches of known length and CRC32C, which end where the blocks of the old
objects end, or the pieces do. Reading cuts the bytes at these lines and at those of the new object's own grid, so
one pass over the bytes both verifies the copy and yields a grid like any other object's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tierfs.checksum import combine, crc32c
from tierfs.chunkstore.protocol import ChunkStorage, ObjectPiece, StoredObject
from tierfs.errors import DataLoss
from tierfs.metadata.records import ChecksumRun
from tierfs.names import printable
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange

_READ_BYTES = 8 * MIB
"""Read at once: large enough for the full rate of one stream."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive bytes and their CRC32C."""

    length_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class CheckedPiece:
    """A piece of an object together with the runs that cover it."""

    piece: ObjectPiece
    object_bytes: int
    runs: tuple[ChecksumRun, ...]

    @property
    def range(self) -> ByteRange:
        """Where in the object it lies."""
        return ByteRange(self.piece.offset, self.piece.offset + self.piece.length_bytes)


class Mismatch(DataLoss):
    """Bytes are not those that their checksum was made of; `offset` tells where the stretch begins."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, remedy="run: tierfs fsck")
        self.offset = offset


def stretches_of(storage: ChunkStorage, checked: CheckedPiece) -> Iterator[Stretch]:
    """What is known of a piece's bytes. A block that the piece shares with others is read to find out.

    Raises Mismatch when such a block is damaged, and what the storage raises.
    """
    for block, crc in _blocks(checked):
        inside = block.intersect(checked.range)
        if inside == block:
            yield Stretch(block.length_bytes, crc)
            continue
        buffer = _checked_block(storage, checked.piece, block, crc)
        yield Stretch(inside.length_bytes, crc32c(buffer[inside.start - block.start : inside.end - block.start]))


def check_piece(storage: ChunkStorage, checked: CheckedPiece, near: int) -> None:
    """Check the block of the old object that holds byte `near` of a piece. Raises Mismatch when it is damaged."""
    for block, crc in _blocks(checked):
        if block.start <= checked.piece.offset + near < block.end:
            _checked_block(storage, checked.piece, block, crc)


def whole_crc(stretches: Iterable[Stretch]) -> int:
    """CRC32C of all stretches, one after another."""
    whole = 0
    for one in stretches:
        whole = combine(whole, one.crc32c, one.length_bytes)
    return whole


def read_back(
    storage: ChunkStorage, stored: StoredObject, expected: Sequence[Stretch], progress: Callable[[int], None]
) -> tuple[int, ...]:
    """The block CRCs of an object that consists of `expected`, after all of it was read and checked.

    Raises Mismatch with the offset in the object, and what the storage raises.
    """
    check = _Check(stored.name, expected)
    buffer = memoryview(bytearray(min(_READ_BYTES, stored.length_bytes)))
    for offset in range(0, stored.length_bytes, _READ_BYTES):
        view = buffer[: min(_READ_BYTES, stored.length_bytes - offset)]
        storage.read_into(stored.name, offset, view, if_match=stored.etag)
        check.feed(view)
        progress(len(view))
    return check.grid()


def _blocks(checked: CheckedPiece) -> Iterator[tuple[ByteRange, int]]:
    """The blocks that a piece touches, and their CRCs."""
    for run in checked.runs:
        for index in range(run.count):
            start = run.start + index * CRC_BLOCK_BYTES
            block = ByteRange(start, max(start, min(start + CRC_BLOCK_BYTES, checked.object_bytes)))
            if block.intersect(checked.range):
                yield block, run.crc(index)


def _checked_block(storage: ChunkStorage, piece: ObjectPiece, block: ByteRange, crc: int) -> memoryview:
    buffer = memoryview(bytearray(block.length_bytes))
    storage.read_into(piece.name, block.start, buffer, if_match=piece.etag or None)  # "": whatever version is there
    if crc32c(buffer) != crc:
        message = f"{printable(piece.name)} does not match its checksum at {block.start}"
        raise Mismatch(message, block.start)
    return buffer


class _Check:
    """Takes an object's bytes in order."""

    def __init__(self, name: str, expected: Sequence[Stretch]) -> None:
        self._name = name
        self._expected = iter(expected)
        self._stretch = Stretch(0, 0)
        self._stretch_crc = self._block_crc = 0
        self._left_bytes = 0
        """Of the stretch."""
        self._at = 0
        self._grid: list[int] = []

    def feed(self, data: memoryview) -> None:
        """Check the next bytes, as far as their stretches end."""
        done = 0
        while done < len(data):
            if not self._left_bytes:
                self._stretch = next(self._expected)
                self._left_bytes, self._stretch_crc = self._stretch.length_bytes, 0
            to_line = CRC_BLOCK_BYTES - self._at % CRC_BLOCK_BYTES
            size = min(self._left_bytes, to_line, len(data) - done)
            self._take(data[done : done + size])
            if size == to_line:
                self._end_block()
            done += size

    def grid(self) -> tuple[int, ...]:
        """The CRCs of all blocks, when everything was fed."""
        if self._at % CRC_BLOCK_BYTES:
            self._end_block()
        return tuple(self._grid)

    def _take(self, data: memoryview) -> None:
        self._stretch_crc = crc32c(data, self._stretch_crc)
        self._block_crc = crc32c(data, self._block_crc)
        self._at += len(data)
        self._left_bytes -= len(data)
        if not self._left_bytes and self._stretch_crc != self._stretch.crc32c:
            start = self._at - self._stretch.length_bytes
            raise Mismatch(f"{printable(self._name)}: the copy differs from its source at {start}", start)

    def _end_block(self) -> None:
        self._grid.append(self._block_crc)
        self._block_crc = 0
