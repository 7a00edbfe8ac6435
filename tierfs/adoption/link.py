"""The commit of an adoption: one segment with all its chunks, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import groupby, zip_longest

from tierfs import ranges
from tierfs.adoption.plan import ForeignExtent, SegmentPlan
from tierfs.adoption.read import PartSums
from tierfs.errors import AlreadyExists
from tierfs.metadata import chains, changes, checksums, directories, policies, tables
from tierfs.metadata.chain_edits import Editor
from tierfs.metadata.records import ChunkRecord, LocationRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.names import printable
from tierfs.segments import create
from tierfs.types import ByteRange, ChunkState, EntryKind, LocationId, ObjectId, SegmentId, Tier

_LINK_CHUNKS = 256
# Most chunks, and most bytes whose checksums (1 MiB), in one change of the journal: an entry then stays far below the
# limit of a journal object, with any single object added.
_LINK_BYTES = 32 * 1024**3


class Standing(Enum):
    """State in the store of a segment to be adopted."""

    NEW = "new"
    ADOPTED = "adopted"
    IN_DOUBT = "in doubt"
    """Adopted, but bytes of it were recorded as lost or suspect since then, or its objects have other etags."""


def standing(txn: ReadTransaction, plan: SegmentPlan, place: LocationRecord) -> Standing:
    """Return whether the segment exists already, made of the same objects.

    Raises AlreadyExists when its name stands for anything else, NotDirectory when it runs through a segment.
    """
    return standing_of(
        txn,
        plan.name,
        lambda segment: _same(txn, segment, plan, place),
        lambda segment: any(_in_doubt(txn, segment, plan)),
    )


def standing_of(
    txn: ReadTransaction, name: str, same: Callable[[SegmentRecord], bool], in_doubt: Callable[[SegmentRecord], bool]
) -> Standing:
    """Return the standing of a segment, given what tells whether it is the same, and in doubt. Raises as `standing`."""
    entry = directories.find(txn, name)
    if entry is None:
        return Standing.NEW
    segment = directories.segment(txn, SegmentId(entry.id)) if entry.kind is EntryKind.SEGMENT else None
    if segment is None or not same(segment):
        raise other_segment(name, "a directory" if segment is None else "a segment of other objects or bytes")
    return Standing.IN_DOUBT if in_doubt(segment) else Standing.ADOPTED


def link(metadata: MetadataStore, plan: SegmentPlan, place: LocationRecord, sums: Sequence[PartSums]) -> Standing:
    """Make the sealed segment, or take back its lost bytes; return its standing before.

    `place` needs no id: its record is found or made. Raises as `standing`, and Fenced.
    """
    with metadata.write() as txn:
        before = standing(txn, plan, place)
        if before is Standing.NEW:
            _make(txn, plan, place, sums)
        elif before is Standing.IN_DOUBT:
            _take_back(txn, plan, sums)
        return before


def _make(txn: WriteTransaction, plan: SegmentPlan, place: LocationRecord, sums: Sequence[PartSums]) -> None:
    location = policies.register_foreign(txn, place)
    newest_ms = max((extent.object.modified_ms for extent in plan.extents), default=plan.modified_ms)
    segment = replace(
        create.create(txn, plan.name),
        start_offset=plan.start_offset,
        length=plan.end_offset,
        modified_ms=newest_ms or txn.now_ms,
    )
    editor = Editor(txn, segment)
    pairs = zip(plan.extents, sums, strict=True)
    for batch in ranges.groups(pairs, lambda pair: pair[0].object.length_bytes, _LINK_BYTES, _LINK_CHUNKS):
        editor.link_objects((extent.range, _new_object(txn, location.id, extent, part)) for extent, part in batch)
    create.write(txn, editor.segment)


def _take_back(txn: WriteTransaction, plan: SegmentPlan, sums: Sequence[PartSums]) -> None:
    """Mark all chunks good again after all objects were read. Raises AlreadyExists if any bytes differ."""
    segment = directories.segment_by_name(txn, plan.name)
    editor = Editor(txn, segment)
    for (chunks, record), extent, part in zip(_objects(txn, segment), plan.extents, sums, strict=True):
        if record.crc32c != part.crc32c:
            raise other_segment(plan.name, f"a segment of other bytes: {printable(record.name)} is not what it was")
        if record.etag != extent.object.etag:
            changes.put(txn, OBJECTS, replace(record, etag=extent.object.etag))
        editor.restore_cold(ByteRange(chunks[0].start_offset, chunks[-1].end_offset))
    editor.put(journaled=True)


def other_segment(name: str, what: str) -> AlreadyExists:
    """Return the error for a name that is taken by something else."""
    return AlreadyExists(
        f"{printable(name)} exists already and is {what}", remedy="choose another --into, or remove it"
    )


def _new_object(txn: WriteTransaction, location_id: LocationId, extent: ForeignExtent, sums: PartSums) -> ObjectRecord:
    object_id = ObjectId(txn.allocate_id())
    checksums.put_packed(txn, object_id, sums.packed)
    return ObjectRecord(
        id=object_id,
        tier=Tier.COLD,
        location_id=location_id,
        name=extent.object.name,
        length=extent.object.length_bytes,
        etag=extent.object.etag,
        foreign=True,
        crc32c=sums.crc32c,
        store_epoch=txn.store.store_epoch,
        created_ms=txn.now_ms,
    )


def _same(txn: ReadTransaction, segment: SegmentRecord, plan: SegmentPlan, place: LocationRecord) -> bool:
    if not segment.sealed or (segment.start_offset, segment.length) != (plan.start_offset, plan.end_offset):
        return False
    if segment.local.count:
        return False
    return all(
        linked is not None and extent is not None and _is_extent(txn, linked[0], linked[1], extent, place)
        for linked, extent in zip_longest(_objects(txn, segment), plan.extents)
    )


def _in_doubt(txn: ReadTransaction, segment: SegmentRecord, plan: SegmentPlan) -> Iterator[bool]:
    for (chunks, record), extent in zip(_objects(txn, segment), plan.extents, strict=True):
        yield record.etag != extent.object.etag or any(chunk.state is not ChunkState.GOOD for chunk in chunks)


def _objects(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[tuple[list[ChunkRecord], ObjectRecord]]:
    """Yield the cold chain by objects; an object has several chunks if a part of it was recorded as lost."""
    chunks = chains.chunks(txn, segment.id, Tier.COLD)
    for object_id, pieces in groupby(chunks, key=lambda chunk: chunk.object_id):
        record = txn.get(OBJECTS, tables.u64(object_id))
        if record is not None:  # an extent that is lost for good has none
            yield list(pieces), record


def _is_extent(
    txn: ReadTransaction, chunks: list[ChunkRecord], record: ObjectRecord, extent: ForeignExtent, place: LocationRecord
) -> bool:
    length = sum(chunk.length for chunk in chunks)
    if (chunks[0].start_offset, length) != (extent.start_offset, extent.length):
        return False
    if (record.foreign, record.name, record.length) != (True, extent.object.name, extent.object.length_bytes):
        return False
    return policies.same_place(policies.location(txn, record.location_id), place)
