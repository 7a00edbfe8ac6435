"""Replicas: stores that follow a bucket which another store owns, read-only, by the same replay as `recover`.

One listing shows whether there are new slots. Slots up to the newest checkpoint but one may have been deleted and
created again by a fenced owner, so they are void: a replica that has not applied them starts over from the newest
checkpoint, in a separate database, and copies the rows that differ.

The rows of a replica: segments end where the bucket's bytes do (design §6, after a loss).

A segment's record includes bytes that only the owner's disk holds. Until they are cold, a replica shows the segment
open and up to the first gap, so a file never shrinks, and one that looks sealed never grows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from tierfs.app.recovery.from_journal import Rebuilder, meter_of
from tierfs.app.setup import create
from tierfs.app.setup.connect import connect
from tierfs.app.setup.create import ColdChoice, locate, warnings_of
from tierfs.base.bytes.progress import Meter, OnProgress, doing, unseen
from tierfs.base.options.config import Settings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.prometheus import Metrics
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.types import SegmentId, SegmentStatus
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import cold_identity, left, reader, replay
from tierfs.engine.journal.names import JOURNAL_PREFIX, slot_name
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata import chains, directories, epoch_numbers, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.record_parts import OwnerView
from tierfs.engine.metadata.records import GarbageRecord, LocationRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import (
    CHECKSUMS,
    CHUNKS,
    DIRECTORIES,
    DIRENTS,
    GARBAGE,
    LOCATIONS,
    OBJECTS,
    POLICIES,
    RESERVED_NAMES,
    SEGMENTS,
)
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction, batches
from tierfs.tiering.ledgers.entry_rows import EntryRows

_BATCH_ROWS = 1000

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


def replace_rows(metadata: MetadataStore, source: MetadataStore) -> None:
    """Copy another replica's rows in one transaction; only differing rows are written and notified to mounts."""
    with metadata.read() as old, source.read() as new, metadata.write_replayed() as txn:
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


# Directory in which a replica that starts over rebuilds; remains of a killed rebuild are discarded.
_STAGING = "metadata.next"

# A replica at rest lists the journal so often. Between two listings it looks for the next slot alone: on S3 a HEAD
# costs a twelfth of a LIST. Only a listing shows a recovery from objects, which begins in another range of slots, the
# note of a move, and that slots not yet applied were deleted.
LIST_EVERY_S = 60.0

