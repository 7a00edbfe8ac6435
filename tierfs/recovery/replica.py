"""Replicas: stores that follow a bucket which another store owns, read-only, by the same replay as `recover`.

One listing shows whether there are new slots. Slots up to the newest checkpoint but one may have been deleted and
created again by a fenced owner, so they are void: a replica that has not applied them starts over from the newest
checkpoint, in a separate database, and copies the rows that differ.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.clock import Clock, SystemClock
from tierfs.config import Settings
from tierfs.errors import DataLoss, InvalidRequest, NotFound, Unavailable
from tierfs.journal import reader, replay
from tierfs.journal.names import JOURNAL_PREFIX
from tierfs.journal.reader import JournalListing
from tierfs.metadata import journal_state
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metrics import Metrics
from tierfs.parallel import Meter, OnProgress
from tierfs.recovery import replica_rows
from tierfs.recovery.from_journal import Rebuilder, meter_of
from tierfs.setup import create
from tierfs.setup.connect import connect
from tierfs.setup.create import ColdChoice, locate, warnings_of
from tierfs.store_paths import StorePaths
from tierfs.tiering.ledgers.copies import EntryRows
from tierfs.types import SegmentId

_STAGING = "metadata.next"
"""Directory in which a replica that starts over rebuilds; remains of a killed rebuild are discarded."""

_ATTEMPTS = 3
"""Listings tried: the owner may delete slots between our listing and our read; a new listing has newer ones."""


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

    def refresh(self) -> Refreshed:
        """Apply the new slots of the journal. Costs one listing when there are none.

        Raises DataLoss for a damaged journal, Unavailable while a recovery from objects has not written its
        checkpoint, and storage errors; then the replica stays as it was, or as of an earlier slot.
        """
        for _ in range(_ATTEMPTS):
            try:
                return self._refresh()
            except NotFound:
                continue  # deleted since it was listed
        raise Unavailable("the journal changes faster than it can be read", remedy="try again")

    def _refresh(self) -> Refreshed:
        applied = self._applied()
        listing = reader.list_journal(self._storage, after_slot=applied)
        if listing.epoch > journal_state.epoch_of(applied) and not listing.checkpoints:
            raise Unavailable(
                f"the bucket is being recovered from its objects, by an owner with epoch {listing.epoch}",
                remedy="wait until it has written its checkpoint",
            )
        if reader.must_start_over(listing, applied):
            self._start_over()
            return Refreshed(started_over=True, slot=self._applied())
        entries = self._apply(listing, applied)
        return Refreshed(entries=entries, slot=applied + entries)

    def _applied(self) -> int:
        with self._metadata.read() as txn:
            return txn.store.journal.next_slot - 1

    def _apply(self, listing: JournalListing, applied: int) -> int:
        """Apply every slot after `applied`, each in one transaction; return their number."""
        with self._metadata.read() as txn:
            epoch = txn.store.store_epoch
        items = reader.entries_behind(self._storage, listing, applied, epoch)
        if not items:
            return 0
        with closing(reader.read_entries(self._storage, items)) as entries:
            for entry in entries:
                self._rows.prepare(entry)
                with self._metadata.write_replayed() as txn:
                    replay.apply_entry(txn, entry)
                    replica_rows.clamp_to_cold(txn, entry)
                self._rows.restore(dict.fromkeys(_ledgers_of(entry)))
        return len(items)

    def _start_over(self) -> None:
        path = self._metadata.path.with_name(_STAGING)
        if path.exists():
            shutil.rmtree(path)
        try:
            rebuilder = Rebuilder(path, self._storage, self._location, self._metadata.clock, Meter())
            rebuilt = rebuilder.rebuild(reader.list_journal(self._storage))
            with closing(rebuilt.metadata) as fresh:
                if fresh.store_id != self._metadata.store_id:
                    raise DataLoss(f"the journal is another store's, {fresh.store_id}", remedy="make a new replica")
                replica_rows.become_replica(fresh)
                EntryRows(fresh, self._storage, fresh.write_replayed).restore_all()
                replica_rows.replace_rows(self._metadata, fresh)
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

    Raises AlreadyExists, NotFound without a journal, DataLoss when it is damaged, and storage errors; then nothing is
    left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    with create.new_directory(paths), _reached(choice, paths) as (location, storage):
        listing = reader.list_journal(storage)
        rebuilt = Rebuilder(paths.metadata, storage, location, clock, meter_of(report, listing)).rebuild(listing)
        with closing(rebuilt.metadata) as metadata:
            replica_rows.become_replica(metadata)
            unknown = EntryRows(metadata, storage, metadata.write_replayed).restore_all()
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
    if location is None or (choice.bucket_url is None and choice.cold_dir is None):
        raise InvalidRequest("a replica needs the cold tier", remedy="name it with --bucket or --cold-dir")
    with closing(connect(location, paths.root, Settings().cold, Metrics())) as storage:
        next(storage.list(JOURNAL_PREFIX), None)  # fails at once if the server does not answer
        yield location, storage
