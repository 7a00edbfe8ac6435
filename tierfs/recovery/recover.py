"""`tierfs recover`: a new store directory that owns what the bucket holds.

Crash order: metadata rebuilt and files made -> slot won, which fences the owner before -> losses settled and
published -> store.toml. A recovery that is killed leaves a directory that is no store; it can be started again in
another one, whatever it had published.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tierfs import store_directory
from tierfs.background.checkpoint import Checkpointer
from tierfs.background.entry_rows import EntryRows
from tierfs.background.journal_names import JOURNAL_PREFIX
from tierfs.background.publish import Publisher
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.clock import Clock, SystemClock
from tierfs.config import Settings
from tierfs.connect import connect, connect_bare
from tierfs.errors import InvalidRequest, NotFound, Unavailable
from tierfs.initialize import ColdChoice, locate, probed, warnings_of
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metrics import Metrics
from tierfs.parallel import Meter, OnProgress
from tierfs.recovery import bucket, loss
from tierfs.recovery.loss import SegmentLoss
from tierfs.recovery.rebuild import Rebuilder, Rebuilt
from tierfs.recovery.takeover import SupersededError, Takeover
from tierfs.store_paths import StorePaths

log = logging.getLogger(__name__)

_ROUNDS = 5
"""An owner writes a checkpoint every thousand entries: hardly two of them come while one is read."""


@dataclass(frozen=True, slots=True)
class RecoverReport:
    """What was recovered, and what was not."""

    path: Path
    store_id: str
    store_epoch: int
    cold_url: str
    checkpoint_slot: int
    """Where the replay began; 0 at the first entry."""
    entries: int
    """Slots that were replayed behind it."""
    segments: int = 0
    losses: tuple[SegmentLoss, ...] = ()
    """Segments of which something is missing, or may be."""
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Losses:
    """Adds up what settling found."""

    segments: int = 0
    incomplete: list[SegmentLoss] = field(default_factory=list)

    def add(self, found: Iterator[SegmentLoss]) -> None:
        """Count segments and keep those that are not known to be whole."""
        for one in found:
            self.segments += 1
            if not one.is_whole:
                self.incomplete.append(one)


def recover_store(path: Path, choice: ColdChoice, report: OnProgress, clock: Clock | None = None) -> RecoverReport:
    """Make a store in `path`, which must be missing or empty, out of what the bucket's journal names.

    This store owns the bucket from then on. Raises AlreadyExists for a store, NotFound where there is no
    journal, DataLoss when it is damaged, Fenced when another recovery was faster, and what the storage
    raises; then nothing is left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    with store_directory.new_directory(paths), reached(choice, paths) as (location, storage):
        store_directory.create_files(paths)
        store_directory.prepare_settings(paths)
        rebuilt = owned(paths.metadata, storage, location, clock, report)
        with closing(rebuilt.metadata) as metadata:
            publisher = Publisher(metadata, storage)
            losses = settle(metadata, publisher)
            unknown = EntryRows(metadata, storage, metadata.write).restore_all()
            if rebuilt.warnings:  # the next recovery should not have to go back that far
                Checkpointer(metadata, storage, publisher, 1).checkpoint()
            with metadata.read() as txn:
                epoch = txn.store.store_epoch
        store_directory.write_settings(paths)
    return RecoverReport(
        path=paths.root,
        store_id=metadata.store_id,
        store_epoch=epoch,
        cold_url=location.url,
        checkpoint_slot=rebuilt.checkpoint_slot,
        entries=rebuilt.entries,
        segments=losses.segments,
        losses=tuple(losses.incomplete),
        warnings=(*rebuilt.warnings, *unknown, *warnings_of(paths, location)),
    )


@contextmanager
def reached(choice: ColdChoice, paths: StorePaths) -> Iterator[tuple[LocationRecord, ChunkStorage]]:
    """The cold tier that was named, connected and probed. Raises InvalidRequest when none was."""
    location = locate(choice)
    if location is None or (choice.bucket_url is None and choice.cold_dir is None):
        raise InvalidRequest("recover needs the cold tier", remedy="name it with --bucket or --cold-dir")
    settings = Settings().cold
    with closing(connect_bare(location, paths.root, settings)) as bare:
        next(bare.list(JOURNAL_PREFIX), None)  # fails at once where nothing answers
        location = probed(location, bare)
    with closing(connect(location, paths.root, settings, Metrics())) as storage:
        yield location, storage


def owned(path: Path, storage: ChunkStorage, location: LocationRecord, clock: Clock, report: OnProgress) -> Rebuilt:
    """Metadata in `path`, rebuilt from the journal, that own the bucket. The caller closes them.

    An owner that goes on meanwhile may delete slots under a new checkpoint: then all begins anew.
    """
    for _ in range(_ROUNDS):
        try:
            return _owned(path, storage, location, clock, report)
        except SupersededError as exc:
            log.info("the journal has gone on: %s", exc)
            shutil.rmtree(path, ignore_errors=True)
    raise Unavailable("the journal changes faster than it can be read", remedy="stop its owner, or try again")


def _owned(path: Path, storage: ChunkStorage, location: LocationRecord, clock: Clock, report: OnProgress) -> Rebuilt:
    listing = bucket.list_journal(storage)
    try:
        rebuilt = Rebuilder(path, storage, location, clock, meter_of(report, listing)).rebuild(listing)
    except NotFound as exc:
        if not listing.last_slot:
            raise
        raise SupersededError(str(exc)) from exc
    try:
        Takeover(rebuilt.metadata, storage, location).win()
    except BaseException:
        rebuilt.metadata.close()
        raise
    return rebuilt


def settle(metadata: MetadataStore, publisher: Publisher) -> Losses:
    """Settle what is lost and tell the journal."""
    losses = Losses()
    grace_ms = Settings().offload.grace_s * 1000
    loss.drop_false_garbage(metadata)
    loss.drop_unlinked_checksums(metadata)
    loss.undo_batches(metadata, grace_ms=grace_ms)
    losses.add(loss.settle(metadata, grace_ms=grace_ms))
    publisher.publish()
    return losses


def meter_of(report: OnProgress, listing: bucket.JournalListing) -> Meter:
    """Counts the bytes of the journal that are to be applied."""
    newest = max(listing.checkpoints, default=0)
    read = [item.length_bytes for slot, item in listing.slots.items() if slot > newest]
    parts = [item.length_bytes for name, item in listing.parts.items() if f"checkpoint-{newest:020d}." in name]
    return Meter(report, sum(read) + sum(parts))
