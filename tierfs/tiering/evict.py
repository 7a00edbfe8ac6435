"""Evict: drop local chunks whose bytes are safely cold (invariant 4).

The decision is made again inside the transaction that removes the chunks, from the records of that moment.
The files become garbage that is due at once; a reader that still holds them open continues to read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from tierfs.metadata import directories, entries, tables
from tierfs.metadata.chain_edits import Editor
from tierfs.metadata.records import ChunkRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments import trash
from tierfs.tiering.candidates import evictable, placed_cold, runs, sealed_local_chunks, up_to
from tierfs.types import SegmentId, SegmentKind, Tier

# Chunks removed per commit: some 10 ms, to keep appends from waiting.
_BATCH_CHUNKS = 1000


@dataclass(frozen=True, slots=True)
class Evicted:
    """Chunks and bytes that were dropped, or would be."""

    chunks: int = 0
    bytes: int = 0

    def plus(self, chunks: list[ChunkRecord]) -> Evicted:
        """Return the sum with more chunks."""
        return Evicted(self.chunks + len(chunks), self.bytes + sum(chunk.length for chunk in chunks))


def evict(metadata: MetadataStore, segment_id: SegmentId, *, cold_before_ms: int, end: int | None = None) -> Evicted:
    """Drop every evictable local chunk of a segment, with `end` those that end there or before; idempotent.

    `cold_before_ms`: cold objects made after this time do not count yet (the deletion lag).
    """
    total = Evicted()
    while True:
        with metadata.write() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                return total
            batch = list(islice(_evictable(txn, segment, cold_before_ms, end), _BATCH_CHUNKS))
            if not batch:
                return total
            editor = Editor(txn, segment)
            for run in runs(batch):
                editor.remove(Tier.LOCAL, run, due_ms=txn.now_ms)
            segment = editor.segment
            txn.put(SEGMENTS, tables.u64(segment.id), segment)
            trash.note_evicted(txn, segment, sum(chunk.length for chunk in batch))
            _note_ledger(txn, segment)
            txn.touch(inode=segment.inode, segment_id=segment.id)
        total = total.plus(batch)


def _note_ledger(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Record in a ledger's context that its local bytes are deleted, before their files are (PIP-17)."""
    if segment.kind is not SegmentKind.LEDGER or segment.local.count:
        return
    ledger = entries.find(txn, segment.id)
    if ledger.offload.complete and not ledger.offload.local_deleted:
        entries.put_ledger(txn, replace(ledger, offload=replace(ledger.offload, local_deleted=True)))


def would_evict(
    txn: ReadTransaction, segment: SegmentRecord, *, cold_before_ms: int, end: int | None = None
) -> Evicted:
    """Count the chunks that `evict` would drop now."""
    return Evicted().plus(list(_evictable(txn, segment, cold_before_ms, end)))


def _evictable(
    txn: ReadTransaction, segment: SegmentRecord, cold_before_ms: int, end: int | None
) -> Iterator[ChunkRecord]:
    return evictable(
        up_to(end, sealed_local_chunks(txn, segment)),
        placed_cold(txn, segment),
        published_sequence=txn.store.journal.published_sequence,
        cold_before_ms=cold_before_ms,
        start_offset=segment.start_offset,
    )
