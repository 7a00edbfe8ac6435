"""`tierfs recover`: make a new store directory that owns the bucket, from the bucket's journal.

Crash order: metadata rebuilt and files made -> slot won, which fences the previous owner -> losses settled and
published -> store.toml. A killed recovery leaves a directory that is not a store; it can be started again in another
one, no matter what it had published.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tierfs.app.recovery import given_archive, loss
from tierfs.app.recovery.from_journal import Rebuilder, Rebuilt, meter_of
from tierfs.app.recovery.loss import SegmentLoss
from tierfs.app.recovery.own_rows import owner_rows
from tierfs.app.recovery.records_file import RecordsFile
from tierfs.app.recovery.takeover import SupersededError, Takeover
from tierfs.app.setup import store_directory
from tierfs.app.setup.create import warnings_of
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.options.config import Settings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import NotFound, Unavailable
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import left, reader
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.tiering.ledgers.entry_rows import EntryRows

log = logging.getLogger(__name__)

# Times to begin again: an owner writes a checkpoint every thousand entries, hardly two while one is read.
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class RecoverReport:
    """Result of a recovery, with its losses."""

    path: Path
    store_id: str
    store_epoch: int
    cold_url: str
    checkpoint_slot: int
    """Slot of the checkpoint that the replay began with; 0 for the first entry."""
    entries: int
    """Slots that were replayed after it."""
    segments: int = 0
    incomplete: Collection[SegmentLoss] = ()
    """Segments with bytes that are missing, or may be."""
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Losses:
    """Sum of the losses that settling found."""

    incomplete: RecordsFile[SegmentLoss]
    """Segments with bytes that are missing, or may be: all that were open."""
    segments: int = 0

    def add(self, losses: Iterator[SegmentLoss]) -> None:
        """Count segments and keep those that are not known to be whole."""
        for segment in losses:
            self.segments += 1
            if not segment.is_whole:
                self.incomplete.add(segment)


def recover_store(
    path: Path, place: Place, report: OnProgress, clock: Clock | None = None, *, takes_left: bool = False
) -> RecoverReport:
    """Make a store in `path`, which must be missing or empty, from the journal in a place.

    This store owns the bucket from then on. Raises AlreadyExists for a store, NotFound without a journal, WrongColdTier
    for a place that a move left, unless `takes_left`, DataLoss when it is damaged, Fenced when another recovery was
    faster, and storage errors; then nothing is left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    with store_directory.new_directory(paths), reached(place.of_store(paths.root)) as (place, storage):
        listing = reader.list_journal(storage)
        if not takes_left:
            require_not_left(storage, listing)
        store_directory.create_files(paths)
        store_directory.prepare_settings(paths)
        rebuilt = owned(paths.metadata, storage, place, clock, report, listing)
        with closing(rebuilt.metadata) as metadata:
            publisher = Publisher(metadata, storage)
            losses = settle(metadata, publisher, rebuilt.checkpoint_sequence, report)
            unknown = EntryRows(metadata, storage, metadata.write).restore_all(report)
            away = given_archive.warnings_of(paths, metadata)
            if rebuilt.warnings:  # spare the next recovery the longer replay
                Checkpointer(metadata, storage, publisher, 1).checkpoint(report, whole=True)
        store_directory.write_settings(paths)
        if takes_left:
            left.end_moving(storage)
    return RecoverReport(
        path=paths.root,
        store_id=metadata.store_id,
        store_epoch=rebuilt.store_epoch,
        cold_url=place.record.url,
        checkpoint_slot=rebuilt.checkpoint_slot,
        entries=rebuilt.entries,
        segments=losses.segments,
        incomplete=losses.incomplete,
        warnings=(*rebuilt.warnings, *unknown, *away, *warnings_of(paths, place)),
    )


def require_not_left(storage: ChunkStorage, listing: JournalListing) -> None:
    """Raise WrongColdTier for a place that a move left, as what came since is in the new one alone, and for one that a
    move has not filled yet."""
    if listing.is_moving:
        left.require_moved(
            storage,
            "recover from there: tierfs recover {option}; if that place is lost, recover from this one with: "
            "--left-place",
        )
    if listing.is_left:
        raise left.error(
            storage,
            listing.noted,
            "recover from there: tierfs recover {option}; if that place is lost, recover from this one with: "
            "--left-place",
        )


