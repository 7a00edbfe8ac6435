"""The commit of an adoption: one segment with all its chunks, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from tierfs.adoption.plan import Extent, SegmentPlan
from tierfs.adoption.read import Sums
from tierfs.errors import AlreadyExists
from tierfs.metadata import chains, checksums, directories, journal, keys, locations
from tierfs.metadata.records import ChecksumRun, ChunkRecord, LocationRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.names import printable
from tierfs.segments import create, seal_record
from tierfs.types import EntryKind, LocationId, ObjectId, SegmentId, Tier

_LINK_CHUNKS = 256
_LINK_BYTES = 32 * 1024**3
"""A change of the journal names so many chunks, or the checksums of so many bytes (1 MiB), at most:
an entry is far below what a journal object may have, whatever one object adds to it."""

_PACKED_RUN_BYTES = checksums.RUN_BLOCKS * 4


def is_adopted(txn: ReadTransaction, plan: SegmentPlan, place: LocationRecord) -> bool:
    """Whether the segment is there already, made of the same objects.

    Raises AlreadyExists when its name stands for anything else, NotDirectory when it runs through a segment.
    """
    entry = directories.find(txn, plan.name)
    if entry is None:
        return False
    segment = directories.segment(txn, SegmentId(entry.id)) if entry.kind is EntryKind.SEGMENT else None
    if segment is None or not _same(txn, segment, plan, place):
        what = "a directory" if segment is None else "a segment of other objects or bytes"
        raise AlreadyExists(
            f"{printable(plan.name)} exists already and is {what}", remedy="choose another --into, or remove it"
        )
    return True


def link(
    metadata: MetadataStore, plan: SegmentPlan, place: LocationRecord, sums: Sequence[Sums]
) -> SegmentRecord | None:
    """Make the sealed segment; None when somebody else made the same one meanwhile.

    `place` needs no id: its record is found or made. Raises what is_adopted raises, and Fenced.
    """
    with metadata.write() as txn:
        if is_adopted(txn, plan, place):
            return None
        location = locations.register_foreign(txn, place)
        newest_ms = max((extent.object.modified_ms for extent in plan.extents), default=plan.modified_ms)
        segment = replace(
            create.create(txn, plan.name),
            start_offset=plan.start_offset,
            length=plan.end_offset,
            modified_ms=newest_ms or txn.now_ms,
        )
        for batch in _batches(plan.extents, sums):
            segment = _link_batch(txn, segment, location.id, batch)
        return seal_record.write(txn, segment)


def _link_batch(
    txn: WriteTransaction, segment: SegmentRecord, location_id: LocationId, batch: list[tuple[Extent, Sums]]
) -> SegmentRecord:
    chunks: list[ChunkRecord] = []
    holders: list[ObjectRecord] = []
    for extent, sums in batch:
        holder = _holder(txn, location_id, extent, sums)
        chunk = ChunkRecord(start_offset=extent.start_offset, length=extent.length, object_id=holder.id)
        _put_checksums(txn, holder.id, sums.packed)
        segment = chains.insert(txn, segment, Tier.COLD, chunk, holder)
        chunks.append(chunk)
        holders.append(replace(holder, references=1))
    txn.put(SEGMENTS, keys.u64(segment.id), segment)
    journal.cold_linked(txn, segment.id, chunks, holders)
    return segment


def _holder(txn: WriteTransaction, location_id: LocationId, extent: Extent, sums: Sums) -> ObjectRecord:
    return ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=Tier.COLD,
        location_id=location_id,
        name=extent.object.name,
        length=extent.object.length_bytes,
        etag=extent.object.etag,
        foreign=True,
        crc32c=sums.crc32c,
        store_epoch=txn.store.store_epoch,
        created_ms=txn.now_ms,
        linked_sequence=txn.store.next_outbox,
    )


def _put_checksums(txn: WriteTransaction, object_id: ObjectId, packed: bytes) -> None:
    for index, at in enumerate(range(0, len(packed), _PACKED_RUN_BYTES)):
        run = ChecksumRun(start=index * checksums.RUN_BYTES, crcs=packed[at : at + _PACKED_RUN_BYTES])
        checksums.put_run(txn, object_id, run)


def _batches(extents: Sequence[Extent], sums: Sequence[Sums]) -> Iterator[list[tuple[Extent, Sums]]]:
    batch: list[tuple[Extent, Sums]] = []
    size_bytes = 0
    for pair in zip(extents, sums, strict=True):
        length = pair[0].object.length_bytes
        if batch and (len(batch) == _LINK_CHUNKS or size_bytes + length > _LINK_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(pair)
        size_bytes += length
    if batch:
        yield batch


def _same(txn: ReadTransaction, segment: SegmentRecord, plan: SegmentPlan, place: LocationRecord) -> bool:
    if not segment.sealed or (segment.start_offset, segment.length) != (plan.start_offset, plan.end_offset):
        return False
    if segment.local.count:
        return False
    chunks = chains.chunks(txn, segment.id, Tier.COLD)
    return all(
        chunk is not None and extent is not None and _is_extent(txn, chunk, extent, place)
        for chunk, extent in zip_longest(chunks, plan.extents)
    )


def _is_extent(txn: ReadTransaction, chunk: ChunkRecord, extent: Extent, place: LocationRecord) -> bool:
    if chunk.lost or (chunk.start_offset, chunk.length) != (extent.start_offset, extent.length):
        return False
    holder = chains.object_of(txn, chunk)
    if (holder.foreign, holder.name, holder.etag) != (True, extent.object.name, extent.object.etag):
        return False
    return locations.same_place(locations.location(txn, holder.location_id), place)
