"""The mark `suspect` on a chunk: its copy failed, so the other copies of its bytes stay (invariant 8)."""

from __future__ import annotations

from dataclasses import replace

from tierfs.metadata import keys
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import CHUNKS
from tierfs.types import ChunkState, SegmentId, Tier


def mark(metadata: MetadataStore, segment_id: SegmentId, tier: Tier, chunk: ChunkRecord, state: ChunkState) -> bool:
    """Set a chunk's state unless it moved or is lost; whether that changed anything. One commit."""
    with metadata.read() as txn:
        if not _changes(txn.get(CHUNKS, keys.chunk(segment_id, tier, chunk.start_offset)), chunk, state):
            return False
    with metadata.write() as txn:
        key = keys.chunk(segment_id, tier, chunk.start_offset)
        current = txn.get(CHUNKS, key)
        if current is None or not _changes(current, chunk, state):
            return False
        txn.put(CHUNKS, key, replace(current, state=state))
        txn.touch(segment_id=segment_id)
    return True


def _changes(current: ChunkRecord | None, chunk: ChunkRecord, state: ChunkState) -> bool:
    return (
        current is not None
        and not current.lost
        and current.object_id == chunk.object_id
        and current.length >= chunk.length
        and current.state is not state
    )
