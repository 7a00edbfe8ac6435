"""Which of a segment's chunks could move between the tiers: the records that planning works on."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.background.planning import OffloadAction, offload_actions
from tierfs.metadata import chains, policies
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.records import ChunkRecord, SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import SegmentKind, Tier


def sealed_local_chunks(txn: ReadTransaction, segment: SegmentRecord, start: int = 0) -> Iterator[ChunkRecord]:
    """Local chunks but the active one, in offset order."""
    for chunk in chains.chunks(txn, segment.id, Tier.LOCAL, start):
        if not (segment.active and chunk.start_offset == segment.local.last_chunk):
            yield chunk


def placed_cold(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[PlacedChunk]:
    """Cold chunks from where local ones begin, with their objects."""
    for chunk in chains.chunks(txn, segment.id, Tier.COLD, segment.local.first_chunk):
        if not chunk.lost:
            yield PlacedChunk(chunk, chains.object_of(txn, chunk))


def objects_to_make(
    txn: ReadTransaction, segment: SegmentRecord, object_bytes: int | None = None
) -> Iterator[OffloadAction]:
    """The cold objects that make every sealed local chunk cold, each of at most `object_bytes`, or as policy says.

    A ledger becomes cold as a whole, once it is closed.
    """
    if segment.kind is SegmentKind.LEDGER:
        due = segment.sealed and segment.local.bytes == segment.length > 0 and not segment.whole_in_cold
        return iter((OffloadAction.of_ledger(segment.id, segment.length),) if due else ())
    start = _first_local_only(txn, segment)
    limit = policies.effective(txn, segment).object_bytes if object_bytes is None else object_bytes
    local = sealed_local_chunks(txn, segment, start)
    cold = chains.chunks(txn, segment.id, Tier.COLD, start) if segment.cold.count else ()
    return offload_actions(segment.id, local, cold, limit, start_offset=segment.start_offset)


def _first_local_only(txn: ReadTransaction, segment: SegmentRecord) -> int:
    """Where planning starts: behind the cold chain when it has no gaps, else where local bytes begin."""
    cold = segment.cold
    first_local = max(segment.start_offset, segment.local.first_chunk)  # not linear in what is cold alone
    last = chains.chunk_at(txn, segment.id, Tier.COLD, cold.last_chunk) if cold.count else None
    if last is None or cold.first_chunk > segment.start_offset:
        return first_local
    gapless = last.end_offset - cold.first_chunk == cold.bytes
    return last.end_offset if gapless else first_local


def ended_ms(txn: ReadTransaction, segment: SegmentRecord, chunk: ChunkRecord) -> int:
    """When a local chunk was complete: as the next one began, or with the segment's last append."""
    following = chains.chunk_at(txn, segment.id, Tier.LOCAL, chunk.next) if chunk.next else None
    return segment.modified_ms if following is None else chains.object_of(txn, following).created_ms
