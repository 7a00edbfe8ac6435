"""`tierfs recover`: make a new store directory that owns the bucket, from the bucket's journal.

Crash order: metadata rebuilt and files made -> slot won, which fences the previous owner -> losses settled and
published -> store.toml. A killed recovery leaves a directory that is not a store; it can be started again in another
one, no matter what it had published.

Metadata are rebuilt from the newest sound checkpoint and every slot after it (`Rebuilder`). Each part and each entry is
one transaction, so that memory is bounded. A checkpoint that proves damaged half-way is discarded with everything made
of it, and the one before it is tried.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tierfs.app.recovery import loss
from tierfs.app.recovery.loss import SegmentLoss
from tierfs.app.recovery.takeover import SupersededError, Takeover
from tierfs.app.setup import create
from tierfs.app.setup.connect import connect, connect_bare
from tierfs.app.setup.create import ColdChoice, locate, probed, warnings_of
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.options.config import Settings
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.prometheus import Metrics
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import DataLoss, InvalidRequest, NotFound, Unavailable
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.journal import left, reader, replay
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.journal.names import JOURNAL_PREFIX, slot_name
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata import frames, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.ledgers.entry_rows import EntryRows

log = logging.getLogger(__name__)

FROM_OBJECTS = "rebuild the bytes, without what was done to them, from the objects alone: tierfs recover --from-objects"

_STORE_ID = re.compile(r"[0-9a-f]{32}")


class _Unusable(DataLoss):
    """A checkpoint that a replay cannot begin with."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Metadata as of the journal's last slot."""

    metadata: MetadataStore
    checkpoint_slot: int
    """0 if no checkpoint was used."""
    entries: int
    warnings: tuple[str, ...]
    checkpoint_sequence: int = 0
    """Last change in the checkpoint."""


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """One rebuild of metadata in `path`, which must not exist."""

    path: Path
    storage: ChunkStorage
    location: LocationRecord
    clock: Clock
    advance: Meter

    def rebuild(self, listing: JournalListing) -> Rebuilt:
        """Replay the journal. The caller closes the metadata.

        Raises NotFound for an empty journal, DataLoss when slots are missing or damaged, and storage errors.
        """
        if not listing.last_slot:
            raise NotFound(
                f"{self.location.url} holds no journal",
                remedy=f"check the prefix; if the journal is lost, {FROM_OBJECTS}",
            )
        warnings: list[str] = []
        for slot in sorted(listing.checkpoints, reverse=True):
            try:
                return self._rebuild_from(listing, slot, tuple(warnings))
            except _Unusable as exc:
                warnings.append(f"checkpoint {slot} cannot be used, so the one before it is: {exc}")
                log.info("%s", warnings[-1])
        try:
            return self._rebuild_from(listing, 0, tuple(warnings))
        except _Unusable as exc:
            raise DataLoss("; ".join([str(exc), *warnings]), remedy=_way_out(exc)) from exc

    def _rebuild_from(self, listing: JournalListing, slot: int, warnings: tuple[str, ...]) -> Rebuilt:
        """Replay from a checkpoint or the first entry. Raises _Unusable for a bad checkpoint, DataLoss for an entry."""
        try:
            manifest = self._manifest(listing, slot)
            epoch, newest = manifest.store_epoch if manifest else 0, max(listing.checkpoints, default=0)
            items = reader.entries_behind(self.storage, listing, slot, epoch, at_least=newest)
            metadata = self._from_checkpoint(listing, manifest)
        except DataLoss as exc:
            raise _Unusable(str(exc), remedy=exc.remedy) from exc
        try:
            self._replay(metadata, items)
        except DataLoss as exc:
            metadata.close()
            raise DataLoss(str(exc), remedy=_way_out(exc)) from exc
        except BaseException:
            metadata.close()
            raise
        return Rebuilt(metadata, slot, len(items), warnings, manifest.last_sequence if manifest else 0)

    def _manifest(self, listing: JournalListing, slot: int) -> pb.CheckpointManifest | None:
        """Return the checkpoint's manifest; None for slot 0, before the first entry. Raises DataLoss."""
        if slot:
            return reader.read_manifest(self.storage, listing.checkpoints[slot])
        if listing.epoch:
            first = slot_name(min(listing.slots))
            raise DataLoss(f"{first} begins a recovery from objects that has not written its checkpoint")
        return None

    def _from_checkpoint(self, listing: JournalListing, manifest: pb.CheckpointManifest | None) -> MetadataStore:
        """Return metadata as of a checkpoint, or of an empty store. Raises DataLoss, and then leaves no files."""
        store_id = manifest.store_id if manifest is not None else self._store_id(listing)
        metadata = MetadataStore.create(self.path, self.clock, _checked_id(store_id))
        try:
            with metadata.write() as txn:
                self._begin(txn)
            if manifest is not None:
                self._apply_parts(metadata, listing, manifest)
        except BaseException:
            metadata.close()
            shutil.rmtree(self.path)
            raise
        return metadata

    def _store_id(self, listing: JournalListing) -> str:
        return reader.read_entry(self.storage, listing.slots[1]).store_id

    def _begin(self, txn: WriteTransaction) -> None:
        """Record the location named to this command; a journal does not say how this host connects."""
        txn.put(LOCATIONS, tables.u32(self.location.id), self.location)
        txn.update_store(cold_location_id=self.location.id, store_epoch=0)

    def _apply_parts(self, metadata: MetadataStore, listing: JournalListing, manifest: pb.CheckpointManifest) -> None:
        def read(numbered: tuple[int, StoredObject]) -> pb.CheckpointPart:
            return reader.read_part(self.storage, numbered[1], manifest, numbered[0])

        items = reader.part_items(listing, manifest)
        with Pool(reader.READ_AHEAD, "tierfs-recover") as pool:
            parts = pool.in_order(read, enumerate(items), ahead=reader.READ_AHEAD)
            for item, part in zip(items, parts, strict=True):
                with metadata.write() as txn:
                    replay.apply_state(txn, part.changes, item.name)
                self.advance(item.length_bytes, item.name, 1)
        with metadata.write() as txn:
            replay.finish_checkpoint(txn, manifest)
            replay.see_time(txn, manifest.written_ms)

    def _replay(self, metadata: MetadataStore, items: list[StoredObject]) -> None:
        """Apply entries in order."""
        with closing(reader.read_entries(self.storage, items)) as entries:
            for item, entry in zip(items, entries, strict=True):
                with metadata.write() as txn:
                    replay.apply_entry(txn, entry)
                    replay.see_time(txn, replay.written_ms(entry))
                self.advance(item.length_bytes, item.name, 1)


