"""Going on with the chunk of a writer that closed cleanly."""

from __future__ import annotations

from tierfs import names
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.errors import DataLoss
from tierfs.metadata import chains, checksums
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.segments.active_chunk import ActiveChunk
from tierfs.types import CRC_BLOCK_BYTES, Tier


def resume(metadata: MetadataStore, files: ChunkFiles, segment: SegmentRecord, name: str) -> ActiveChunk:
    """The active chunk of a segment, with the running CRCs that its records hold.

    Raises DataLoss when its file is shorter than what was acknowledged.
    """
    with metadata.read() as txn:
        last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.length)
        assert last is not None
        holder = chains.object_of(txn, last)
        run = checksums.run_at(txn, holder.id, last.length - 1)
    stored = files.length_bytes(holder.name)
    if stored < last.length or run is None:
        raise DataLoss(
            f"segment {names.printable(name)}: {holder.name} has {stored} of {last.length} bytes",
            remedy="run: tierfs fsck",
        )
    partial = last.length % CRC_BLOCK_BYTES
    return ActiveChunk(
        holder.name,
        holder.attempt,
        last.start_offset,
        length=last.length,
        object_id=holder.id,
        tail_crc=run.crc(run.count - 1) if partial else 0,
        whole_crc=holder.crc32c or 0,
        directory_synced=True,
    )
