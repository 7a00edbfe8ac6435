"""Compare the beginning of an input with bytes that a segment has. Cold bytes are not downloaded for it.

Bytes are known by their CRC32Cs: each block of 128 KiB of an object has one, and a chunk may have its own. Bytes of a
block that has others too, as where the input begins inside of it, are read: less than a block of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tierfs.app.inputs import InputSource
from tierfs.app.store import Store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import streams
from tierfs.upkeep.check.scrub.pieces import ScrubPiece, pieces

# A pipe that gives nothing for so long is compared as far as it is known: a log that was rotated may take an hour to
# fill a block (guess).
_STALL_S = 0.5


@dataclass(slots=True)
class Compared:
    """The result of a comparison, which took the compared bytes from its input."""

    taken_bytes: int = 0
    """Fewer than wanted if the input ended, or differs."""
    compared_bytes: int = 0
    """The others are in no copy here: they were dropped or lost, or their tier cannot be reached."""
    difference: ByteRange | None = None
    """The first part of the segment in which the input differs."""
    why: TierfsError | None = None
    """The error by which bytes that are in a copy could not be compared."""


def members_before(txn: ReadTransaction, segment: SegmentRecord, start: int) -> list[SegmentRecord]:
    """Return the members of a stream that have its bytes from `start` up to the end of `segment`, in order."""
    members = [segment]
    while members[0].first_offset > start and (before := streams.predecessor(txn, members[0])) is not None:
        members.insert(0, before)
    return members


def compare(
    store: Store,
    members: Sequence[SegmentRecord],
    wanted: ByteRange,
    source: InputSource,
    advance: Callable[[int], None] = lambda _: None,
) -> Compared:
    """Compare the next bytes of an input with bytes `wanted` of a stream; stop at the first part that differs.

    `advance` receives the number of bytes compared, and may raise. Raises the errors of reading the input.
    """
    work = _Comparing(store, source, wanted)
    done = work.done
    for member in members:
        for span in _spans(store.metadata, member, wanted.intersect(member.range)):
            if not work.pass_to(span.range.start) or not work.compare(member, span):
                return done
            advance(span.range.length_bytes)
    work.pass_to(wanted.end)
    return done


@dataclass(frozen=True, slots=True)
class _Comparable:
    """Bytes of a segment that are compared at once."""

    range: ByteRange
    crc32c: int | None
    """None if the segment's bytes have to be read: less than a block."""


class _Comparing:
    """One comparison: takes the input in steps."""

    def __init__(self, store: Store, source: InputSource, wanted: ByteRange) -> None:
        self.done = Compared()
        self._store = store
        self._source = source
        self._wanted = wanted
        self._buffer = memoryview(bytearray(min(wanted.length_bytes, CRC_BLOCK_BYTES)))

    def pass_to(self, offset: int) -> bool:
        """Pass over the input to the byte that the stream has at `offset`; return False if the input ends before."""
        missing = offset - self._wanted.start - self.done.taken_bytes
        passed = self._source.skip(missing) if missing else 0
        self.done.taken_bytes += passed
        return passed == missing

    def compare(self, segment: SegmentRecord, span: _Comparable) -> bool:
        """Take a span from the input; return False if it differs, or the input ends before its end."""
        equal: bool | None = True
        checksum = 0
        for start in range(span.range.start, span.range.end, CRC_BLOCK_BYTES):
            part = ByteRange(start, min(start + CRC_BLOCK_BYTES, span.range.end))
            view = self._buffer[: part.length_bytes]
            filled = self._fill(view, 0, _STALL_S)
            if filled < len(view):  # what is known already may tell that it is another input
                if self._is_equal(segment, ByteRange(start, start + filled), view[:filled]) is False:
                    return self._differs(ByteRange(start, start + filled))
                filled = self._fill(view, filled, None)
            self.done.taken_bytes += filled
            if filled < len(view):
                return False
            checksum = crc32c(view, checksum)
            equal = span.crc32c is not None or self._is_equal(segment, part, view)
        if equal is False or (span.crc32c is not None and checksum != span.crc32c):
            return self._differs(span.range)
        self.done.compared_bytes += span.range.length_bytes if equal else 0
        return True

    def _differs(self, part: ByteRange) -> bool:
        self.done.difference = part
        return False

    def _fill(self, view: memoryview, filled: int, stall_s: float | None) -> int:
        """Fill `view` from `filled` on; return the bytes in it: fewer at the end, or after a pause of `stall_s`."""
        while filled < len(view):
            if filled and stall_s is not None and not self._source.is_ready(stall_s):
                break
            size = self._source.read_into(view[filled:])
            if not size:
                break
            filled += size
        return filled

    def _is_equal(self, segment: SegmentRecord, part: ByteRange, view: memoryview) -> bool | None:
        """Return whether these are the segment's bytes; None if they cannot be read."""
        from tierfs.reading.stream import copy_segment  # trio takes 0.1 s to import, and most need none

        own = bytearray()
        try:
            copy_segment(self._store.reader(), segment, part.start, part.end, None, own.extend)
        except TierfsError as exc:
            self.done.why = exc
            return None
        return own == view


def _spans(metadata: MetadataStore, segment: SegmentRecord, wanted: ByteRange) -> Iterator[_Comparable]:
    """Yield the bytes that can be compared, in order."""
    at = wanted.start
    for piece in pieces(metadata, segment.id, wanted) if wanted else ():
        if piece.first and piece.placed is not None and piece.range.end > at:
            for span in _spans_of(piece, piece.placed, piece.placed.range.intersect(wanted), at):
                yield span
                at = span.range.end


def _spans_of(piece: ScrubPiece, placed: PlacedChunk, held: ByteRange, at: int) -> Iterator[_Comparable]:
    """Yield the spans of a piece from `at` on; its last block may reach beyond it."""
    blocks = list(_blocks(piece))
    own = placed.chunk.bytes_crc32c
    is_cut = not blocks or any(start < held.start or held.end < end for start, end, _ in blocks)
    if is_cut and own is not None and held == placed.range and at <= held.start:
        yield _Comparable(held, own)
        return
    for start, end, crc in blocks:
        if max(held.start, at) <= start and end <= held.end:
            yield _Comparable(ByteRange(start, end), crc)
        elif (start := max(start, piece.range.start, at)) < min(end, held.end):
            yield _Comparable(ByteRange(start, min(end, held.end)), None)


def _blocks(piece: ScrubPiece) -> Iterator[tuple[int, int, int]]:
    """Yield start and end of the blocks that touch a piece, as offsets of the segment, and their CRC32Cs.

    The first may begin before the segment does, in an object that several share. Without checksums there are none.
    """
    shift = piece.range.start - piece.in_object.start
    for block in piece.grid.blocks() if piece.grid is not None else ():
        yield block.range.start + shift, block.range.end + shift, int.from_bytes(block.crcs, "big")
