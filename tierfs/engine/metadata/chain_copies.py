"""Chains of a copy: a range of a segment's chunks, linked a second time for another segment, at the same offsets.

No object is touched but its count of references, so the bytes are in one file or object for both, and go with the last
chunk that needs them. As in concat the stored messages are edited, which is a fifth of the work of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tierfs.base.words.types import ByteRange, ChunkState, ObjectId, Tier
from tierfs.engine.metadata import chain, chains, changes, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord, TierState, require
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction


def copy_chain(
    txn: WriteTransaction, source: SegmentRecord, target: SegmentRecord, tier: Tier, kept: ByteRange
) -> TierState:
    """Link what one tier has of a range of `source` for `target`, which has no chunks there; return the chain's head.

    Chunks are cut where the range begins and ends, lost and suspect ones stay so. Those of the cold tier are journaled,
    after the target's record, which is the caller's to write before. Raises DataLoss for a chunk without its object.
    """
    messages = list(_cut(txn, source, tier, kept))
    if not messages:
        return TierState()
    for message, following in zip(messages, [*messages[1:], None], strict=True):
        message.next = 0 if following is None else following.start_offset
    rows = [
        (tables.chunk(target.id, tier, message.start_offset), message.SerializeToString(deterministic=True))
        for message in messages
    ]
    txn.put_ascending(CHUNKS.name, rows)
    if tier is Tier.COLD:
        changes.cold_relinked(txn, target.id, messages)
    _refer(txn, messages, linked_sequence=txn.store.next_outbox - 1 if tier is Tier.COLD else 0)
    return TierState(
        first_chunk=messages[0].start_offset,
        last_chunk=messages[-1].start_offset,
        count=len(messages),
        bytes=sum(message.length for message in messages if message.state != ChunkState.LOST),
    )


def _cut(txn: ReadTransaction, source: SegmentRecord, tier: Tier, kept: ByteRange) -> Iterator[pb.ChunkRecord]:
    """Yield the chunks of a range, cut to it."""
    first = chains.chunk_at(txn, source.id, tier, kept.start)
    begin = kept.start if first is None else first.start_offset
    prefix = tables.chunk_prefix(source.id, tier)
    for _, data in txn.scan_raw(CHUNKS.name, tables.chunk(source.id, tier, begin), prefix=prefix):
        message = pb.ChunkRecord.FromString(data)
        held = ByteRange(message.start_offset, message.start_offset + message.length)
        if held.start >= kept.end:
            return
        both = held.intersect(kept)
        if both == held:
            yield message
        elif both:
            record: ChunkRecord = CHUNKS.codec.from_message(message)
            yield pb.ChunkRecord.FromString(CHUNKS.codec.encode(chain.part(record, both, record.state)))


def _refer(txn: WriteTransaction, messages: list[pb.ChunkRecord], *, linked_sequence: int) -> None:
    """Count the new references of objects; cold ones are linked by one more change of the journal.

    Until that is published no local copy goes: the bucket would not know the copy whose bytes these are (invariant 4).
    """
    for object_id, count in Counter(message.object_id for message in messages if message.object_id).items():
        key = tables.u64(ObjectId(object_id))
        stored = txn.message(OBJECTS, key)
        require(stored is not None, "a chunk refers to a missing object", object_id)
        assert stored is not None
        stored.references += count
        stored.linked_sequence = max(stored.linked_sequence, linked_sequence)
        txn.put_raw(OBJECTS.name, key, stored.SerializeToString(deterministic=True))
