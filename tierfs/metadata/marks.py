"""The mark `suspect` on a chunk: its copy failed, so the other copies of its bytes stay (invariant 8)."""

from __future__ import annotations

from dataclasses import replace

from tierfs.metadata import chain_cuts, directories, keys
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import CHUNKS
from tierfs.types import ChunkState, SegmentId, Tier


def mark(metadata: MetadataStore, segment_id: SegmentId, tier: Tier, chunk: ChunkRecord, state: ChunkState) -> bool:
    """Set a chunk's state unless it moved; whether that changed anything. One commit.

    A lost chunk stays lost until it is marked good: then every byte of it was read and proved right.
    """
    if not is_needed(metadata, segment_id, tier, chunk, state):
        return False
    key = keys.chunk(segment_id, tier, chunk.start_offset)
    with metadata.write() as txn:
        current, segment = txn.get(CHUNKS, key), directories.segment(txn, segment_id)
        if current is None or segment is None or not _changes(current, tier, chunk, state):
            return False
        if current.lost:
            chain_cuts.put_segment(txn, chain_cuts.restore(txn, segment, tier, current), journaled=True)
            return True
        txn.put(CHUNKS, key, replace(current, state=state))
        txn.touch(segment_id=segment_id)
    return True


def is_needed(
    metadata: MetadataStore, segment_id: SegmentId, tier: Tier, chunk: ChunkRecord, state: ChunkState
) -> bool:
    """Whether `mark` would change anything as of now."""
    with metadata.read() as view:
        return _changes(view.get(CHUNKS, keys.chunk(segment_id, tier, chunk.start_offset)), tier, chunk, state)


def _changes(current: ChunkRecord | None, tier: Tier, chunk: ChunkRecord, state: ChunkState) -> bool:
    if current is None:
        return False
    # What was joined to it since, nobody has read; but a local chunk that is not lost only grows by appends.
    grows = state is not ChunkState.GOOD or (tier is Tier.LOCAL and not current.lost)
    return (
        (not current.lost or (chunk.lost and state is ChunkState.GOOD))
        and current.object_id == chunk.object_id
        and (current.length == chunk.length or (grows and current.length > chunk.length))
        and current.state is not state
    )
