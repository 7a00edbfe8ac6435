"""The commit of an adoption: one segment with all its chunks, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tierfs.base.bytes import ranges
from tierfs.base.words.errors import Conflict
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, LocationId, ObjectId, Tier
from tierfs.engine.metadata import checksums, directories, policies
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import LocationRecord, ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments import create, sealed_record
from tierfs.tiering.adoption import grow
from tierfs.tiering.adoption.grow import Difference
from tierfs.tiering.adoption.plan import ForeignExtent
from tierfs.tiering.adoption.read import PartSums

_LINK_CHUNKS = 256
# Most chunks, and most bytes whose checksums (1 MiB), in one change of the journal: an entry then stays far below the
# limit of a journal object, with any single object added.
_LINK_BYTES = 32 * 1024**3


def link(
    metadata: MetadataStore, difference: Difference, place: LocationRecord, sums: Sequence[PartSums], *, grows: bool
) -> None:
    """Make the segment, sealed unless it `grows`, or make it what its place holds now. One commit.

    `place` needs no id: its record is found or made. `sums`: of the objects of `difference.reads`.

    Raises AlreadyExists when the name is taken meanwhile, Conflict when the segment changed, and Fenced.
    """
    with metadata.write() as txn:
        location = policies.register_foreign(txn, place)
        made = _made(txn, location.id, difference, sums)
        if difference.segment is None:
            _make(txn, difference, location, made, grows=grows)
        else:
            grow.apply(txn, difference, location, made)


def _made(
    txn: WriteTransaction, location_id: LocationId, difference: Difference, sums: Sequence[PartSums]
) -> Iterator[list[tuple[ByteRange, ObjectRecord]]]:
    """Yield the extents to link with records of their objects, in groups that fit into a change of the journal."""
    pairs = zip(difference.reads, sums, strict=True)
    for group in ranges.groups(pairs, lambda pair: pair[0].extent.object.length_bytes, _LINK_BYTES, _LINK_CHUNKS):
        yield [(read.extent.range, _new_object(txn, location_id, read.extent, part)) for read, part in group]


def _make(
    txn: WriteTransaction,
    difference: Difference,
    location: LocationRecord,
    made: Iterator[list[tuple[ByteRange, ObjectRecord]]],
    *,
    grows: bool,
) -> None:
    plan = difference.plan
    if directories.find(txn, plan.name) is not None:
        raise Conflict(f"{printable(plan.name)} was created meanwhile", remedy="adopt it again")
    newest_ms = max((extent.object.modified_ms for extent in plan.extents), default=plan.modified_ms)
    segment = replace(
        create.create(txn, plan.name),
        start_offset=plan.start_offset,
        length=plan.end_offset,
        modified_ms=newest_ms or txn.now_ms,
        grows_from=location.id if grows else 0,
    )
    editor = Editor(txn, segment)
    for group in made:
        editor.link_objects(group)
    if grows:
        editor.put(journaled=True)
    else:
        sealed_record.write(txn, editor.segment)


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
        modified_ms=extent.object.modified_ms,
    )