def _way_out(error: DataLoss) -> str:
    """Return the remedy of a journal that cannot be replayed."""
    return frames.UPGRADE if error.remedy == frames.UPGRADE else f"{frames.RESTORE}; without a copy, {FROM_OBJECTS}"


def _checked_id(store_id: str) -> str:
    if not _STORE_ID.fullmatch(store_id):
        raise DataLoss(f"the journal names no store: {printable(store_id)!r}")
    return store_id


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
    incomplete: tuple[SegmentLoss, ...] = ()
    """Segments with bytes that are missing, or may be."""
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Losses:
    """Sum of the losses that settling found."""

    segments: int = 0
    incomplete: list[SegmentLoss] = field(default_factory=list)

    def add(self, losses: Iterator[SegmentLoss]) -> None:
        """Count segments and keep those that are not known to be whole."""
        for segment in losses:
            self.segments += 1
            if not segment.is_whole:
                self.incomplete.append(segment)


def recover_store(
    path: Path, choice: ColdChoice, report: OnProgress, clock: Clock | None = None, *, takes_left: bool = False
) -> RecoverReport:
    """Make a store in `path`, which must be missing or empty, from the bucket's journal.

    This store owns the bucket from then on. Raises AlreadyExists for a store, NotFound without a journal, WrongColdTier
    for a place that a move left, unless `takes_left`, DataLoss when it is damaged, Fenced when another recovery was
    faster, and storage errors; then nothing is left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    with create.new_directory(paths), reached(choice, paths) as (location, storage):
        if not takes_left:
            require_not_left(storage, reader.list_journal(storage))
        create.create_files(paths)
        create.prepare_settings(paths)
        rebuilt = owned(paths.metadata, storage, location, clock, report)
        with closing(rebuilt.metadata) as metadata:
            publisher = Publisher(metadata, storage)
            losses = settle(metadata, publisher, rebuilt.checkpoint_sequence, report)
            unknown = EntryRows(metadata, storage, metadata.write).restore_all(report)
            if rebuilt.warnings:  # spare the next recovery the longer replay
                Checkpointer(metadata, storage, publisher, 1).checkpoint(report)
            with metadata.read() as txn:
                epoch = txn.store.store_epoch
        create.write_settings(paths)
        if takes_left:
            left.end_moving(storage)
    return RecoverReport(
        path=paths.root,
        store_id=metadata.store_id,
        store_epoch=epoch,
        cold_url=location.url,
        checkpoint_slot=rebuilt.checkpoint_slot,
        entries=rebuilt.entries,
        segments=losses.segments,
        incomplete=tuple(losses.incomplete),
        warnings=(*rebuilt.warnings, *unknown, *warnings_of(paths, location)),
    )


def require_not_left(storage: ChunkStorage, listing: JournalListing) -> None:
    """Raise WrongColdTier for a place that a move left, as what came since is in the new one alone, and for one that a
    move has not filled yet."""
    if listing.is_moving:
        left.require_moved(
            storage,
            "recover from there: tierfs recover {option}; if that is lost, recover what is here with: --left-place",
        )
    if listing.is_left:
        raise left.error(
            storage,
            listing.noted,
            "recover from there: tierfs recover {option}; if that is lost, recover what is here with: --left-place",
        )


@contextmanager
def reached(choice: ColdChoice, paths: StorePaths) -> Iterator[tuple[LocationRecord, ChunkStorage]]:
    """Yield the named cold tier, connected and probed. Raises InvalidRequest when none was named."""
    location = locate(choice)
    if location is None or not choice.names_a_place:
        raise InvalidRequest("recover needs the cold tier", remedy="name it: --bucket, --cold-url or --cold-dir")
    settings = Settings().cold
    with closing(connect_bare(location, paths.root, settings)) as bare:
        next(bare.list(JOURNAL_PREFIX), None)  # fails at once if the server does not answer
        location = probed(location, bare)
    with closing(connect(location, paths.root, settings, Metrics())) as storage:
        yield location, storage


def owned(path: Path, storage: ChunkStorage, location: LocationRecord, clock: Clock, report: OnProgress) -> Rebuilt:
    """Return metadata in `path`, rebuilt from the journal, that own the bucket. The caller closes them.

    An owner that continues meanwhile may delete slots before a new checkpoint: then the rebuild begins again. Raises
    Unavailable when that happens too often.
    """
    for _ in range(_ROUNDS):
        try:
            return _owned(path, storage, location, clock, report)
        except SupersededError as exc:
            log.info("the journal has advanced: %s", exc)
            shutil.rmtree(path, ignore_errors=True)
    raise Unavailable("the journal changes faster than it can be read", remedy="stop its owner, or try again")


def _owned(path: Path, storage: ChunkStorage, location: LocationRecord, clock: Clock, report: OnProgress) -> Rebuilt:
    listing = reader.list_journal(storage)
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


def settle(
    metadata: MetadataStore, publisher: Publisher, checkpoint_sequence: int = 0, report: OnProgress = unseen
) -> Losses:
    """Settle the losses and publish them to the journal; mark the batches that its entries after a checkpoint name."""
    losses = Losses()
    grace_ms = Settings().offload.grace_s * 1000
    loss.drop_false_garbage(metadata)
    loss.drop_unlinked_checksums(metadata)
    loss.undo_batches(metadata, grace_ms=grace_ms)
    with metadata.read() as txn:
        settled = Meter(report, total_items=txn.count(SEGMENTS.name))
    losses.add(settled.each(loss.settle(metadata, grace_ms=grace_ms), lambda each: each.segment))
    publisher.publish(report=report)
    publisher.mark_batches(after_sequence=checkpoint_sequence)
    return losses


def meter_of(report: OnProgress, listing: reader.JournalListing) -> Meter:
    """Return a meter for the bytes of the journal that are to be applied."""
    newest = max(listing.checkpoints, default=0)
    read = [item.length_bytes for slot, item in listing.slots.items() if slot > newest]
    parts = [item.length_bytes for name, item in listing.parts.items() if f"checkpoint-{newest:020d}." in name]
    return Meter(report, sum(read) + sum(parts), len(read) + len(parts), "journal object")
