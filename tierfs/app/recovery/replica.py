"""Replicas: stores that follow a bucket which another store owns, read-only, by the same replay as `recover`.

One listing shows whether there are new slots. Slots up to the newest checkpoint but one may have been deleted and
created again by a fenced owner, so they are void: a replica that has not applied them starts over from the newest
checkpoint, in a separate database, and copies the rows that differ.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tierfs.app.recovery import given_archive
from tierfs.app.recovery.from_journal import ON_OWNER, Rebuilder, Rebuilt, meter_of
from tierfs.app.recovery.replica_rows import become_replica, clamp_to_cold, replace_rows
from tierfs.app.setup import store_directory
from tierfs.app.setup.create import warnings_of
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, doing, unseen
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import DataLoss, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.types import SegmentId
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import cold_identity, left, reader, replay
from tierfs.engine.journal.names import JOURNAL_PREFIX, slot_name
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata import epoch_numbers, frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.store import MetadataStore
from tierfs.tiering.ledgers.entry_rows import EntryRows

log = logging.getLogger(__name__)

# Directory in which a replica that starts over rebuilds; remains of a killed rebuild are discarded.
_STAGING = "metadata.next"

# A replica at rest lists the journal so often. Between two listings it looks for the next slot alone: on S3 a HEAD
# costs a twelfth of a LIST. Only a listing shows a recovery from objects, which begins in another range of slots, the
# note of a move, and that slots not yet applied were deleted.
LIST_EVERY_S = 60.0

# Listings tried: the owner may delete slots between our listing and our read; a new listing has newer ones.
_ATTEMPTS = 3
_TOO_FAST = "the journal changes faster than it can be read"


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

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, place: Place) -> None:
        self._metadata = metadata
        self._storage = storage
        self._place = place
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
        raise Unavailable(_TOO_FAST, remedy="retry")

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
        done = None if reader.must_start_over(listing, applied) else self._followed(listing, applied, report)
        if done is None:
            self._start_over(report)
            done = Refreshed(started_over=True, slot=self._applied())
        if listing.noted >= done.slot:
            raise left.error(self._storage, listing.noted, cold_identity.FOLLOW)
        return done

    def _followed(self, listing: JournalListing, applied: int, report: OnProgress) -> Refreshed | None:
        """Apply the slots after `applied`; None if one is damaged, but in a checkpoint that its owner wrote since."""
        try:
            entries = self._apply(listing, applied, report)
        except DataLoss as exc:
            if exc.remedy == frames.UPGRADE:
                raise
            if max(listing.checkpoints, default=0) > self._applied():
                log.info("the replica starts over from a checkpoint: %s", exc)
                return None
            raise DataLoss(str(exc), remedy=f"{ON_OWNER}; else {frames.RESTORE}") from exc
        return Refreshed(entries=entries, slot=applied + entries)

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
            rebuilt = Rebuilder(path, self._storage, self._place, self._metadata.clock, meter).rebuild(listing)
            with closing(rebuilt.metadata) as fresh:
                if fresh.store_id != self._metadata.store_id:
                    raise DataLoss(f"the journal is another store's, {fresh.store_id}", remedy="create a new replica")
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


def _first_copy(
    path: Path, storage: ChunkStorage, place: Place, clock: Clock, report: OnProgress, listing: JournalListing
) -> Rebuilt:
    """Return metadata in `path` as of the journal; begin again if its owner deletes what is still to be read."""
    for _ in range(_ATTEMPTS):
        try:
            return Rebuilder(path, storage, place, clock, meter_of(report, listing)).rebuild(listing)
        except NotFound as exc:
            if not listing.last_slot:
                raise
            log.info("the journal has advanced: %s", exc)
        shutil.rmtree(path, ignore_errors=True)
        listing = reader.list_journal(storage)
    raise Unavailable(_TOO_FAST, remedy="retry")


def create_replica(path: Path, place: Place, report: OnProgress, clock: Clock | None = None) -> ReplicaReport:
    """Make a store in `path`, which must be missing or empty, that follows the one in `place`, read-only.

    Raises AlreadyExists, NotFound without a journal, WrongColdTier for a place that a move left, DataLoss when it is
    damaged, and storage errors; then nothing is left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    place = place.of_store(paths.root)
    with store_directory.new_directory(paths), closing(place.shared(NullMetrics())) as storage:
        # Not probed: a replica may have no right to write there. It fails at once if the server does not answer.
        next(storage.list(JOURNAL_PREFIX), None)
        listing = reader.list_journal(storage)
        if listing.is_moving:
            left.require_moved(storage, "follow the other one until then: tierfs replica {option}")
        if listing.is_left:
            raise left.error(storage, listing.noted, "follow the new one: tierfs replica {option}")
        rebuilt = _first_copy(paths.metadata, storage, place, clock, report, listing)
        with closing(rebuilt.metadata) as metadata:
            become_replica(metadata, report)
            unknown = EntryRows(metadata, storage, metadata.write_replayed).restore_all(report)
            away = given_archive.warnings_of(paths, metadata)
            with metadata.read() as txn:
                store = txn.store
        store_directory.create_files(paths)
        store_directory.write_settings(paths)
    warnings = (*rebuilt.warnings, *unknown, *away, *warnings_of(paths, place))
    return ReplicaReport(
        paths.root, store.store_id, store.store_epoch, place.record.url, store.journal.next_slot - 1, warnings
    )
