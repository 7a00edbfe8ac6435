"""Mends records: each function is one commit and decides again inside it whether its mend is right.

A function returns None when it is done, or the reason nothing was changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

from tierfs.base.words import object_names
from tierfs.base.words.types import ByteRange, DirectoryId, EntryKind, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore import local_files
from tierfs.engine.metadata import chains, changes, checksums, directories, empty_ledgers, entries, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.message_rows import message, messages
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord, TierState
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, DIRECTORIES, DIRENTS, OBJECTS, POLICIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import ledgers as ledger_attempts
from tierfs.upkeep.check import rows, tree
from tierfs.upkeep.check.findings import FindingPlace

CHANGED = "it has changed meanwhile; run the command again"


def raise_counters(txn: WriteTransaction) -> None:
    """Raise every counter above the numbers already given."""
    least = rows.least_counters(txn)
    changed = {name: value for name, value in least.items() if getattr(txn.store, name) < value}
    txn.update_store(**changed)


def drop_row(txn: WriteTransaction, database: bytes, key: bytes) -> str | None:
    """Remove a row that leads nowhere or must not be obeyed."""
    if not _still_wrong(txn, database, key):
        return CHANGED
    txn.delete(database, key)
    if database == DIRENTS.name:
        parent = txn.get(DIRECTORIES, key[: tables.U64_BYTES])
        if parent is not None:
            txn.touch(parent_inode=parent.inode, name=tables.dirent_name(key))
    return None


def _still_wrong(txn: ReadTransaction, database: bytes, key: bytes) -> bool:
    if database == DIRENTS.name:
        return any(finding.mend is not None for finding in tree.check_dirent(txn, key, message(txn, DIRENTS, key)))
    if database == POLICIES.name:
        return not any(txn.get_raw(table.name, key) for table in (DIRECTORIES, SEGMENTS))
    if database == CHECKSUMS.name:
        return txn.get_raw(OBJECTS.name, key[: tables.U64_BYTES]) is None
    return True  # intents, garbage and the outbox change under the holder's lock only


def add_dirent(txn: WriteTransaction, database: bytes, key: bytes) -> str | None:
    """Put a record's name into its directory."""
    kind = EntryKind.SEGMENT if database == SEGMENTS.name else EntryKind.DIRECTORY
    record = txn.get(SEGMENTS, key) if kind is EntryKind.SEGMENT else txn.get(DIRECTORIES, key)
    if record is None or txn.get_raw(DIRENTS.name, tables.dirent(record.parent_id, record.name)) is not None:
        return CHANGED
    directories.add_entry(txn, DirectoryId(record.parent_id), Entry(record.name, kind, record.id))
    return None


def relink_chain(txn: WriteTransaction, place: FindingPlace) -> str | None:
    """Rebuild the pointers, first, last, count and bytes of a chain from its chunks in key order."""
    segment = directories.segment(txn, SegmentId(place.segment_id))
    assert place.tier is not None
    if segment is None:
        return "it was deleted meanwhile"
    chain = list(chains.chunks(txn, segment.id, place.tier))
    if any(chunk.end_offset > other.start_offset for chunk, other in pairwise(chain)):
        return "its chunks overlap"
    following = [*(chunk.start_offset for chunk in chain[1:]), 0]
    changed = [
        replace(chunk, next=after) for chunk, after in zip(chain, following, strict=False) if chunk.next != after
    ]
    for chunk in changed:
        txn.put(CHUNKS, tables.chunk(segment.id, place.tier, chunk.start_offset), chunk)
    put_state(txn, segment, place.tier, _state_of(chain))
    return None


def _state_of(chain: list[ChunkRecord]) -> TierState:
    if not chain:
        return TierState()
    held = sum(chunk.held_bytes for chunk in chain)
    return TierState(first_chunk=chain[0].start_offset, last_chunk=chain[-1].start_offset, count=len(chain), bytes=held)


def put_state(txn: WriteTransaction, segment: SegmentRecord, tier: Tier, state: TierState) -> None:
    """Write a segment with a new state of one chain."""
    changed = replace(segment, local=state) if tier is Tier.LOCAL else replace(segment, cold=state)
    if changed.active and not changed.local.count:
        changed = replace(changed, active=False, resumable=False)
    Editor(txn, changed).put(journaled=tier is Tier.COLD)


def clear_active(txn: WriteTransaction, place: FindingPlace) -> str | None:
    """Clear the active flag; the next append begins another chunk."""
    segment = directories.segment(txn, SegmentId(place.segment_id))
    if segment is None:
        return "it was deleted meanwhile"
    Editor(txn, replace(segment, active=False, resumable=False)).put(journaled=False)
    return None


