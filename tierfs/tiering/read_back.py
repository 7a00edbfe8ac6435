"""Read a composed object back once and check every byte against the checksums of its source objects.

The checksums of its pieces are stretches of known length and CRC32C, which end at the ends of the old objects' blocks
or of the pieces. Reading cuts the bytes at these lines and at those of the new object's own grid, so one pass over
the bytes verifies the copy and yields a grid like any other object's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tierfs.base.bytes.checksum import GridBuilder, Stretch, cut_at_lines
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, SegmentId
from tierfs.engine.chunkstore.protocol import ChunkStorage, ObjectPiece, StoredObject
from tierfs.engine.chunkstore.sequential_read import read_steps
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.verified import VerifiedReader, own_sum


@dataclass(frozen=True, slots=True)
class CheckedPiece:
    """A piece of an object with the checksums of its blocks."""

    piece: ObjectPiece
    segment_id: SegmentId
    placed: PlacedChunk
    grid: Grid

    @property
    def range(self) -> ByteRange:
        """Range of the object that the piece is."""
        return ByteRange(self.piece.offset, self.piece.offset + self.piece.length_bytes)

    def read(self, reader: VerifiedReader, block: Grid) -> memoryview:
        """Return the piece's bytes in one of its blocks.

        Raises BlockDiffers if they are damaged, and the chunk is suspect then; and storage errors.
        """
        try:
            return reader.read(self.placed.object, block.range.intersect(self.range), block, own_sum(self.placed))
        except BlockDiffers:
            reader.suspect(self.segment_id, self.placed)
            raise

    def stretches(self, reader: VerifiedReader) -> Iterator[Stretch]:
        """Yield length and CRC32C of its stretches. A block that it shares with others is read. Raises as `read`."""
        for block in self.grid.blocks():
            if self.range.contains(block.range):
                yield Stretch(block.range.length_bytes, int.from_bytes(block.crcs, "big"))
            else:
                yield Stretch.of(self.read(reader, block))

    def check(self, reader: VerifiedReader, near: int) -> None:
        """Check the block of the old object that holds byte `near` of the piece. Raises as `read`."""
        for block in self.grid.blocks():
            if block.range.start <= self.piece.offset + near < block.range.end:
                self.read(reader, block)


class Mismatch(DataLoss):
    """Bytes do not match their checksum; `offset` is the start of their stretch."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message, remedy="run: tierfs check")
        self.offset = offset


def read_back(
    storage: ChunkStorage, stored: StoredObject, expected: Sequence[Stretch], progress: Callable[[int], None]
) -> GridBuilder:
    """Read an object that should consist of `expected`, check all of it, and return its checksums.

    Raises Mismatch with the offset in the object, and storage errors.
    """
    check = _Check(stored.name, expected)
    for view in read_steps(storage, stored):
        check.feed(view)
        progress(len(view))
    return check.grid


class _Check:
    """Checker of an object's bytes, fed in order; compares them at the end of each expected stretch."""

    def __init__(self, name: str, expected: Sequence[Stretch]) -> None:
        self.grid = GridBuilder()
        self._name = name
        self._expected = iter(expected)
        self._wanted = self._fed = Stretch()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes and check the stretches that end in them. Raises Mismatch."""
        while data:
            if self._fed.length_bytes == self._wanted.length_bytes:
                self._wanted, self._fed = next(self._expected), Stretch()
            part = data[: self._wanted.length_bytes - self._fed.length_bytes]
            for _, cut in cut_at_lines(part, self.grid.length_bytes):
                self.grid.add(cut)
                self._fed = self._fed.then(cut)
            if self._fed.length_bytes == self._wanted.length_bytes and self._fed != self._wanted:
                start = self.grid.length_bytes - self._wanted.length_bytes
                raise Mismatch(f"{printable(self._name)}: the copy differs from its source at {start}", start)
            data = data[len(part) :]
