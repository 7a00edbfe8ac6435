"""The rows of a replica: segments end where the bucket's bytes do (design §6, after a loss).

A segment's record includes bytes that only the owner's disk holds. Until they are cold, a replica shows the segment
open and up to the first gap, so a file never shrinks, and one that looks sealed never grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.types import SegmentId, SegmentStatus, Tier
from tierfs.engine.metadata import chains, directories, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.ledger_records import LedgerRecord
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.record_parts import NOTHING_HELD_BACK, OwnerView
from tierfs.engine.metadata.records import GarbageRecord, SegmentRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import (
    CHECKSUMS,
    CHUNKS,
    DIRECTORIES,
    DIRENTS,
    ENTRIES,
    FAILURES,
    GARBAGE,
    LEDGERS,
    LOCATIONS,
    OBJECTS,
    POLICIES,
    RESERVED_NAMES,
    SEGMENTS,
)
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

_BATCH_ROWS = 1000

# Ledgers whose rows of entries are copied in one transaction: a row has up to 12 KiB (a guess).
_BATCH_LEDGERS = 20

# Databases whose changes need no notification to mounts.
_PLAIN_NAMES = (OBJECTS.name, CHECKSUMS.name, *RESERVED_NAMES)

# A key, and its values before and after.
_Difference = tuple[bytes, bytes | None, bytes | None]


def clamp_to_cold(txn: WriteTransaction, entry: pb.JournalEntry) -> None:
    """End the segments that an entry changed where their cold bytes do; call it in the transaction that applied it."""
    for segment_id in sorted({segment_id for change in entry.changes for segment_id in _segments_of(change)}):
        segment = directories.segment(txn, SegmentId(segment_id))
        if segment is not None:
            _clamp(txn, segment)


def become_replica(metadata: MetadataStore, report: OnProgress = unseen) -> None:
    """Make a rebuilt store a replica: clamp every segment to its cold bytes, and drop garbage, which is the owner's."""

    def clamp(txn: WriteTransaction, rows: list[tuple[bytes, SegmentRecord]]) -> None:
        txn.update_store(replica=True)
        for _, segment in clamped.each(rows, "ending segments at their cold bytes"):
            _clamp(txn, segment)

    def forget(txn: WriteTransaction, rows: list[tuple[bytes, GarbageRecord]]) -> None:
        for key, _ in rows:
            txn.delete(GARBAGE.name, key)

    with metadata.read() as view:
        clamped = Meter(report, total_items=view.count(SEGMENTS.name))
    for _ in chain(
        batches(metadata.write_replayed, SEGMENTS, _BATCH_ROWS, clamp),
        batches(metadata.write_replayed, GARBAGE, _BATCH_ROWS, forget),
    ):
        pass


def show_as_owner(metadata: MetadataStore) -> None:
    """Give the segments of a replica's rows the end and the seal that the journal has of them."""
    with metadata.read() as view:
        held_back = (key for key, row in messages(view, SEGMENTS) if row is not None and row.owner_view.length)
        while keys := list(islice(held_back, _BATCH_ROWS)):
            with metadata.write_replayed() as txn:
                for key in keys:
                    segment = txn.must_get(SEGMENTS, key, "a segment")
                    owner = segment.owner_view
                    ended = replace(segment, length=owner.length, status=owner.status, sealed_ms=owner.sealed_ms)
                    txn.put(SEGMENTS, key, replace(ended, owner_view=OwnerView()))


def replace_rows(metadata: MetadataStore, source: MetadataStore) -> None:
    """Copy another replica's rows in one transaction; only differing rows are written and notified to mounts."""
    with metadata.read() as old, source.read() as new, metadata.write_replayed() as txn:
        _replace(txn, old, new)


