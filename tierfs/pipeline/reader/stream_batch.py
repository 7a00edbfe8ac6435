"""The bytes of one batch of a stream: what lies between two offsets, wherever its segments are by now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange
from tierfs.pipeline.reader.stream_plan import Cutter, ListedSegment, StreamOffset, passed, read_before


@dataclass(frozen=True, slots=True)
class StreamStretch:
    """The stretch of one segment that one batch reads."""

    listed: ListedSegment
    start: int
    end: int


def stretches(start: StreamOffset, end: StreamOffset, listed: Sequence[ListedSegment]) -> list[StreamStretch]:
    """Return the stretches between two offsets that still exist, in the order of births."""
    if start.store != end.store:
        start = StreamOffset(end.store, end.read, bytes=start.bytes)
    return [
        StreamStretch(segment, part.start, part.end)
        for segment in sorted(listed, key=lambda segment: segment.birth)
        for part in _between(start, end, segment)
    ]


def _between(start: StreamOffset, end: StreamOffset, segment: ListedSegment) -> Iterator[ByteRange]:
    """Yield the ranges of a batch that lie in a segment now, without what was read before it."""
    left = ByteRange(min(segment.length, max(segment.start, passed(start, segment))), segment.length)
    pieces = [common for piece in _pieces(start, end, segment) if (common := piece.intersect(left))]
    taken = read_before(start, segment, min(piece.start for piece in pieces)) if pieces else []
    for piece in pieces:
        # Each for itself, though they may touch: lines that were read in two segments stay two.
        yield from ranges.gaps(piece, ranges.union(taken))
        taken.append(piece)


def _pieces(start: StreamOffset, end: StreamOffset, segment: ListedSegment) -> Iterator[ByteRange]:
    """Yield what was read of a segment until the end of a batch, then what of those that were joined to it since.

    They overlap where something was joined twice: the last one that it was joined to comes first, and has it.
    """
    yield ByteRange(0, passed(end, segment))
    for join in sorted(segment.joins, key=lambda join: join.range.length_bytes, reverse=True):
        began = join.birth in start.open or start.done < join.birth <= end.done
        if join.is_of_several or not began:
            continue
        first = max(join.source_start, start.open.get(join.birth, join.source_start))
        last = max(first, end.open.get(join.birth, join.source_end))
        by = join.start - join.source_start
        yield ByteRange(first + by, last + by)


def missing_bytes(start: StreamOffset, end: StreamOffset, parts: Sequence[StreamStretch], cutter: Cutter) -> int:
    """Return the number of bytes of a batch that are gone; below 0 if there are more than before."""
    return end.bytes - start.bytes - sum(cutter.size_bytes(part.listed, part.start, part.end) for part in parts)
