"""Edits of chains in the database beyond link and unlink: cut chunks, lose and restore bytes, move a whole chain.

A lost extent keeps the object it was lost from, so that its bytes can come back. The journal receives the chain as it
is afterwards, including neighbours that a change merges with the chunk, or that an older tierfs left beside it: a
replay reaches the same chunks whether it merged them or not.

`append_chain` moves a whole chain to another segment (concat) by editing the stored messages. The codec decodes and
encodes a record in some 15 µs; parsing, shifting and writing the message itself takes a fifth of that, so that 100,000
chunks are one commit that hardly delays appends. Objects are not touched: each chunk takes its reference along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from tierfs import ranges
from tierfs.metadata import chain, chains, changes, directories, tables
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import ChunkRecord, SegmentRecord, TierState, require
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.types import ByteRange, ChunkState, SegmentId, Tier

Part = tuple[ByteRange, ChunkState]
"""A range of a chunk, and its new state."""


def lose(txn: WriteTransaction, segment: SegmentRecord, span: ByteRange) -> SegmentRecord:
    """Mark every byte of `span` lost in the cold chain, and journal it; idempotent.

    Chunks are cut around it; the lost part of a chunk keeps its object. Returns the changed segment, not yet written.
    """
    while chunk := next((other for other in _overlapping(txn, segment, span) if not other.lost), None):
        bad = chunk.range.intersect(span)
        kept = [(rest, chunk.state) for rest in ranges.gaps(chunk.range, (bad,))]
        segment = replace_chunk(txn, segment, Tier.COLD, chunk, [*kept, (bad, ChunkState.LOST)])
    return fill_gaps(txn, segment, list(ranges.gaps(span, (chunk.range for chunk in _overlapping(txn, segment, span)))))


def fill_gaps(txn: WriteTransaction, segment: SegmentRecord, gaps: Iterable[ByteRange]) -> SegmentRecord:
    """Link a lost extent into each gap of the cold chain, and journal it; returns the segment, not yet written."""
    for gap in gaps:
        segment = chains.insert_lost(txn, segment, gap)
        extent = chains.chunk_at(txn, segment.id, Tier.COLD, gap.start)
        assert extent is not None
        changes.cold_linked(txn, segment.id, (extent,), ())
    return segment


def take_out(txn: WriteTransaction, segment: SegmentRecord, span: ByteRange, *, due_ms: int) -> SegmentRecord:
    """Remove `span`, which the local tier has, from the cold chain; other bytes keep their chunks.

    Lost extents are removed too, so that the bytes are offloaded again. Objects without references become garbage at
    `due_ms`.
    """
    while chunk := next(iter(_overlapping(txn, segment, span)), None):
        kept = [(rest, chunk.state) for rest in ranges.gaps(chunk.range, (span,))]
        segment = replace_chunk(txn, segment, Tier.COLD, chunk, kept, due_ms=due_ms)
    return segment


def take_out_lost(txn: WriteTransaction, segment: SegmentRecord, span: ByteRange, *, due_ms: int) -> SegmentRecord:
    """Remove only the lost extents of `span` from the cold chain, as take_out does: a good copy there stays."""
    for extent in _overlapping(txn, segment, span):
        if extent.lost:
            segment = take_out(txn, segment, extent.range.intersect(span), due_ms=due_ms)
    return segment


def restore(txn: WriteTransaction, segment: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> SegmentRecord:
    """Mark a chunk good whose bytes were all read and verified, and journal it.

    It merges with the neighbours that it continues; beside a suspect one, the result is suspect. Bytes of a local chunk
    that the cold tier has lost are taken out there, so that they are offloaded.
    """
    segment = replace_chunk(txn, segment, tier, chunk, [(chunk.range, ChunkState.GOOD)])
    return take_out_lost(txn, segment, chunk.range, due_ms=txn.now_ms) if tier is Tier.LOCAL else segment


def set_state(
    metadata: MetadataStore, segment_id: SegmentId, tier: Tier, chunk: ChunkRecord, state: ChunkState
) -> bool:
    """Set a chunk's state unless it moved; return whether that changed anything. One commit.

    The other copies of a suspect chunk's bytes stay, as its own failed (invariant 8). A lost chunk stays lost until it
    is marked good, after every byte of it was read and verified.
    """
    if not changes_state(metadata, segment_id, tier, chunk, state):
        return False
    key = tables.chunk(segment_id, tier, chunk.start_offset)
    with metadata.write() as txn:
        current, segment = txn.get(CHUNKS, key), directories.segment(txn, segment_id)
        if current is None or segment is None or not _changes(current, tier, chunk, state):
            return False
        if current.lost:
            put_segment(txn, restore(txn, segment, tier, current), journaled=True)
            return True
        txn.put(CHUNKS, key, replace(current, state=state))
        txn.touch(segment_id=segment_id)
    return True


def changes_state(
    metadata: MetadataStore, segment_id: SegmentId, tier: Tier, chunk: ChunkRecord, state: ChunkState
) -> bool:
    """Return whether `set_state` would change anything now."""
    with metadata.read() as view:
        return _changes(view.get(CHUNKS, tables.chunk(segment_id, tier, chunk.start_offset)), tier, chunk, state)


def replace_chunk(
    txn: WriteTransaction,
    segment: SegmentRecord,
    tier: Tier,
    chunk: ChunkRecord,
    parts: Iterable[Part],
    *,
    due_ms: int = 0,
) -> SegmentRecord:
    """Replace a chunk by parts of it, in the same object; bytes in no part are dropped.

    Parts merge with neighbours that they continue. Returns the changed segment, not yet written. An object without
    references becomes garbage at `due_ms`.
    """
    cut = [chain.part(chunk, *part) for part in sorted(parts)]
    if not chunk.object_id:
        return _replace_nameless(txn, segment, chunk, cut)
    before, after = _neighbours(txn, segment, tier, [chunk, *cut])
    removed = [*before, txn.must_get(CHUNKS, tables.chunk(segment.id, tier, chunk.start_offset), "a chunk"), *after]
    records = chain.joined([*before, *cut, *after])
    sequence = _unlink(txn, segment, removed, records) if tier is Tier.COLD else 0
    if records:  # one reference more, so that the object outlives the moment without chunks
        _count(txn, chunk, 1)
    segment = chains.remove(txn, segment, tier, removed, due_ms=due_ms, after_sequence=sequence)
    for record in records:
        segment = chains.insert(txn, segment, tier, record, chains.object_of(txn, record))
    if records:
        _count(txn, chunk, -1)
        if tier is Tier.COLD:
            _link(txn, segment, records)
    return segment


def put_segment(txn: WriteTransaction, segment: SegmentRecord, *, journaled: bool) -> None:
    """Write a segment whose chunks changed, and notify its readers."""
    segment = replace(segment, generation=segment.generation + 1, changed_ms=txn.now_ms)
    txn.put(SEGMENTS, tables.u64(segment.id), segment)
    if journaled:
        changes.segment_changed(txn, segment)
    txn.touch(inode=segment.inode, segment_id=segment.id)


def _changes(current: ChunkRecord | None, tier: Tier, chunk: ChunkRecord, state: ChunkState) -> bool:
    if current is None:
        return False
    # Bytes joined to it since then are unverified; but a local chunk that is not lost only grows by appends.
    grows = state is not ChunkState.GOOD or (tier is Tier.LOCAL and not current.lost)
    return (
        (not current.lost or (chunk.lost and state is ChunkState.GOOD))
        and current.object_id == chunk.object_id
        and (current.length == chunk.length or (grows and current.length > chunk.length))
        and current.state is not state
    )


def _replace_nameless(
    txn: WriteTransaction, segment: SegmentRecord, chunk: ChunkRecord, records: Sequence[ChunkRecord]
) -> SegmentRecord:
    """Replace a lost extent without an object, which only the cold chain can hold."""
    _unlink(txn, segment, [chunk], records)
    segment = chains.remove(txn, segment, Tier.COLD, [chunk], due_ms=0, after_sequence=0)
    for record in records:
        segment = chains.insert_lost(txn, segment, record.range)
    if records:
        changes.cold_linked(txn, segment.id, records, ())
    return segment


def _neighbours(
    txn: WriteTransaction, segment: SegmentRecord, tier: Tier, edges: Sequence[ChunkRecord]
) -> tuple[list[ChunkRecord], list[ChunkRecord]]:
    """Return the chunks before and after one that it continues, as it is or as its parts will be; in offset order."""
    before: list[ChunkRecord] = []
    after: list[ChunkRecord] = []
    while (start := before[0].start_offset if before else edges[0].start_offset) and (
        neighbour := chains.chunk_at(txn, segment.id, tier, start - 1)
    ):
        if not any(chain.continues(neighbour, edge) for edge in before[:1] or edges):
            break
        before.insert(0, neighbour)
    for neighbour in chains.chunks(txn, segment.id, tier, edges[0].end_offset):
        if not any(chain.continues(edge, neighbour) for edge in after[-1:] or edges):
            break
        after.append(neighbour)
    return before, after


def _unlink(
    txn: WriteTransaction, segment: SegmentRecord, removed: Sequence[ChunkRecord], records: Sequence[ChunkRecord]
) -> int:
    """Journal that chunks are removed; return the sequence, 0 where the link of one chunk replaces them all."""
    if len(records) == 1 and records[0].range == ByteRange(removed[0].start_offset, removed[-1].end_offset):
        return 0
    return changes.cold_unlinked(txn, segment.id, [chunk.start_offset for chunk in removed])


def _link(txn: WriteTransaction, segment: SegmentRecord, records: Sequence[ChunkRecord]) -> None:
    """Journal the parts: their object is referenced from this change on."""
    holder = replace(chains.object_of(txn, records[0]), linked_sequence=txn.store.next_outbox)
    txn.put(OBJECTS, tables.u64(holder.id), holder)
    changes.cold_linked(txn, segment.id, records, (holder,))


def _count(txn: WriteTransaction, chunk: ChunkRecord, more: int) -> None:
    holder = chains.object_of(txn, chunk)
    txn.put(OBJECTS, tables.u64(holder.id), replace(holder, references=holder.references + more))


def _overlapping(txn: WriteTransaction, segment: SegmentRecord, span: ByteRange) -> list[ChunkRecord]:
    return list(chains.overlapping(txn, segment.id, Tier.COLD, span))


def append_chain(txn: WriteTransaction, target: SegmentRecord, source: SegmentRecord, tier: Tier) -> TierState:
    """Move one tier's chunks from `source` to `target`'s end; return the head of the target's chain.

    The source's chunks begin at or after its start offset and the target has no active chunk. Chunks moved in the cold
    tier are journaled; both segments' records are the caller's to write.
    """
    head, taken = target.tier_state(tier), source.tier_state(tier)
    if not taken.count:
        return head
    messages = _messages(txn, source, tier)
    _shift(messages, target.length - source.start_offset)
    merged = _join(txn, target, tier, messages)
    txn.delete_prefix(CHUNKS.name, tables.chunk_prefix(source.id, tier))
    rows = [
        (tables.chunk(target.id, tier, message.start_offset), message.SerializeToString(deterministic=True))
        for message in messages
    ]
    txn.put_ascending(CHUNKS.name, rows)
    if tier is Tier.COLD:
        changes.cold_relinked(txn, target.id, messages)
    return TierState(
        first_chunk=head.first_chunk if head.count else messages[0].start_offset,
        last_chunk=messages[-1].start_offset,
        count=head.count + taken.count - merged,
        bytes=head.bytes + taken.bytes,
    )


def _messages(txn: ReadTransaction, segment: SegmentRecord, tier: Tier) -> list[pb.ChunkRecord]:
    """Return the chain's records. Raises DataLoss where they disagree with each other or with the chain's head."""
    prefix = tables.chunk_prefix(segment.id, tier)
    messages = [pb.ChunkRecord.FromString(data) for _, data in txn.scan_raw(CHUNKS.name, prefix, prefix=prefix)]
    state = segment.tier_state(tier)
    held = sum(message.length for message in messages if message.state != ChunkState.LOST)
    require((len(messages), held) == (state.count, state.bytes), "a chain and its head differ", segment.id, tier.name)
    require(messages[0].start_offset >= segment.start_offset, "a chunk before the start", segment.id, tier.name)
    for left, right in pairwise(messages):
        require(left.next == right.start_offset, "chunks are not neighbours", segment.id, left.start_offset)
    return messages


def _shift(messages: Sequence[pb.ChunkRecord], distance: int) -> None:
    for message in messages:
        message.start_offset += distance
        if message.next:
            message.next += distance


def _join(txn: WriteTransaction, target: SegmentRecord, tier: Tier, messages: list[pb.ChunkRecord]) -> bool:
    """Link the first moved chunk after the target's last one; return True when both became one chunk."""
    last = chains.chunk_at(txn, target.id, tier, target.length)
    if last is None:
        return False
    require(last.next == 0 and last.end_offset <= target.length, "chunks after the end", target.id, last.start_offset)
    first: ChunkRecord = CHUNKS.codec.from_message(messages[0])
    grown, *rest = chain.joined([last, first])
    if rest:
        txn.put(CHUNKS, tables.chunk(target.id, tier, last.start_offset), replace(last, next=first.start_offset))
        return False
    messages[0] = pb.ChunkRecord.FromString(CHUNKS.codec.encode(grown))
    holder = chains.object_of(txn, last)
    txn.put(OBJECTS, tables.u64(holder.id), replace(holder, references=holder.references - 1))
    return True
