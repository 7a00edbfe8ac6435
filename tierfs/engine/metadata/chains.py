"""Chains in the database: look-ups, the growth of an active chunk, and the queue of garbage. Edits: chain_edits.py."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import (
    ByteRange,
    ChunkState,
    LocationId,
    ObjectId,
    SegmentId,
    SegmentKind,
    SegmentStatus,
    Tier,
)
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import (
    RECORD_VERSION,
    ChunkRecord,
    GarbageRecord,
    ObjectRecord,
    SegmentRecord,
    require,
)
from tierfs.engine.metadata.tables import CHUNKS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction


def chunk_at(txn: ReadTransaction, segment_id: SegmentId, tier: Tier, offset: int) -> ChunkRecord | None:
    """Return the chunk with the greatest start <= offset; the caller checks whether it reaches that far."""
    prefix = tables.chunk_prefix(segment_id, tier)
    return txn.at_or_before(CHUNKS, tables.chunk(segment_id, tier, offset), prefix=prefix)


def chunks(txn: ReadTransaction, segment_id: SegmentId, tier: Tier, start: int = 0) -> Iterator[ChunkRecord]:
    """Yield chunks of one tier from the one that holds `start` (or the next one) on, in offset order."""
    first = chunk_at(txn, segment_id, tier, start)
    begin = start
    if first is not None and first.end_offset > start:
        yield first  # decoded already: most lookups need only this one
        begin = first.start_offset + 1
    yield from starting_from(txn, segment_id, tier, begin)


def starting_from(txn: ReadTransaction, segment_id: SegmentId, tier: Tier, start: int) -> Iterator[ChunkRecord]:
    """Yield chunks of one tier that begin at or after `start`, in offset order."""
    prefix = tables.chunk_prefix(segment_id, tier)
    for _, record in txn.scan(CHUNKS, tables.chunk(segment_id, tier, start), prefix=prefix):
        yield record


def overlapping(txn: ReadTransaction, segment_id: SegmentId, tier: Tier, window: ByteRange) -> Iterator[ChunkRecord]:
    """Yield chunks of one tier that hold bytes of a range, in offset order."""
    return takewhile(lambda chunk: chunk.start_offset < window.end, chunks(txn, segment_id, tier, window.start))


def cold_end(txn: ReadTransaction, segment: SegmentRecord, *, lost_too: bool = False) -> int:
    """Return the first byte from a segment's start on that the cold tier lacks; `lost_too` counts lost bytes as held.

    It may lie beyond the segment's end.
    """
    cold, start = segment.cold, segment.start_offset
    last = chunk_at(txn, segment.id, Tier.COLD, cold.last_chunk) if cold.count else None
    if last is not None and cold.first_chunk <= start and last.end_offset - cold.first_chunk == cold.bytes:
        return max(start, last.end_offset)  # no gap, and nothing lost
    held = chunks(txn, segment.id, Tier.COLD, start) if cold.count else ()
    return ranges.reach(start, (chunk.range for chunk in held if lost_too or not chunk.lost))


def ending_by(txn: ReadTransaction, segment_id: SegmentId, tier: Tier, offset: int) -> list[ChunkRecord]:
    """Return the first chunks of a chain that end at or before `offset`."""
    return list(takewhile(lambda chunk: chunk.end_offset <= offset, starting_from(txn, segment_id, tier, 0)))


def object_of(txn: ReadTransaction, chunk: ChunkRecord) -> ObjectRecord:
    """Return the object that holds a chunk's bytes. Raises DataLoss when its record is missing."""
    return object_by_id(txn, chunk.object_id)


