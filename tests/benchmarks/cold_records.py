"""Records of cold segments that no object backs, for benchmarks of metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tierfs.base.words.types import LocationId, ObjectId, SegmentStatus, Tier
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, TierState
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.create import create


def put_cold_segment(
    txn: WriteTransaction,
    name: str,
    chunks: int,
    chunk_bytes: int,
    *,
    status: SegmentStatus = SegmentStatus.OPEN,
    crcs: Sequence[int] = (),
) -> None:
    """A segment of so many chunks, each in an object of its own with these checksums of its blocks."""
    segment = create(txn, name)
    last = (chunks - 1) * chunk_bytes
    for start in range(0, last + 1, chunk_bytes):
        object_id = ObjectId(txn.allocate_id())
        following = start + chunk_bytes if start < last else 0
        chunk = ChunkRecord(start_offset=start, length=chunk_bytes, next=following, object_id=object_id)
        txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, start), chunk)
        attempt = f"{object_id:032x}"
        holder = ObjectRecord(
            id=object_id,
            tier=Tier.COLD,
            location_id=LocationId(1),
            name=f"segments/{name}/{segment.id}/chunk-{start:020d}-{start + chunk_bytes:020d}-e1-{attempt}",
            length=chunk_bytes,
            etag=attempt,
            references=1,
            crc32c=object_id,
            store_epoch=1,
            created_ms=txn.now_ms,
            linked_sequence=1,
        )
        txn.put(OBJECTS, tables.u64(object_id), holder)
        checksums.put_grid(txn, object_id, list(crcs))
    cold = TierState(first_chunk=0, last_chunk=last, count=chunks, bytes=chunks * chunk_bytes)
    grown = replace(segment, cold=cold, length=cold.bytes, status=status, modified_ms=txn.now_ms)
    txn.put(SEGMENTS, tables.u64(segment.id), grown)
