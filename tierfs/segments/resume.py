"""Going on with the chunk of a writer that closed cleanly, or refusing to go on behind bytes that are gone."""

from __future__ import annotations

from tierfs import names
from tierfs.checksum import GridBuilder
from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.errors import DataLoss, NotFound
from tierfs.metadata import chains, checksums
from tierfs.metadata.records import ChunkRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction
from tierfs.segments.active_chunk import ActiveChunk
from tierfs.types import CRC_BLOCK_BYTES, Tier


def require_whole(txn: ReadTransaction, files: ChunkFiles, segment: SegmentRecord, name: str) -> None:
    """Raise DataLoss while the active chunk's file has fewer bytes than were acknowledged.

    Asked before anything changes, so that every writer is refused until the file is whole again or fsck has
    written down what is lost: a writer that went on in a new chunk would hide it.
    """
    if not segment.active:
        return
    last = _last_chunk(txn, segment)
    holder = chains.object_of(txn, last)
    try:
        stored = files.length_bytes(holder.name)
    except NotFound:
        stored = 0
    if stored < last.object_offset + last.length:
        raise DataLoss(
            f"segment {names.printable(name)}: {holder.name} has {stored} of {last.object_offset + last.length} bytes",
            remedy="run: tierfs fsck",
        )


def resume(metadata: MetadataStore, files: ChunkFiles, segment: SegmentRecord, name: str) -> ActiveChunk:
    """The active chunk of a segment, with the running CRCs that its records hold.

    Raises DataLoss when its file is shorter than what was acknowledged.
    """
    with metadata.read() as txn:
        require_whole(txn, files, segment, name)
        last = _last_chunk(txn, segment)
        holder = chains.object_of(txn, last)
        run = checksums.run_at(txn, holder.id, last.length - 1)
    if run is None:
        raise DataLoss(
            f"segment {names.printable(name)}: {holder.name} has no checksums of its last bytes",
            remedy="run: tierfs fsck",
        )
    partial = last.length % CRC_BLOCK_BYTES
    return ActiveChunk(
        holder.name,
        holder.attempt,
        last.start_offset,
        GridBuilder(last.length, run.crc(run.count - 1) if partial else 0, holder.crc32c or 0),
        object_id=holder.id,
        directory_synced=True,
    )


def _last_chunk(txn: ReadTransaction, segment: SegmentRecord) -> ChunkRecord:
    last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.length)
    assert last is not None
    return last
