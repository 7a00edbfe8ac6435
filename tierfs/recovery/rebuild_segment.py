"""Make a segment from its objects: records, names and the changes for the journal of a fresh store."""

from __future__ import annotations

from dataclasses import replace

from tierfs import names
from tierfs.metadata import chain_edits, chains, changes, checksums, directories, tables
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.tables import OBJECTS, SEGMENTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.recovery.cover import FoundObject, Grids, ObjectCover
from tierfs.tiering import packs
from tierfs.types import AttemptId, DirectoryId, EntryKind, Inode, ObjectId, SegmentId, Tier

PackIds = dict[str, ObjectId]
"""Ids of the packs that have a record already, by name."""


def make_segment(
    txn: WriteTransaction,
    segment_id: SegmentId,
    path: str,
    cover: ObjectCover,
    grids: Grids,
    packs: PackIds,
    *,
    suffix: bool,
) -> tuple[str, SegmentRecord]:
    """Write a segment with its cover and its gaps; return its final name and its record.

    Packs that are linked for the first time are added to `packs`. `suffix`: its name belongs to another segment. Raises
    InvalidRequest if no name can be made, before anything is linked.

    The segment is open, as its seal is unknown, and begins with its first object.
    """
    parts = names.split(path)
    if suffix:
        parts = (*parts[:-1], _suffixed(parts[-1], segment_id))
    parent_id, name, path = _place(txn, parts, segment_id)
    modified_ms = max(found.modified_ms for found in cover.chosen)
    segment = SegmentRecord(
        id=segment_id,
        parent_id=parent_id,
        name=name,
        inode=Inode(txn.allocate_id()),
        start_offset=cover.chosen[0].start,
        length=cover.chosen[-1].end,
        writer_epoch=1,
        created_ms=modified_ms,
        modified_ms=modified_ms,
        changed_ms=txn.now_ms,
        recovered_ms=txn.now_ms,
    )
    directories.add_entry(txn, parent_id, Entry(name, EntryKind.SEGMENT, segment_id))
    changes.segment_changed(txn, segment)
    for found in cover.chosen:
        segment = _link(txn, segment, found, grids[found.label], packs)
    segment = chain_edits.fill_gaps(txn, segment, cover.gaps)
    txn.put(SEGMENTS, tables.u64(segment_id), segment)
    return path, segment


def _link(
    txn: WriteTransaction, segment: SegmentRecord, found: FoundObject, grid: tuple[int, ...], packs: PackIds
) -> SegmentRecord:
    pack_id = packs.get(found.name)
    holder = None if pack_id is None else txn.get(OBJECTS, tables.u64(pack_id))
    if holder is None:
        holder = _new_object(txn, found, grid)
    if found.pack_bytes:
        packs[found.name] = holder.id
        holder = replace(holder, packed=holder.packed + 1, linked_sequence=txn.store.next_outbox)
    chunk = ChunkRecord(
        start_offset=found.start,
        length=found.length_bytes,
        object_id=holder.id,
        object_offset=found.object_offset,
    )
    if found.pack_bytes:
        chunk = replace(chunk, crc32c=found.crc32c, crc_offset=found.object_offset, crc_length=found.length_bytes)
    changed = chains.insert(txn, segment, Tier.COLD, chunk, holder)
    changes.cold_linked(txn, segment.id, (chunk,), () if pack_id is not None else (replace(holder, references=1),))
    return changed


def _new_object(txn: WriteTransaction, found: FoundObject, grid: tuple[int, ...]) -> ObjectRecord:
    named = packs.parse_name(found.name) if found.pack_bytes else None
    holder = ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=Tier.COLD,
        location_id=txn.store.cold_location_id,
        name=found.name,
        length=found.object_bytes,
        etag=found.etag,
        crc32c=found.crc32c if named is None else named.crc32c,
        store_epoch=found.epoch,
        attempt=AttemptId(found.attempt),
        created_ms=found.modified_ms,
        linked_sequence=txn.store.next_outbox,
    )
    checksums.put_grid(txn, holder.id, grid)
    return holder


def _place(txn: WriteTransaction, parts: tuple[str, ...], segment_id: SegmentId) -> tuple[DirectoryId, str, str]:
    """Make the directory of a segment; return it with the free name. A taken component gets a suffix."""
    while True:
        taken = _taken(txn, parts)
        if taken is None:
            break
        parts = names.split(names.join((*parts[:taken], _suffixed(parts[taken], segment_id), *parts[taken + 1 :])))
    parent_id, made = directories.make_directories(txn, parts[:-1])
    for record in made:
        changes.directory_changed(txn, record)
    return parent_id, parts[-1], names.join(parts)


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
