"""A whole chain comes to another segment: the records of concat, changed as messages.

The codec turns a message into a dataclass and back in some 15 µs; parsing, shifting and writing the message
itself takes a fifth of that, so that 100,000 chunks are one commit that appends hardly notice. Objects are
not touched: each chunk takes its reference along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tierfs.metadata import chain, chains, journal, keys
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import ChunkRecord, SegmentRecord, TierState, require
from tierfs.metadata.tables import CHUNKS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.types import ChunkState, Tier


def append_chain(txn: WriteTransaction, target: SegmentRecord, source: SegmentRecord, tier: Tier) -> TierState:
    """Move one tier's chunks from `source` behind `target`'s end; returns the head of the target's chain.

    The source's chunks begin at or behind its start offset and the target has no active chunk. What moved
    in the cold tier is journaled; both segments' records are the caller's to write.
    """
    head, taken = target.tier_state(tier), source.tier_state(tier)
    if not taken.count:
        return head
    messages = _messages(txn, source, tier)
    _shift(messages, target.length - source.start_offset)
    merged = _join(txn, target, tier, messages)
    txn.delete_prefix(CHUNKS.name, keys.chunk_prefix(source.id, tier))
    rows = [
        (keys.chunk(target.id, tier, message.start_offset), message.SerializeToString(deterministic=True))
        for message in messages
    ]
    txn.put_ascending(CHUNKS.name, rows)
    if tier is Tier.COLD:
        journal.cold_relinked(txn, target.id, messages)
    return TierState(
        first_chunk=head.first_chunk if head.count else messages[0].start_offset,
        last_chunk=messages[-1].start_offset,
        count=head.count + taken.count - merged,
        bytes=head.bytes + taken.bytes,
    )


def _messages(txn: ReadTransaction, segment: SegmentRecord, tier: Tier) -> list[pb.ChunkRecord]:
    """The chain's records; raises DataLoss where they disagree with each other or with the chain's head."""
    prefix = keys.chunk_prefix(segment.id, tier)
    messages = [pb.ChunkRecord.FromString(data) for _, data in txn.scan_raw(CHUNKS.name, prefix, prefix=prefix)]
    state = segment.tier_state(tier)
    held = sum(message.length for message in messages if message.state != ChunkState.LOST)
    require((len(messages), held) == (state.count, state.bytes), "a chain and its head differ", segment.id, tier.name)
    require(messages[0].start_offset >= segment.start_offset, "a chunk before the start", segment.id, tier.name)
    for one, other in pairwise(messages):
        require(one.next == other.start_offset, "chunks are not neighbours", segment.id, one.start_offset)
    return messages


def _shift(messages: Sequence[pb.ChunkRecord], distance: int) -> None:
    for message in messages:
        message.start_offset += distance
        if message.next:
            message.next += distance


def _join(txn: WriteTransaction, target: SegmentRecord, tier: Tier, messages: list[pb.ChunkRecord]) -> bool:
    """Link the first chunk that comes behind the target's last one; True when both became one chunk."""
    last = chains.chunk_at(txn, target.id, tier, target.length)
    if last is None:
        return False
    require(last.next == 0 and last.end_offset <= target.length, "chunks behind the end", target.id, last.start_offset)
    first: ChunkRecord = CHUNKS.codec.from_message(messages[0])
    grown, *rest = chain.joined([last, first])
    if rest:
        txn.put(CHUNKS, keys.chunk(target.id, tier, last.start_offset), replace(last, next=first.start_offset))
        return False
    messages[0] = pb.ChunkRecord.FromString(CHUNKS.codec.encode(grown))
    holder = chains.object_of(txn, last)
    txn.put(OBJECTS, keys.u64(holder.id), replace(holder, references=holder.references - 1))
    return True