def become_owner(metadata: MetadataStore, source: MetadataStore) -> None:
    """Copy the rows of the bucket's new owner over a replica's, which is the owner from then on, in one transaction."""
    with metadata.read() as old, source.read() as new, metadata.write_replayed() as txn:
        _replace(txn, old, new)
        for difference in _differences(old, new, GARBAGE.name):
            _write(txn, GARBAGE.name, difference)
        place = tables.u32(new.store.cold_location_id)
        txn.put(LOCATIONS, place, new.must_get(LOCATIONS, place, "the cold tier"))  # with what its server honours
        for key, _ in list(old.scan_raw(FAILURES.name)):  # of the replica's only work
            txn.delete(FAILURES.name, key)
        txn.update_store(replica=False, next_garbage=new.store.next_garbage, clock_seen=new.store.clock_seen)


def keep_entries(replica: MetadataStore, fresh: MetadataStore) -> None:
    """Give the next owner the rows of ledgers' entries that a replica has, where they are those of its objects.

    The journal does not carry them, and reading their copies costs requests for each ledger. Names of objects are
    never used twice: the same objects in both have the same rows. Others go, and are left for EntryRows.
    """

    def copy(txn: WriteTransaction, rows: list[tuple[bytes, LedgerRecord]]) -> None:
        with replica.read() as known:
            for key, _ in rows:
                if (names := _object_names(txn, key)) and names == _object_names(known, key):
                    for row_key, value in known.scan_raw(ENTRIES.name, key, prefix=key):
                        txn.put_raw(ENTRIES.name, row_key, value)
                    continue
                for row_key in [row_key for row_key, _ in txn.scan_raw(ENTRIES.name, key, prefix=key)]:
                    txn.delete(ENTRIES.name, row_key)

    for _ in batches(fresh.write, LEDGERS, _BATCH_LEDGERS, copy):
        pass


def _object_names(txn: ReadTransaction, key: bytes) -> list[tuple[str, str]]:
    """Return the names of the cold objects of a segment, and of the copies of its entries, in order."""
    chunks = chains.chunks(txn, SegmentId(tables.read_u64(key)), Tier.COLD)
    records = (chains.object_of(txn, chunk) for chunk in chunks if chunk.object_id)
    return [(record.name, record.entries_name) for record in records]


def _replace(txn: WriteTransaction, old: ReadTransaction, new: ReadTransaction) -> None:
    for name in _PLAIN_NAMES:
        for difference in _differences(old, new, name):
            _write(txn, name, difference)
    for difference in _differences(old, new, LOCATIONS.name):
        if difference[1] is None:  # keep this host's own connection settings of known locations
            _write(txn, LOCATIONS.name, difference)
    moved = _replace_chunks(txn, old, new)
    _replace_names(txn, old, new)
    _replace_segments(txn, old, new, moved)
    txn.update_store(
        next_id=new.store.next_id,
        next_outbox=new.store.next_outbox,
        store_epoch=new.store.store_epoch,
        journal=new.store.journal,
    )


def _segments_of(change: pb.Change) -> Sequence[int]:
    """Return the ids of the segments whose end may have moved."""
    kind = change.WhichOneof("body")
    if kind == "segment":
        return (change.segment.id,)
    if kind == "cold_link":
        return (change.cold_link.segment_id,)
    if kind == "pack_link":
        return [link.segment_id for link in change.pack_link.links]
    return (change.cold_unlink.segment_id,) if kind == "cold_unlink" else ()


def _clamp(txn: WriteTransaction, segment: SegmentRecord) -> None:
    owner = segment.owner_view
    if not owner.length:
        owner = OwnerView(length=segment.length, status=segment.status, sealed_ms=segment.sealed_ms)
    end = min(owner.length, chains.cold_end(txn, segment, lost_too=True))
    if end == segment.length and segment.owner_view is NOTHING_HELD_BACK:
        return  # nearly all of a store at rest
    if end == owner.length:
        shown = replace(segment, length=end, status=owner.status, sealed_ms=owner.sealed_ms, owner_view=OwnerView())
    else:
        shown = replace(segment, length=end, status=SegmentStatus.OPEN, sealed_ms=0, owner_view=owner)
    if shown != segment:
        txn.put(SEGMENTS, tables.u64(shown.id), shown)
        txn.touch(inode=shown.inode, segment_id=shown.id)


