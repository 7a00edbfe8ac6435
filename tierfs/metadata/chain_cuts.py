"""Giving bytes up in the cold chain: chunks are cut around them, and what nothing holds becomes a lost extent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tierfs.errors import DataLoss
from tierfs.metadata import chains, journal, keys
from tierfs.metadata.records import ChunkRecord, SegmentRecord
from tierfs.metadata.tables import OBJECTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import ByteRange, ChunkState, PayloadEncoding, Tier


def lose(txn: WriteTransaction, segment: SegmentRecord, span: ByteRange, *, due_ms: int) -> SegmentRecord:
    """Make every byte of `span` lost in the cold chain, with the changes for the journal; idempotent.

    Objects without references become garbage at `due_ms`. Returns the changed segment, not yet written.
    Raises DataLoss for chunks that cannot be cut.
    """
    segment = take_out(txn, segment, span, due_ms=due_ms)
    for gap in _gaps(span, _overlapping(txn, segment, span)):
        segment = chains.insert_lost(txn, segment, gap)
        extent = chains.chunk_at(txn, segment.id, Tier.COLD, gap.start)
        assert extent is not None
        journal.cold_linked(txn, segment.id, (extent,), ())
    return segment


def take_out(txn: WriteTransaction, segment: SegmentRecord, span: ByteRange, *, due_ms: int) -> SegmentRecord:
    """Let no cold chunk hold a byte of `span`, which the local tier has; the same otherwise."""
    for chunk in _overlapping(txn, segment, span):
        if not chunk.lost:
            segment = _cut(txn, segment, chunk, chunk.range.intersect(span), due_ms)
    return segment


def _gaps(span: ByteRange, chunks: list[ChunkRecord]) -> Iterator[ByteRange]:
    at = span.start
    for chunk in chunks:
        if at < chunk.start_offset:
            yield ByteRange(at, chunk.start_offset)
        at = max(at, chunk.end_offset)
    if at < span.end:
        yield ByteRange(at, span.end)


def _cut(
    txn: WriteTransaction, segment: SegmentRecord, chunk: ChunkRecord, dropped: ByteRange, due_ms: int
) -> SegmentRecord:
    """Take a range out of a cold chunk, which leaves up to two parts of it, in the same object and good."""
    if chunk.encoding is not PayloadEncoding.RAW:
        raise DataLoss(f"the chunk at {chunk.start_offset} is encoded and cannot be cut")
    spans = (ByteRange(chunk.start_offset, dropped.start), ByteRange(dropped.end, chunk.end_offset))
    parts = [_part(chunk, span) for span in spans if span]
    holder = chains.object_of(txn, chunk)
    if parts:  # one reference more, so that the object outlives the moment without chunks
        txn.put(OBJECTS, keys.u64(holder.id), replace(holder, references=holder.references + 1))
    sequence = journal.cold_unlinked(txn, segment.id, (chunk.start_offset,))
    segment = chains.remove(txn, segment, Tier.COLD, [chunk], due_ms=due_ms, after_sequence=sequence)
    for part in parts:
        segment = chains.insert(txn, segment, Tier.COLD, part, chains.object_of(txn, part))
    if parts:
        current = chains.object_of(txn, chunk)
        released = replace(current, references=current.references - 1)
        txn.put(OBJECTS, keys.u64(holder.id), released)
        journal.cold_linked(txn, segment.id, parts, (released,))
    return segment


def _part(chunk: ChunkRecord, span: ByteRange) -> ChunkRecord:
    return replace(
        chunk,
        start_offset=span.start,
        length=span.length_bytes,
        object_offset=chunk.object_offset + span.start - chunk.start_offset,
        next=0,
        state=ChunkState.GOOD,
    )


def _overlapping(txn: WriteTransaction, segment: SegmentRecord, span: ByteRange) -> list[ChunkRecord]:
    found = []
    for chunk in chains.chunks(txn, segment.id, Tier.COLD, span.start):
        if chunk.start_offset >= span.end:
            break
        found.append(chunk)
    return found