@contextmanager
def reached(place: Place) -> Iterator[tuple[Place, ChunkStorage]]:
    """Yield a place, probed, and the connection to it."""
    with closing(place.open()) as bare:
        next(bare.list(JOURNAL_PREFIX), None)  # fails at once if the server does not answer
        place = place.probed(bare)
    with closing(place.shared(NullMetrics())) as storage:
        yield place, storage


def owned(
    path: Path,
    storage: ChunkStorage,
    place: Place,
    clock: Clock,
    report: OnProgress,
    listing: JournalListing | None = None,
    *,
    standby_attempt: str = "",
    replica: MetadataStore | None = None,
) -> Rebuilt:
    """Return metadata in `path`, rebuilt from the journal, that own the bucket. The caller closes them.

    `listing`: one that was made just now. It may be behind the bucket, as each listing is by the time that it is read:
    the takeover lists what came after it, and a slot that is gone since begins the rebuild again, with a new listing.
    `replica`: its rows are used in place of a rebuild where that is possible, and the bucket is taken from the owner
    that it follows, and from no other.

    An owner that continues meanwhile may delete slots before a new checkpoint: then the rebuild begins again. Raises
    Unavailable when that happens too often.
    """
    follows_epoch = None
    if replica is not None:
        with replica.read() as txn:
            follows_epoch = txn.store.store_epoch
    for _ in range(_ROUNDS):
        try:
            listing = listing or reader.list_journal(storage)
            rebuilt = _rebuilt(path, storage, place, clock, report, listing, replica)
            return _won(rebuilt, Takeover(rebuilt.metadata, storage, place, standby_attempt, follows_epoch))
        except SupersededError as exc:
            log.info("the journal has advanced: %s", exc)
            shutil.rmtree(path, ignore_errors=True)
            listing = None
    raise Unavailable("the journal changes faster than it can be read", remedy="stop its owner, or retry")


def _rebuilt(
    path: Path,
    storage: ChunkStorage,
    place: Place,
    clock: Clock,
    report: OnProgress,
    listing: JournalListing,
    replica: MetadataStore | None,
) -> Rebuilt:
    meter = meter_of(report, listing)
    try:
        rebuilt = None if replica is None else owner_rows(replica, path, storage, place, listing, meter)
        return rebuilt or Rebuilder(path, storage, place, clock, meter).rebuild(listing)
    except NotFound as exc:
        if not listing.last_slot:
            raise
        raise SupersededError(str(exc)) from exc


def _won(rebuilt: Rebuilt, takeover: Takeover) -> Rebuilt:
    try:
        return replace(rebuilt, store_epoch=takeover.win())
    except BaseException:
        rebuilt.metadata.close()
        raise


def settle(
    metadata: MetadataStore,
    publisher: Publisher,
    checkpoint_sequence: int = 0,
    report: OnProgress = unseen,
    *,
    keeps_inodes: bool = False,
) -> Losses:
    """Settle the losses and publish them to the journal; mark the batches that its entries after a checkpoint name.

    `keeps_inodes`: see loss.settle.
    """
    losses = Losses(RecordsFile(metadata.path.parent, _segment_loss))
    grace_ms = Settings().offload.grace_s * 1000
    loss.drop_false_garbage(metadata)
    loss.drop_unlinked_checksums(metadata)
    loss.undo_batches(metadata, grace_ms=grace_ms)
    with metadata.read() as txn:
        settled = Meter(report, total_items=txn.count(SEGMENTS.name))
    losses.add(
        settled.each(loss.settle(metadata, grace_ms=grace_ms, keeps_inodes=keeps_inodes), lambda each: each.segment)
    )
    publisher.publish(report=report)
    publisher.mark_batches(after_sequence=checkpoint_sequence)
    return losses


def _segment_loss(fields: dict[str, Any]) -> SegmentLoss:
    lost = tuple(ByteRange(**gap) for gap in fields.pop("lost"))
    return SegmentLoss(**fields, lost=lost)
