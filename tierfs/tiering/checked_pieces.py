"""Pieces of cold objects that become a new one, with the checksums of their plain bytes, and proved reads of them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tierfs.base.bytes.checksum import Buffer, Stretch
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import MIB, ByteRange, PayloadEncoding, SegmentId
from tierfs.engine.chunkstore.protocol import ObjectPiece
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.verified import VerifiedReader, own_sum

# Plain bytes of one read of a source that is asked for less: the step in which bytes are compressed.
_STEP_BYTES = MIB


@dataclass(frozen=True, slots=True)
class CheckedPiece:
    """A piece of an object with the checksums of its blocks."""

    segment_id: SegmentId
    placed: PlacedChunk
    range: ByteRange
    """The plain bytes of the object that the piece is."""
    etag: str
    grid: Grid

    @property
    def is_plain(self) -> bool:
        """Whether the object is its plain bytes."""
        return self.placed.object.encoding is PayloadEncoding.RAW

    @property
    def is_whole(self) -> bool:
        """Whether the piece is all plain bytes of its object."""
        return self.range == ByteRange(0, self.placed.object.length)

    @property
    def stored(self) -> ObjectPiece:
        """The stored bytes, of a plain object or of all of a compressed one."""
        record = self.placed.object
        start, length_bytes = self.range.start, self.range.length_bytes
        if not self.is_plain:
            assert self.is_whole
            start, length_bytes = 0, record.stored_bytes
        return ObjectPiece(record.name, start, length_bytes, self.etag, may_move=not record.foreign)

    def read(self, reader: VerifiedReader, wanted: ByteRange) -> memoryview:
        """Return plain bytes of the object, inside the piece and proved.

        Raises BlockDiffers if they are damaged, and the chunk is suspect then; and storage errors.
        """
        try:
            return reader.read(self.placed.object, wanted, self.grid.cut(wanted), own_sum(self.placed))
        except BlockDiffers:
            reader.suspect(self.segment_id, self.placed)
            raise

    def stretches(self, reader: VerifiedReader) -> Iterator[Stretch]:
        """Yield length and CRC32C of its stretches. A block that it shares with others is read. Raises as `read`."""
        for block in self.grid.blocks():
            if self.range.contains(block.range):
                yield Stretch(block.range.length_bytes, int.from_bytes(block.crcs, "big"))
            else:
                yield Stretch.of(self.read(reader, block.range.intersect(self.range)))

    def check(self, reader: VerifiedReader, near: int) -> None:
        """Check the block of the old object that holds byte `near` of the piece. Raises as `read`."""
        for block in self.grid.blocks():
            if block.range.start <= self.range.start + near < block.range.end:
                self.read(reader, block.range.intersect(self.range))


class ProvedSource:
    """A Source of the plain bytes of pieces, each read proved. Thread-safe; each thread keeps the bytes of one step."""

    def __init__(self, reader: VerifiedReader, pieces: Sequence[CheckedPiece]) -> None:
        """`pieces` are in the order of their bytes, none empty."""
        self._reader = reader
        self._pieces = pieces
        self._starts = list(accumulate((piece.range.length_bytes for piece in pieces), initial=0))
        self._ahead = threading.local()
        """A thread's last bytes and their offset."""

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._starts[-1]

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """See Source.read. Raises as CheckedPiece.read."""
        start, held = getattr(self._ahead, "step", (0, memoryview(b"")))
        if not start <= offset <= offset + length_bytes <= start + len(held):
            size_bytes = max(length_bytes, min(_STEP_BYTES, self.length_bytes - offset))
            start, held = offset, self._proved(ByteRange(offset, offset + size_bytes))
            self._ahead.step = start, held
        return held[offset - start :][:length_bytes]

    def _proved(self, wanted: ByteRange) -> memoryview:
        parts: list[memoryview] = []
        at = wanted.start
        while at < wanted.end:
            index = bisect_right(self._starts, at) - 1
            piece, end = self._pieces[index], min(wanted.end, self._starts[index + 1])
            shift = piece.range.start - self._starts[index]
            parts.append(piece.read(self._reader, ByteRange(at + shift, end + shift)))
            at = end
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