# Listings tried: the owner may delete slots between our listing and our read; a new listing has newer ones.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """The bucket that a new replica follows, and its state."""

    path: Path
    store_id: str
    store_epoch: int
    cold_url: str
    slot: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Result of a refresh."""

    entries: int = 0
    """Slots that were applied."""
    started_over: bool = False
    """Whether the replica was rebuilt from the newest checkpoint."""
    slot: int = 0
    """The last slot that the replica has applied."""


class Follower:
    """Updater of one replica. Used by one thread of one process at a time: the store's holder."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, location: LocationRecord) -> None:
        self._metadata = metadata
        self._storage = storage
        self._location = location
        self._rows = EntryRows(metadata, storage, metadata.write_replayed)
        self._listed_s: float | None = None
        """Time since boot of the last listing whose slots were applied; None before the first, and after an error."""

    def refresh(self, report: OnProgress = unseen) -> Refreshed:
        """Apply the new slots of the journal. Without any it costs one listing in LIST_EVERY_S, else one stat.

        Raises WrongColdTier once all slots of a place are applied that the owner has left, naming the new one; DataLoss
        for a damaged journal, Unavailable while a recovery from objects has not written its
        checkpoint, and storage errors; then the replica stays as it was, or as of an earlier slot.
        """
        now_s = self._metadata.clock.boot_s()
        listed_s, self._listed_s = self._listed_s, None
        if listed_s is not None and 0 <= now_s - listed_s < LIST_EVERY_S and self._lacks_next_slot():
            self._listed_s = listed_s
            return Refreshed(slot=self._applied())
        for _ in range(_ATTEMPTS):
            try:
                done = self._refresh(report)
            except NotFound:
                continue  # deleted since it was listed
            self._listed_s = now_s
            return done
        raise Unavailable("the journal changes faster than it can be read", remedy="try again")

    def _lacks_next_slot(self) -> bool:
        try:
            self._storage.stat(slot_name(self._applied() + 1))
        except NotFound:
            return True
        except PermissionDenied:  # S3 answers so where a policy allows listings of some prefixes alone
            return False
        return False

    def _refresh(self, report: OnProgress) -> Refreshed:
        applied = self._applied()
        listing = reader.list_journal(self._storage, after_slot=applied)
        if listing.epoch > epoch_numbers.epoch_of(applied) and not listing.checkpoints:
            raise Unavailable(
                f"the bucket is being recovered from its objects, by an owner with epoch {listing.epoch}",
                remedy="wait until it has written its checkpoint",
            )
        if reader.must_start_over(listing, applied):
            self._start_over(report)
            done = Refreshed(started_over=True, slot=self._applied())
        else:
            entries = self._apply(listing, applied, report)
            done = Refreshed(entries=entries, slot=applied + entries)
        if listing.noted >= done.slot:
            raise left.error(self._storage, listing.noted, cold_identity.FOLLOW)
        return done

    def _applied(self) -> int:
        with self._metadata.read() as txn:
            return txn.store.journal.next_slot - 1

    def _apply(self, listing: JournalListing, applied: int, report: OnProgress) -> int:
        """Apply every slot after `applied`, each in one transaction; return their number."""
        with self._metadata.read() as txn:
            epoch = txn.store.store_epoch
        items = reader.entries_behind(self._storage, listing, applied, epoch)
        if not items:
            return 0
        meter = Meter(report, sum(item.length_bytes for item in items), len(items), "journal object")
        with closing(reader.read_entries(self._storage, items)) as entries:
            for item, entry in zip(items, entries, strict=True):
                self._rows.prepare(entry)
                with self._metadata.write_replayed() as txn:
                    replay.apply_entry(txn, entry)
                    clamp_to_cold(txn, entry)
                self._rows.restore(dict.fromkeys(_ledgers_of(entry)))
                meter(item.length_bytes, item.name, 1)
        return len(items)

    def _start_over(self, report: OnProgress) -> None:
        path = self._metadata.path.with_name(_STAGING)
        if path.exists():
            shutil.rmtree(path)
        try:
            listing = reader.list_journal(self._storage)
            meter = meter_of(report, listing)
            rebuilt = Rebuilder(path, self._storage, self._location, self._metadata.clock, meter).rebuild(listing)
            with closing(rebuilt.metadata) as fresh:
                if fresh.store_id != self._metadata.store_id:
                    raise DataLoss(f"the journal is another store's, {fresh.store_id}", remedy="make a new replica")
                become_replica(fresh, report)
                EntryRows(fresh, self._storage, fresh.write_replayed).restore_all(report)
                report(doing("copying the rows that differ"))
                replace_rows(self._metadata, fresh)
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _ledgers_of(entry: pb.JournalEntry) -> Iterator[SegmentId]:
    """Yield the ids of an entry's changed segments, with all ledgers among them."""
    for change in entry.changes:
        if change.HasField("cold_link"):
            yield SegmentId(change.cold_link.segment_id)
        elif change.HasField("ledger"):
            yield SegmentId(change.ledger.segment_id)


def create_replica(path: Path, choice: ColdChoice, report: OnProgress, clock: Clock | None = None) -> ReplicaReport:
    """Make a store in `path`, which must be missing or empty, that follows the bucket and changes nothing there.

    Raises AlreadyExists, NotFound without a journal, WrongColdTier for a place that a move left, DataLoss when it is
    damaged, and storage errors; then nothing is left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    with create.new_directory(paths), _reached(choice, paths) as (location, storage):
        listing = reader.list_journal(storage)
        if listing.is_moving:
            left.require_moved(storage, "follow the other one until then: tierfs replica {option}")
        if listing.is_left:
            raise left.error(storage, listing.noted, "follow the new one: tierfs replica {option}")
        rebuilt = Rebuilder(paths.metadata, storage, location, clock, meter_of(report, listing)).rebuild(listing)
        with closing(rebuilt.metadata) as metadata:
            become_replica(metadata, report)
            unknown = EntryRows(metadata, storage, metadata.write_replayed).restore_all(report)
            with metadata.read() as txn:
                store = txn.store
        create.create_files(paths)
        create.write_settings(paths)
    warnings = (*rebuilt.warnings, *unknown, *warnings_of(paths, location))
    return ReplicaReport(
        paths.root, store.store_id, store.store_epoch, location.url, store.journal.next_slot - 1, warnings
    )


@contextmanager
def _reached(choice: ColdChoice, paths: StorePaths) -> Iterator[tuple[LocationRecord, ChunkStorage]]:
    """Yield the named cold tier, connected but not probed: a replica may have no right to write there."""
    location = locate(choice)
    if location is None or not choice.names_a_place:
        raise InvalidRequest("a replica needs the cold tier", remedy="name it: --bucket, --cold-url or --cold-dir")
    with closing(connect(location, paths.root, Settings().cold, Metrics())) as storage:
        next(storage.list(JOURNAL_PREFIX), None)  # fails at once if the server does not answer
        yield location, storage
