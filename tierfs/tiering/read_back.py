"""Read a composed object back once and check every byte against the checksums of its source objects.

The checksums of its pieces are stretches of known length and CRC32C, which end at the ends of the old objects' blocks
or of the pieces. Reading cuts the bytes at these lines and at those of the new object's own grid, so one pass over
the bytes verifies the copy and yields a grid like any other object's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tierfs.checksum import GridBuilder, Stretch, crc32c, cut_at_lines
from tierfs.chunkstore.protocol import ChunkStorage, ObjectPiece, StoredObject
from tierfs.errors import DataLoss
from tierfs.metadata.records import ChecksumRun
from tierfs.names import printable
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange

_READ_BYTES = 8 * MIB
"""Bytes per read: large enough for the full rate of one stream."""


@dataclass(frozen=True, slots=True)
class CheckedPiece:
    """A piece of an object together with the runs that cover it."""

    piece: ObjectPiece
    object_bytes: int
    runs: tuple[ChecksumRun, ...]

    @property
    def range(self) -> ByteRange:
        """Range of the object that the piece is."""
        return ByteRange(self.piece.offset, self.piece.offset + self.piece.length_bytes)


class Mismatch(DataLoss):
    """Bytes do not match their checksum; `offset` is the start of their stretch."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, remedy="run: tierfs fsck")
        self.offset = offset


def stretches_of(storage: ChunkStorage, checked: CheckedPiece) -> Iterator[Stretch]:
    """Yield length and CRC32C of a piece's stretches. A block that the piece shares with others is read.

    Raises Mismatch when such a block is damaged, and storage errors.
    """
    for block, crc in _blocks(checked):
        inside = block.intersect(checked.range)
        if inside == block:
            yield Stretch(block.length_bytes, crc)
            continue
        buffer = _checked_block(storage, checked.piece, block, crc)
        yield Stretch.of(buffer[inside.start - block.start : inside.end - block.start])


def check_piece(storage: ChunkStorage, checked: CheckedPiece, near: int) -> None:
    """Check the block of the old object that holds byte `near` of a piece. Raises Mismatch when it is damaged."""
    for block, crc in _blocks(checked):
        if block.start <= checked.piece.offset + near < block.end:
            _checked_block(storage, checked.piece, block, crc)


def read_back(
    storage: ChunkStorage, stored: StoredObject, expected: Sequence[Stretch], progress: Callable[[int], None]
) -> GridBuilder:
    """Read an object that should consist of `expected`, check all of it, and return its checksums.

    Raises Mismatch with the offset in the object, and storage errors.
    """
    check = _Check(stored.name, expected)
    buffer = memoryview(bytearray(min(_READ_BYTES, stored.length_bytes)))
    for offset in range(0, stored.length_bytes, _READ_BYTES):
        view = buffer[: min(_READ_BYTES, stored.length_bytes - offset)]
        storage.read_into(stored.name, offset, view, if_match=stored.etag)
        check.feed(view)
        progress(len(view))
    return check.grid


def _blocks(checked: CheckedPiece) -> Iterator[tuple[ByteRange, int]]:
    """Yield the blocks that a piece touches, with their CRCs."""
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
    """Checker of an object's bytes, fed in order; compares them at the end of each expected stretch."""

    def __init__(self, name: str, expected: Sequence[Stretch]) -> None:
        self.grid = GridBuilder()
        self._name = name
        self._expected = iter(expected)
        self._wanted = self._found = Stretch()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes and check the stretches that end in them. Raises Mismatch."""
        while data:
            if self._found.length_bytes == self._wanted.length_bytes:
                self._wanted, self._found = next(self._expected), Stretch()
            part = data[: self._wanted.length_bytes - self._found.length_bytes]
            for _, cut in cut_at_lines(part, self.grid.length_bytes):
                self.grid.add(cut)
                self._found = self._found.then(cut)
            if self._found.length_bytes == self._wanted.length_bytes and self._found != self._wanted:
                start = self.grid.length_bytes - self._wanted.length_bytes
                raise Mismatch(f"{printable(self._name)}: the copy differs from its source at {start}", start)
            data = data[len(part) :]
