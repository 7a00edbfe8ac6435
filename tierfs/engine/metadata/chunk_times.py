"""Times of the bytes of chunks: those of local ones follow from their neighbours, those of cold ones are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tierfs.base.bytes.byte_times import TimedBytes
from tierfs.base.words.types import ByteRange, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction


def ended_ms(txn: ReadTransaction, segment: SegmentRecord, local: ByteRange) -> int:
    """Return when local bytes were complete, or later: the begin of the next chunk, or the segment's last append."""
    at = local.end
    for join in segment.joins:
        # What was concatenated may be older than the bytes before it: a chunk behind it has begun after both.
        if join.start <= at < join.end and (local.start < join.start or join.is_of_several):
            at = join.end
    behind = (chunk for chunk in chains.chunks(txn, segment.id, Tier.LOCAL, at) if chunk.start_offset >= at)
    following = next(behind, None)
    begun_ms = segment.modified_ms if following is None else chains.object_of(txn, following).created_ms
    return min(begun_ms, segment.modified_ms)


def of_local(
    txn: ReadTransaction, segment: SegmentRecord, chunks: Sequence[tuple[ChunkRecord, ObjectRecord]]
) -> Iterator[TimedBytes]:
    """Yield the times of neighbouring local chunks, each with its file."""
    for chunk, record in chunks:
        known = list(record.times.stretches(chunk.object_offset, chunk.object_offset + chunk.length))
        yield from known
        rest = chunk.length - sum(each.length_bytes for each in known)
        if rest:  # an older version appended it
            yield TimedBytes.between(rest, record.created_ms, _ended_ms(txn, segment, chunk, record))


def _ended_ms(txn: ReadTransaction, segment: SegmentRecord, chunk: ChunkRecord, record: ObjectRecord) -> int:
    """Do as `ended_ms`; a chunk that was joined was begun before the one it follows."""
    by_ms = ended_ms(txn, segment, chunk.range)
    return by_ms if by_ms >= record.created_ms else segment.modified_ms


def of_placed(placed: Sequence[PlacedChunk], within: ByteRange) -> Iterator[TimedBytes]:
    """Yield the times of the bytes of a range that neighbouring cold chunks hold."""
    for each in placed:
        held = each.range.intersect(within)
        if held:
            start = held.start - each.chunk.start_offset + each.chunk.object_offset
            yield from of_object(each.object, ByteRange(start, start + held.length_bytes))


def of_object(record: ObjectRecord, held: ByteRange) -> Iterator[TimedBytes]:
    """Yield the times of a part of a cold object; without recorded ones all are of the object's own."""
    known = list(record.times.stretches(held.start, held.end))
    yield from known
    rest = held.length_bytes - sum(each.length_bytes for each in known)
    if rest:
        yield TimedBytes(rest, 0, record.modified_ms or record.written_by_ms)


def of_chunk(
    txn: ReadTransaction, segment: SegmentRecord, tier: Tier, chunk: ChunkRecord
) -> Iterator[tuple[ByteRange, TimedBytes]]:
    """Yield the bytes of a chunk with their times, at least one stretch."""
    if not chunk.object_id:
        yield chunk.range, TimedBytes(chunk.length, 0, segment.modified_ms)
        return
    record, at = chains.object_of(txn, chunk), chunk.start_offset
    held = ByteRange(chunk.object_offset, chunk.object_offset + chunk.length)
    stretches = of_local(txn, segment, [(chunk, record)]) if tier is Tier.LOCAL else of_object(record, held)
    for each in stretches:
        # The time of an upload may be after the last append; a recorded one is not, unless the clock was set back.
        written_ms = each.written_ms if each.first_ms else min(each.written_ms, segment.modified_ms)
        yield (
            ByteRange(at, at + each.length_bytes),
            TimedBytes.between(each.length_bytes, each.first_ms, written_ms),
        )
        at += each.length_bytes
