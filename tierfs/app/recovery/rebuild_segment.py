"""Make a segment from its objects: records, names and the changes for the journal of a fresh store."""

from __future__ import annotations

from dataclasses import replace

from tierfs.app.found_objects import FoundObject
from tierfs.app.recovery.cover import ObjectCover
from tierfs.app.recovery.verified_cover import FoundSums, SumsByLabel
from tierfs.base.bytes import recoveries
from tierfs.base.words import names
from tierfs.base.words.types import IN_PLACE, AttemptId, DirectoryId, EntryKind, Inode, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import archive_place, changes, checksums, directories, frame_rows, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.record_parts import object_version
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.packs import format as packs

# Ids of the packs that have a record already, by their keys.
PackIds = dict[tuple[bool, str], ObjectId]


def make_segment(
    txn: WriteTransaction,
    segment_id: SegmentId,
    path: str,
    cover: ObjectCover,
    sums: SumsByLabel,
    packs: PackIds,
    *,
    suffix: bool,
    usual_class: str = "",
) -> tuple[str, SegmentRecord]:
    """Write a segment with its cover and its gaps; return its final name and its record.

    Packs that are linked for the first time are added to `packs`. `suffix`: its name belongs to another segment.
    `usual_class`: the storage class of new objects; one in another class, or in the archive place, is recorded as
    archived. Raises InvalidRequest if no name can be made, before anything is linked.

    The segment is open, as its seal is unknown, and begins with its first object.
    """
    parts = names.split(path)
    if suffix:
        parts = (*parts[:-1], _suffixed(parts[-1], segment_id))
    parent_id, name, path = _place(txn, parts, segment_id)
    modified_ms = max(chosen.modified_ms for chosen in cover.chosen)
    number, end = txn.allocate_id(), cover.chosen[-1].end
    segment = SegmentRecord(
        id=segment_id,
        parent_id=parent_id,
        name=name,
        inode=Inode(number),
        start_offset=cover.chosen[0].start,
        length=end,
        writer_epoch=1,
        created_ms=modified_ms,
        modified_ms=modified_ms,
        changed_ms=txn.now_ms,
        recovered_ms=txn.now_ms,
        recoveries=recoveries.added((), number, end),
    )
    directories.add_entry(txn, parent_id, Entry(name, EntryKind.SEGMENT, segment_id))
    changes.segment_changed(txn, segment)
    for chosen in cover.chosen:
        kept_as = "" if chosen.storage_class == usual_class else chosen.storage_class
        kept_as = IN_PLACE if chosen.in_archive else kept_as
        segment = _link(txn, segment, replace(chosen, storage_class=kept_as), sums[chosen.label], packs)
    segment = Editor(txn, segment).fill_gaps(cover.gaps).segment
    txn.put(SEGMENTS, tables.u64(segment_id), segment)
    return path, segment


def _link(
    txn: WriteTransaction, segment: SegmentRecord, chosen: FoundObject, sums: FoundSums, packs: PackIds
) -> SegmentRecord:
    pack_id = packs.get(chosen.key)
    record = None if pack_id is None else txn.get(OBJECTS, tables.u64(pack_id))
    if record is None:
        record = _new_object(txn, chosen, sums)
    if chosen.pack_bytes:
        packs[chosen.key] = record.id
        record = replace(record, packed=record.packed + 1, linked_sequence=txn.store.next_outbox)
    chunk = ChunkRecord(
        start_offset=chosen.start,
        length=chosen.length_bytes,
        object_id=record.id,
        object_offset=chosen.object_offset,
    )
    if chosen.pack_bytes:
        chunk = replace(chunk, crc32c=chosen.crc32c, crc_offset=chosen.object_offset, crc_length=chosen.length_bytes)
    changed = Editor(txn, segment).insert(Tier.COLD, chunk, record).segment
    changes.cold_linked(txn, segment.id, (chunk,), () if pack_id is not None else (replace(record, references=1),))
    return changed


def _new_object(txn: WriteTransaction, chosen: FoundObject, sums: FoundSums) -> ObjectRecord:
    named = packs.parse_name(chosen.name) if chosen.pack_bytes else None
    record = ObjectRecord(
        version=object_version(chosen.storage_class),
        id=ObjectId(txn.allocate_id()),
        tier=Tier.COLD,
        location_id=archive_place.id_of(txn) if chosen.in_archive else txn.store.cold_location_id,
        name=chosen.name,
        length=chosen.object_bytes,
        etag=chosen.etag,
        crc32c=chosen.crc32c if named is None else named.crc32c,
        store_epoch=chosen.epoch,
        attempt=AttemptId(chosen.attempt),
        created_ms=chosen.modified_ms,
        linked_sequence=txn.store.next_outbox,
        archive_class=chosen.storage_class,
    )
    if sums.frames is None:
        checksums.put_grid(txn, record.id, sums.grid)
        return record
    frame_rows.put_compressed(txn, record.id, sums.grid, sums.frames, record.length)
    return frame_rows.as_compressed(record, chosen.compressed_bytes, sums.stored_crc32c)


def _place(txn: WriteTransaction, parts: tuple[str, ...], segment_id: SegmentId) -> tuple[DirectoryId, str, str]:
    """Make the directory of a segment; return it with the free name. A taken component gets a suffix."""
    while True:
        taken = _taken(txn, parts)
        if taken is None:
            break
        parts = names.split(names.join((*parts[:taken], _suffixed(parts[taken], segment_id), *parts[taken + 1 :])))
    return directories.make_directories(txn, parts[:-1]), parts[-1], names.join(parts)


def _taken(txn: WriteTransaction, parts: tuple[str, ...]) -> int | None:
    """Return the index of the path's component that is taken already, or None."""
    for depth in range(1, len(parts)):
        entry = directories.find(txn, names.join(parts[:depth]))
        if entry is None:
            return None
        if entry.kind is EntryKind.SEGMENT:
            return depth - 1
    return None if directories.find(txn, names.join(parts)) is None else len(parts) - 1


def _suffixed(part: str, segment_id: SegmentId) -> str:
    """Return the component followed by the segment's id, cut to the longest allowed name."""
    suffix = f".{segment_id}"
    kept = part.encode()[: names.MAX_COMPONENT_BYTES - len(suffix)].decode(errors="ignore")
    return kept + suffix