def _differences(old: ReadTransaction, new: ReadTransaction, name: bytes) -> Iterator[_Difference]:
    """Yield the rows that differ, in key order; streams both sides."""
    before, after = old.scan_raw(name), new.scan_raw(name)
    left, right = next(before, None), next(after, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield left[0], left[1], None
            left = next(before, None)
        elif left is None or right[0] < left[0]:
            yield right[0], None, right[1]
            right = next(after, None)
        else:
            if left[1] != right[1]:
                yield left[0], left[1], right[1]
            left, right = next(before, None), next(after, None)


def _write(txn: WriteTransaction, name: bytes, difference: _Difference) -> None:
    key, _, value = difference
    if value is None:
        txn.delete(name, key)
    else:
        txn.put_raw(name, key, value)


def _replace_chunks(txn: WriteTransaction, old: ReadTransaction, new: ReadTransaction) -> set[int]:
    """Copy the chunks that differ; return the ids of their segments."""
    moved = set[int]()
    for difference in _differences(old, new, CHUNKS.name):
        _write(txn, CHUNKS.name, difference)
        moved.add(tables.read_u64(difference[0]))
    return moved


def _replace_names(txn: WriteTransaction, old: ReadTransaction, new: ReadTransaction) -> None:
    for difference in _differences(old, new, DIRENTS.name):
        _write(txn, DIRENTS.name, difference)
        parent_id = difference[0][: tables.U64_BYTES]
        parent = old.get(DIRECTORIES, parent_id) or new.get(DIRECTORIES, parent_id)
        if parent is not None:
            txn.touch(parent_inode=parent.inode, name=tables.dirent_name(difference[0]))
    for difference in _differences(old, new, DIRECTORIES.name):
        _write(txn, DIRECTORIES.name, difference)
        before = old.get(DIRECTORIES, difference[0])
        if before is not None:
            txn.touch(inode=before.inode)
    policies = list(_differences(old, new, POLICIES.name))
    for difference in policies:
        _write(txn, POLICIES.name, difference)
    if policies:
        txn.touch(policies=True)


def _replace_segments(txn: WriteTransaction, old: ReadTransaction, new: ReadTransaction, moved: set[int]) -> None:
    """Copy the segments that differ. A generation counts this database's changes: never copied, it only increases."""
    for key, before, after in _differences(old, new, SEGMENTS.name):
        segment_id = tables.read_u64(key)
        has_moved = segment_id in moved
        moved.discard(segment_id)
        old_record = None if before is None else SEGMENTS.codec.decode(before)
        if after is None:
            txn.delete(SEGMENTS.name, key)
        else:
            new_record = SEGMENTS.codec.decode(after)
            if old_record is not None:
                new_record = replace(new_record, generation=old_record.generation + has_moved)
                if SEGMENTS.codec.encode(new_record) == before:
                    continue
            txn.put(SEGMENTS, key, new_record)
        _touch(txn, segment_id, old_record, after)
    for segment_id in moved:
        segment = directories.segment(txn, SegmentId(segment_id))
        if segment is not None:
            txn.put(SEGMENTS, tables.u64(segment_id), replace(segment, generation=segment.generation + 1))
            txn.touch(inode=segment.inode, segment_id=segment_id)


def _touch(txn: WriteTransaction, segment_id: int, before: SegmentRecord | None, after: bytes | None) -> None:
    if before is not None:
        txn.touch(inode=before.inode, segment_id=segment_id)
    elif after is not None:
        txn.touch(inode=SEGMENTS.codec.decode(after).inode, segment_id=segment_id)