def unlink(txn: WriteTransaction, place: FindingPlace) -> str | None:
    """Remove a chunk that does not match its object from its chain; the object's references are counted later."""
    segment = directories.segment(txn, SegmentId(place.segment_id))
    assert place.tier is not None
    key = tables.chunk(place.segment_id, place.tier, place.start_offset)
    chunk = txn.get(CHUNKS, key)
    if segment is None or chunk is None:
        return CHANGED
    txn.delete(CHUNKS.name, key)
    if place.tier is Tier.COLD:
        changes.cold_unlinked(txn, segment.id, (place.start_offset,))
    return relink_chain(txn, place)


def recount(txn: WriteTransaction, object_ids: Collection[int]) -> None:
    """Recount the references of some objects over all chunks."""
    counted: Counter[int] = Counter()
    for _, chunk in messages(txn, CHUNKS):
        if chunk is not None and chunk.object_id in object_ids:
            counted[chunk.object_id] += 1
    for object_id, references in counted.items():
        record = txn.get(OBJECTS, tables.u64(object_id))
        if record is not None:
            txn.put(OBJECTS, tables.u64(object_id), replace(record, references=references))


def collect_unused(
    txn: WriteTransaction, object_ids: Collection[int], proved: Collection[int]
) -> dict[int, str | None]:
    """Forget objects that no chunk points to; `gc` finds them from then on. Returns per object the reason if kept.

    `proved`: objects whose bytes were just read in another copy. Any other may be the only copy of what a lost
    record named: it stays.
    """
    used = {chunk.object_id for _, chunk in messages(txn, CHUNKS) if chunk is not None}
    reasons: dict[int, str | None] = {}
    for object_id in object_ids:
        if object_id in used or txn.get_raw(OBJECTS.name, tables.u64(object_id)) is None:
            reasons[object_id] = CHANGED
        elif object_id not in proved:
            reasons[object_id] = "its bytes may be the only copy of a chunk whose record is lost"
        else:
            txn.delete(OBJECTS.name, tables.u64(object_id))
            checksums.delete(txn, ObjectId(object_id))
            reasons[object_id] = None
    return reasons


def made_for(txn: ReadTransaction, object_id: int) -> tuple[SegmentId, ByteRange] | None:
    """Return the segment and its readable bytes that an object's name states, or None if unknown."""
    record = txn.get(OBJECTS, tables.u64(object_id))
    local = record is not None and record.tier is Tier.LOCAL
    parsed = (local_files.NAME if local else object_names.CHUNK).fullmatch(record.name) if record is not None else None
    if record is None or parsed is None:
        return None
    base = 16 if local else 10
    segment = directories.segment(txn, SegmentId(int(parsed["segment"], base)))
    start = int(parsed["start"], base)
    return None if segment is None else (segment.id, ByteRange(start, start + record.length).intersect(segment.range))


def drop_chunks(txn: WriteTransaction, place: FindingPlace) -> str | None:
    """Remove the chunks of a segment that has neither a record nor a name."""
    prefix = tables.u64(place.segment_id)
    if txn.get_raw(SEGMENTS.name, prefix) is not None or _named(txn, place.segment_id):
        return "a name refers to this segment: only its record is lost"
    chunks = list(messages(txn, CHUNKS, prefix=prefix))
    if any(chunk is not None and txn.get_raw(OBJECTS.name, tables.u64(chunk.object_id)) for _, chunk in chunks):
        return "their objects may contain the only copy of its bytes: tierfs recover, tierfs restore"
    for key, _ in chunks:
        txn.delete(CHUNKS.name, key)
    return None


def forget_offload(txn: WriteTransaction, place: FindingPlace) -> str | None:
    """Forget the objects of a ledger of empty entries, which is due to be offloaded from then on."""
    segment = directories.segment(txn, SegmentId(place.segment_id))
    if segment is None:
        return None
    ledger = entries.find(txn, segment.id)
    sequence = entries.put_ledger(txn, empty_ledgers.not_offloaded(ledger))
    ledger_attempts.discard(txn, ledger, due_ms=txn.now_ms, after_sequence=sequence)
    txn.touch(inode=segment.inode, segment_id=segment.id)
    return None


def _named(txn: ReadTransaction, segment_id: int) -> bool:
    return any(
        dirent is not None and dirent.kind == EntryKind.SEGMENT and dirent.id == segment_id
        for _, dirent in messages(txn, DIRENTS)
    )