def object_by_id(txn: ReadTransaction, object_id: ObjectId) -> ObjectRecord:
    """Return the object that chunks name. Raises DataLoss when its record is missing."""
    record = txn.get(OBJECTS, tables.u64(object_id))
    require(record is not None, "a chunk refers to a missing object", object_id)
    assert record is not None
    return record


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes that were written behind the committed ones of an active chunk."""

    segment_id: SegmentId
    writer_epoch: int
    segment_length: int
    """Before them."""
    object_id: ObjectId
    length: int
    crc32c: int
    """Of the whole object."""
    first_block: int
    block_crcs: Sequence[int]
    resumable: bool


def grow(txn: WriteTransaction, growth: Growth) -> bool:
    """Grow the active chunk of an open segment; False, with nothing changed, if anything is not as the growth says.

    For the commit of small appends, of which there are thousands a second: it changes messages, not records. Measured:
    81 microseconds, where the same through records takes 174.
    """
    segment_key, object_key = tables.u64(growth.segment_id), tables.u64(growth.object_id)
    segment = txn.message(SEGMENTS, segment_key)
    if segment is None or segment.status != SegmentStatus.OPEN or segment.writer_epoch != growth.writer_epoch:
        return False
    if segment.length != growth.segment_length or not segment.active:
        return False
    place = tables.chunk(growth.segment_id, Tier.LOCAL, segment.local.last_chunk)
    last = txn.message(CHUNKS, place)
    stored = txn.message(OBJECTS, object_key)
    if last is None or last.object_id != growth.object_id or last.next or stored is None:
        return False
    last.length += growth.length
    stored.length += growth.length
    stored.crc32c = growth.crc32c
    _note_time(stored, txn.now_ms)
    segment.length += growth.length
    segment.local.bytes += growth.length
    segment.modified_ms = txn.now_ms
    segment.first_byte_ms = segment.first_byte_ms or segment.created_ms
    segment.resumable = growth.resumable
    txn.put_raw(CHUNKS.name, place, last.SerializeToString(deterministic=True))
    txn.put_raw(OBJECTS.name, object_key, stored.SerializeToString(deterministic=True))
    txn.put_raw(SEGMENTS.name, segment_key, segment.SerializeToString(deterministic=True))
    checksums.write_blocks(txn, growth.object_id, growth.first_block, growth.block_crcs)
    return True


def _note_time(stored: pb.ObjectRecord, now_ms: int) -> None:
    """Do as ByteTimes.grown. A quarter of the time where there is a stretch, as setting lists takes the rest."""
    times = stored.times
    ends, first_ms, written_ms = times.ends, times.first_ms, times.written_ms
    if len(ends) == len(first_ms) == len(written_ms) == 1:
        ends[0] = stored.length
        if now_ms > written_ms[0]:
            written_ms[0] = now_ms
        elif now_ms < first_ms[0]:
            first_ms[0] = now_ms
        return
    ends[:] = (stored.length,)
    first_ms[:] = (min(stored.created_ms, now_ms, *first_ms),)
    written_ms[:] = (max((now_ms, *written_ms)),)


def link_last(
    txn: WriteTransaction, segment_id: SegmentId, new: ChunkRecord, *, changes: bool = True
) -> tuple[pb.SegmentRecord, pb.ChunkRecord] | None:
    """Link a chunk behind the last cold one; return the segment and the chunk, which the caller journals.

    None, with nothing changed, where it is not so simple: then Editor.link does it. For the same commits as `grow`, and
    of messages for the same reason; the object's references are the caller's. `changes`: the segment changes now.
    """
    key, start = tables.u64(segment_id), new.start_offset
    segment = txn.message(SEGMENTS, key)
    if segment is None:
        return None
    cold = segment.cold
    if cold.count:
        place = tables.chunk(segment_id, Tier.COLD, cold.last_chunk)
        last = txn.message(CHUNKS, place)
        if last is None or last.start_offset + last.length > start or last.object_id == new.object_id:
            return None
        last.next = start
        txn.put_raw(CHUNKS.name, place, last.SerializeToString(deterministic=True))
    else:
        cold.first_chunk = start
    cold.last_chunk = start
    cold.count += 1
    cold.bytes += new.length
    segment.generation += 1
    if changes:
        segment.changed_ms = txn.now_ms
    chunk: pb.ChunkRecord = CHUNKS.codec.to_message(new)  # type: ignore[assignment]
    txn.put_raw(CHUNKS.name, tables.chunk(segment_id, Tier.COLD, start), chunk.SerializeToString(deterministic=True))
    txn.put_raw(SEGMENTS.name, key, segment.SerializeToString(deterministic=True))
    txn.touch(inode=segment.inode, segment_id=segment_id)
    return segment, chunk


@dataclass(frozen=True, slots=True)
class LoneChunk:
    """The only local chunk of a segment, and its only cold one, as messages."""

    segment: pb.SegmentRecord
    local: pb.ChunkRecord
    cold: pb.ChunkRecord


def lone_chunk(txn: ReadTransaction, segment_id: SegmentId) -> LoneChunk | None:
    """Return the chunks of a segment that has one in each tier and appends to neither; None for any other segment.

    For evictions, of which there are 10,000 a second, and of messages for the same reason as `grow`.
    """
    segment = txn.message(SEGMENTS, tables.u64(segment_id))
    if segment is None or segment.active or segment.kind != SegmentKind.BYTES:
        return None
    if segment.local.count != 1 or segment.cold.count != 1:
        return None
    local = txn.message(CHUNKS, tables.chunk(segment_id, Tier.LOCAL, segment.local.first_chunk))
    cold = txn.message(CHUNKS, tables.chunk(segment_id, Tier.COLD, segment.cold.first_chunk))
    if local is None or cold is None or local.next or local.state != ChunkState.GOOD:
        return None
    return LoneChunk(segment, local, cold)


def drop_lone(txn: WriteTransaction, lone: LoneChunk) -> bool:
    """Remove a segment's only local chunk, and queue its file for deletion now, as Editor.remove would.

    False, with nothing changed, where its object is not that of this one chunk alone.
    """
    segment, local = lone.segment, lone.local
    object_key = tables.u64(local.object_id)
    stored = txn.message(OBJECTS, object_key)
    if stored is None or stored.references != 1 or stored.foreign or stored.index_name or stored.entries_name:
        return False
    txn.delete(CHUNKS.name, tables.chunk(segment.id, Tier.LOCAL, local.start_offset))
    txn.delete(OBJECTS.name, object_key)
    checksums.delete(txn, ObjectId(local.object_id))
    sequence = txn.take("next_garbage")
    gone = pb.GarbageRecord(
        version=RECORD_VERSION,
        sequence=sequence,
        due_ms=txn.now_ms,
        tier=stored.tier,
        location_id=stored.location_id,
        name=stored.name,
        length=stored.stored_length or stored.length,
        object_id=stored.id,
    )
    txn.put_raw(GARBAGE.name, tables.pair(txn.now_ms, sequence), gone.SerializeToString(deterministic=True))
    segment.ClearField("local")
    segment.generation += 1
    txn.put_raw(SEGMENTS.name, tables.u64(segment.id), segment.SerializeToString(deterministic=True))
    txn.touch(inode=segment.inode, segment_id=segment.id)
    return True


def objects_named(txn: ReadTransaction, names: Collection[str], *, first_id: int = 0) -> set[str]:
    """Return those of the names that belong to an object with an id of at least `first_id`; one pass over those
    objects."""
    return {record.name for _, record in txn.scan(OBJECTS, tables.u64(first_id)) if record.name in names}


def discard(
    txn: WriteTransaction,
    location_id: LocationId,
    name: str,
    length: int = 0,
    *,
    due_ms: int | None = None,
    after_sequence: int = 0,
) -> None:
    """Queue a cold object for deletion, which is due now unless a time is given."""
    record = GarbageRecord(
        due_ms=txn.now_ms if due_ms is None else due_ms,
        tier=Tier.COLD,
        location_id=location_id,
        name=name,
        length=length,
        after_sequence=after_sequence,
    )
    add_garbage(txn, record)


def add_garbage(txn: WriteTransaction, record: GarbageRecord) -> None:
    """Queue a file or object for deletion.

    Cold garbage that has to wait is journaled, so that the bucket's next owner deletes it too. Garbage that may be
    deleted at once would be gone before another owner could read of it.
    """
    queued = replace(record, sequence=txn.take("next_garbage"))
    txn.put(GARBAGE, tables.pair(queued.due_ms, queued.sequence), queued)
    if record.tier is Tier.COLD and (record.due_ms > txn.now_ms or record.after_sequence):
        change = pb.Change(garbage=GARBAGE.codec.to_message(queued))  # type: ignore[arg-type]
        txn.add_to_outbox_last(change.SerializeToString(deterministic=True))
