"""Recomputes checksums and locates objects in segments.

Recomputed checksums are right if the object's whole CRC32C, written with the object, proves the bytes. No index leads
from an object to the segments whose bytes it holds, so locating takes one pass over the chunks. Of a compressed object,
the places of its frames are read from its own seek table, which the same CRC32C proves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import proved_sums
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ByteRange, ChunkState, ObjectId, PayloadEncoding, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.engine.metadata import chains, checksums, frame_rows, tables
from tierfs.engine.metadata.message_rows import message, messages
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading import compressed_objects
from tierfs.reading.compressed_objects import CompressedSums
from tierfs.upkeep.check.findings import FindingPlace
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.segments import segment_name


def mend_checksums(metadata: MetadataStore, scrubber: Scrubber, object_id: ObjectId) -> str | None:
    """Rewrite an object's runs; return the reason if not possible. Raises NotFound, Unavailable."""
    with metadata.read() as txn:
        record = txn.get(OBJECTS, tables.u64(object_id))
    if record is None:
        return None
    if record.crc32c is None:
        return "the CRC32C of the whole is unknown too"
    frames: FrameMap | None = None
    try:
        if record.encoding is PayloadEncoding.ZSTD_FRAMES:
            sums = _proved_frames(scrubber.storage_of(record.location_id), record, record.crc32c)
            grid, frames = sums.grid, sums.frames
        else:
            grid = proved_sums(lambda: scrubber.reader.steps(record, ByteRange(0, record.length)), record.crc32c).grid()
    except DataLoss:
        return "its bytes do not match the CRC32C of the whole"
    with metadata.write() as txn:
        if txn.get(OBJECTS, tables.u64(object_id)) != record:
            return "it has changed meanwhile; run the command again"
        checksums.delete(txn, object_id)
        if frames is None:
            checksums.put_grid(txn, object_id, grid)
        else:
            frame_rows.put_compressed(txn, object_id, grid, frames, record.length)
    return None


def _proved_frames(storage: ChunkStorage, record: ObjectRecord, expected: int) -> CompressedSums:
    stored = storage.stat(record.name)
    if stored.length_bytes != record.stored_length:
        raise DataLoss(f"it has {stored.length_bytes} bytes, its record says {record.stored_length}")
    return compressed_objects.proved(storage, stored, record.length, expected)


@dataclass(frozen=True, slots=True)
class Located:
    """A chunk that lies in one of the wanted objects."""

    segment: str
    """Printable name of the segment."""
    place: FindingPlace
    chunk: ChunkRecord
    object: ObjectRecord

    @property
    def range(self) -> ByteRange:
        """The segment's bytes."""
        return self.chunk.range

    def behind(self, object_offset: int) -> ByteRange:
        """Return the chunk's bytes from an offset of its object on."""
        start = self.chunk.start_offset + max(0, object_offset - self.chunk.object_offset)
        return ByteRange(min(start, self.chunk.end_offset), self.chunk.end_offset)

    def has_other_copy(self, txn: ReadTransaction) -> bool:
        """Return whether, by their records, good chunks of the other tier hold all its bytes."""
        return self.place.tier is not None and copied(txn, self.place.segment_id, self.place.tier, self.range)


def copied(txn: ReadTransaction, segment_id: int, tier: Tier, wanted: ByteRange) -> bool:
    """Return whether, by their records, good chunks of the other tier hold all of `wanted`."""
    other = Tier.COLD if tier is Tier.LOCAL else Tier.LOCAL
    good = (
        chunk.range
        for chunk in chains.overlapping(txn, SegmentId(segment_id), other, wanted)
        if chunk.state is ChunkState.GOOD and txn.get(OBJECTS, tables.u64(chunk.object_id)) is not None
    )
    try:
        return ranges.covers(good, wanted)
    except DataLoss:
        return False


def locate(txn: ReadTransaction, tier: Tier, object_ids: Collection[int]) -> Iterator[Located]:
    """Yield the existing chunks of these objects."""
    for key, chunk in messages(txn, CHUNKS):
        if chunk is None or chunk.object_id not in object_ids or key[tables.U64_BYTES] != tier:
            continue
        segment_id = tables.read_u64(key)
        segment, record = message(txn, SEGMENTS, tables.u64(segment_id)), txn.get(OBJECTS, tables.u64(chunk.object_id))
        if segment is not None and record is not None:
            place = FindingPlace(segment_id, tier, chunk.start_offset)
            yield Located(segment_name(txn, segment), place, CHUNKS.codec.from_message(chunk), record)
