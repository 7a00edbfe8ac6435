"""`tierfs recover --from-objects`: rebuild a store from its objects alone, when journal and checkpoints are lost too.

It rebuilds bytes, not verbs: concatenated, truncated or deleted bytes may reappear; policies and seals do not. Crash
order: objects read and linked on this disk alone -> the archive place noted, if there is one -> epoch recorded -> slot
won, in the range of that epoch, which voids the rest of the journal -> checkpoint, without which that slot cannot be
replayed -> store.toml.
"""

from __future__ import annotations

import socket
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tierfs.app.found_objects import LeftOver, Storages
from tierfs.app.recovery import given_archive, inventory, ledgers
from tierfs.app.recovery.cover import ObjectCover
from tierfs.app.recovery.inventory import Group, Inventory
from tierfs.app.recovery.ledgers import LedgerRebuilding, OffloadedLedger
from tierfs.app.recovery.rebuild_segment import PackIds, make_segment
from tierfs.app.recovery.records_file import RecordsFile
from tierfs.app.recovery.recover import reached, require_not_left
from tierfs.app.recovery.verified_cover import Packs, SumsByLabel, verified_cover
from tierfs.app.setup import store_directory
from tierfs.app.setup.create import warnings_of
from tierfs.app.unrestored import Unrestored
from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, doing, unseen
from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words import units
from tierfs.base.words.errors import DataLoss, InvalidRequest, TierfsError
from tierfs.base.words.types import MIB, ROOT_DIRECTORY, ByteRange, SegmentId
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import archive_mark, epochs, reader, replay
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.journal.left import end_moving
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata import batches, changes, directories, epoch_numbers, tables, untrusted
from tierfs.engine.metadata.batches import Versions
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS, OUTBOX_NAME, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.ledgers.owners import ledger_objects

_INVENTORY_NAME = "objects"

# Epochs that are skipped, for owners in a row that left neither an entry nor an object (a guess).
_UNSEEN_OWNERS = 16

_BATCHES_PER_COMMIT = 1000

# Segments that share a commit, as each costs a sync of the disk; and bytes, whose checksums (0.5 MiB) wait in memory.
SEGMENTS_PER_COMMIT = 500
_BYTES_PER_COMMIT = 16 * 1024 * MIB

_CHANGED = (
    "objects were written or deleted while they were read: another host used the bucket, and can now only read it; "
    "to include its changes, recover from the objects again, into another directory"
)

_UNCOMPARED = "whether objects were written or deleted while they were read is unknown: "

_THAW = "repeat the command with --thaw DAYS, which requests them back, until it continues"

# Asks whether the described journal may be ignored; raises when it may not.
Confirm = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RebuiltStore:
    """One segment that was made from objects."""

    segment: str
    wanted: str
    """The name in its objects; another one had to be given if it differs from `segment`."""
    start_offset: int
    length: int
    objects: int
    lost: tuple[ByteRange, ...]


@dataclass(frozen=True, slots=True)
class FromObjectsReport:
    """Result of a recovery from objects: rebuilt segments, and objects that were not linked."""

    path: Path
    store_id: str
    store_epoch: int
    cold_url: str
    objects: int
    bytes: int
    rebuilt: Collection[RebuiltStore]
    left: tuple[LeftOver, ...]
    unproven: tuple[str, ...] = ()
    """Objects that were linked without a known CRC32C to compare them with."""
    warnings: tuple[str, ...] = ()
    archive_place: str = ""
    """Its URL; empty for a store without one."""


@dataclass(frozen=True, slots=True)
class _Covered:
    """A segment whose objects were read, to be linked."""

    segment_id: SegmentId
    path: str
    cover: ObjectCover
    sums: SumsByLabel
    suffix: bool
    """Its name belongs to another segment."""

    @property
    def bytes(self) -> int:
        """Bytes that are linked."""
        return sum(chosen.length_bytes for chosen in self.cover.chosen)


@dataclass(frozen=True, slots=True)
class _Past:
    """Highest epoch and sequence that the objects and the rest of the journal contain."""

    epoch: int = 0
    sequence: int = 0


def recover_from_objects(
    path: Path,
    place: Place,
    report: OnProgress,
    confirm: Confirm,
    clock: Clock | None = None,
    *,
    archive: Place | None = None,
    takes_left: bool = False,
    thaw_days: int = 0,
) -> FromObjectsReport:
    """Make a store in `path`, which must be missing or empty, from the objects in a place, and in an archive place.

    Reads every object that it links, once. Calls `confirm` if there is a journal, and raises its error. Raises
    AlreadyExists for a store, NotFound without objects, WrongColdTier as recover_store does, and for an archive place
    of another store, InvalidRequest for an archive place that is not named, Fenced when another recovery was faster,
    Archived while objects must be restored, which `thaw_days` requests back for so long, and storage errors; then
    nothing is left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    with store_directory.new_directory(paths), ExitStack() as stack:
        place, storage = stack.enter_context(reached(place.of_store(paths.root)))
        listing = reader.list_journal(storage)
        if not takes_left:
            require_not_left(storage, listing)
        given = stack.enter_context(given_archive.reached(storage, place, archive))
        if listing.last_slot:
            confirm(_ignored(listing))
        rebuilt = RecordsFile(paths.root, _rebuilt_store)
        unrestored = Unrestored(storage, thaw_days)
        storages = Storages(storage, given.storage if given is not None else None)
        with closing(inventory.take(storages, paths.root / _INVENTORY_NAME, report, unrestored)) as listed:
            deque(unrestored.passing(ledger_objects(storage) if listed.has_ledgers else ()), maxlen=0)
            unrestored.require_none("recovered", _THAW)
            offloaded = ledgers.find(storage, listed.store_id, listed.left)
            past = _past(storage, listing, listed, offloaded)
            with closing(MetadataStore.create(paths.metadata, clock, listed.store_id)) as metadata:
                rebuilding = Rebuilding(metadata, storages, place, report, given.record if given is not None else None)
                for made in chain(rebuilding.rebuild(listed, past), rebuilding.rebuild_ledgers(listed, offloaded)):
                    rebuilt.add(made)
                listed.close()
                store_directory.create_files(paths)
                store_directory.prepare_settings(paths)
                if given is not None:
                    archive_mark.write_note(storage, given.record)
                epoch = rebuilding.own(report)
        store_directory.write_settings(paths)
        if takes_left:
            end_moving(storage)
        report(doing("listing the objects again"))
        changed = _changed_meanwhile(storages, listed)
    return FromObjectsReport(
        path=paths.root,
        store_id=listed.store_id,
        store_epoch=epoch,
        cold_url=place.record.url,
        objects=rebuilding.objects,
        bytes=sum(made.length - made.start_offset - _bytes(made.lost) for made in rebuilt),
        rebuilt=rebuilt,
        left=tuple(listed.left),
        unproven=tuple(listed.unproven),
        warnings=(*changed, *warnings_of(paths, place)),
        archive_place=given.record.url if given is not None else "",
    )


def _changed_meanwhile(storages: Storages, listed: Inventory) -> tuple[str, ...]:
    """Return a warning when the objects changed during the recovery.

    The store is complete and owns the bucket: a listing that fails or is interrupted is a warning too, because an
    exception would empty the new directory.
    """
    try:
        return () if inventory.names_now(storages) == listed.names else (_CHANGED,)
    except TierfsError as exc:
        return (f"{_UNCOMPARED}{exc}",)
    except KeyboardInterrupt:
        return (f"{_UNCOMPARED}interrupted",)


class Rebuilding:
    """The making of one store from objects."""

    def __init__(
        self,
        metadata: MetadataStore,
        storages: Storages,
        place: Place,
        report: OnProgress,
        archive: LocationRecord | None = None,
    ) -> None:
        """`archive`: the archive place, whose objects `storages` has, too."""
        self._metadata = metadata
        self._storages = storages
        self._storage = storages.cold
        self._place = place
        self._archive = archive
        self._meter = Meter(report)
        self._unshared = 0
        """Linked objects that hold one segment each."""
        self._packs = Packs()
        self._pack_ids: PackIds = {}

    @property
    def objects(self) -> int:
        """Number of linked objects; a pack counts once for all its segments."""
        return self._unshared + len(self._pack_ids)

    def rebuild(self, listed: Inventory, past: _Past) -> Iterator[RebuiltStore]:
        """Link every segment, on this disk alone, without a change in the bucket; yield it once it is linked."""
        self._begin(listed, past)
        self._meter.total_items = listed.segments
        covered = (self._covered(listed, group) for group in listed.groups())
        for some in ranges.groups(covered, lambda each: each.bytes, _BYTES_PER_COMMIT, SEGMENTS_PER_COMMIT):
            with self._unpublished() as txn:
                rebuilt = [made for each in some if (made := self._segment(txn, listed, each)) is not None]
            yield from rebuilt
        self._batches(listed)
        listed.left += listed.foreign()

    def rebuild_ledgers(self, listed: Inventory, offloaded: list[OffloadedLedger]) -> list[RebuiltStore]:
        """Link every ledger, as `rebuild`."""
        listed.bytes += sum(ledger.data.length_bytes for ledger in offloaded)
        rebuilding = LedgerRebuilding(self._metadata, self._storage, self._place, self._metered(listed))
        made = [
            RebuiltStore(plan.name, plan.name, 0, plan.payload_bytes, len(plan.parts), ())
            for plan in rebuilding.run(offloaded, listed.left)
        ]
        with self._metadata.write() as txn:  # the checkpoint contains the changes of these outbox entries
            txn.delete_prefix(OUTBOX_NAME, b"")
        self._unshared += len(made)
        return made

    def own(self, report: OnProgress = unseen) -> int:
        """Win the bucket and write a self-contained checkpoint; return the epoch.

        Raises Fenced when another recovery was faster.
        """
        publisher = Publisher(self._metadata, self._storage)
        with self._metadata.write() as txn:
            epoch = txn.store.store_epoch
            state = replace(
                txn.store.journal,
                next_slot=epoch_numbers.first_of(epoch),
                published_sequence=txn.store.next_outbox - 1,
            )
            txn.update_store(journal=state)
            newest_ms = max((segment.modified_ms for _, segment in txn.scan(SEGMENTS)), default=0)
            if newest_ms:  # of the objects, as no owner tells when it wrote last
                replay.see_time(txn, newest_ms)
            changes.owner_begins(txn, socket.gethostname())
        epochs.begin(self._storage, epoch, self._metadata.store_id, self._metadata.clock.now_ms())
        publisher.publish(claims=True)
        Checkpointer(self._metadata, self._storage, publisher, 1).checkpoint(report)
        return epoch

    def _begin(self, listed: Inventory, past: _Past) -> None:
        """Write the first records of the store, in an epoch that no earlier owner can have."""
        epoch = past.epoch + _UNSEEN_OWNERS
        sequence = max(past.sequence, epoch_numbers.first_of(epoch))
        next_id = max(epoch_numbers.first_of(epoch), listed.highest_segment + 1)
        with self._metadata.write() as txn:
            txn.update_store(store_epoch=epoch, next_outbox=sequence + 1, next_id=next_id)
        with self._unpublished() as txn:
            txn.put(LOCATIONS, tables.u32(self._place.record.id), self._place.record)
            txn.update_store(cold_location_id=self._place.record.id)
            if self._archive is not None:
                txn.put(LOCATIONS, tables.u32(self._archive.id), self._archive)

    @contextmanager
    def _unpublished(self) -> Iterator[WriteTransaction]:
        """Open a transaction whose changes get no journal entry: the checkpoint contains their result."""
        with self._metadata.write() as txn:
            first = txn.store.next_outbox
            yield txn
            for sequence in range(first, txn.store.next_outbox):
                txn.delete(OUTBOX_NAME, tables.u64(sequence))

    def _covered(self, listed: Inventory, group: Group) -> _Covered:
        """Read the objects of a segment, and choose those to link."""
        cover, sums, damaged = verified_cover(self._storages, group.objects, self._packs, self._metered(listed))
        self._meter(0, group.path, 1)
        listed.left += damaged
        listed.left += [
            LeftOver(omitted.label, "a newer or larger object contains its bytes") for omitted in cover.left
        ]
        listed.unproven += [chosen.name for chosen in cover.chosen if chosen.crc32c is None]
        return _Covered(group.segment_id, group.path, cover, sums, suffix=not listed.has_name(group))

    def _segment(self, txn: WriteTransaction, listed: Inventory, covered: _Covered) -> RebuiltStore | None:
        """Link a segment; return None where no object of it is good, or its name cannot be had."""
        cover = covered.cover
        if not cover.chosen:
            return None
        try:
            segment_id = _free_id(txn, covered.segment_id)
            name, segment = make_segment(
                txn,
                segment_id,
                covered.path,
                cover,
                covered.sums,
                self._pack_ids,
                suffix=covered.suffix,
                usual_class=self._place.settings.storage_class,
            )
        except InvalidRequest as exc:
            listed.left += [LeftOver(chosen.label, str(exc)) for chosen in cover.chosen]
            return None
        self._unshared += sum(not chosen.pack_bytes for chosen in cover.chosen)
        return RebuiltStore(name, covered.path, segment.start_offset, segment.length, len(cover.chosen), cover.gaps)

    def _batches(self, listed: Inventory) -> None:
        """Record the versions that were committed, so that an application that repeats one does not write it twice."""
        told: dict[str, list[Versions]] = defaultdict(list)
        for each in listed.batches:
            if each.store_id == listed.store_id:
                told[each.application].append(each.versions)
        applications = iter(told.items())
        while some := list(islice(applications, _BATCHES_PER_COMMIT)):
            with self._unpublished() as txn:
                for application, versions in some:
                    batches.restore(txn, application, Versions.union(versions))

    def _metered(self, listed: Inventory) -> Meter:
        self._meter.total_bytes = listed.bytes
        return self._meter


def _rebuilt_store(fields: dict[str, Any]) -> RebuiltStore:
    lost = tuple(ByteRange(**gap) for gap in fields.pop("lost"))
    return RebuiltStore(**fields, lost=lost)


def _free_id(txn: WriteTransaction, wanted: SegmentId) -> SegmentId:
    """Return the id in the objects, or a new one if a newer segment has it (from before ids jumped with each epoch)."""
    if int(wanted) == ROOT_DIRECTORY or directories.segment(txn, wanted) is not None:
        return SegmentId(txn.allocate_id())
    return wanted


def _ignored(listing: JournalListing) -> str:
    """Describe the rest of a journal, for the question whether to ignore it."""
    checkpoints = f"; checkpoints at {', '.join(map(str, sorted(listing.checkpoints)))}" if listing.checkpoints else ""
    entries = units.count(len(listing.slots), "entry")
    return f"a journal of {entries}, the newest in slot {listing.last_slot}{checkpoints}"


def _past(storage: ChunkStorage, listing: JournalListing, listed: Inventory, offloaded: list[OffloadedLedger]) -> _Past:
    """Return the highest epoch and sequence of earlier owners; ours must be higher than both."""
    seen = (listed.newest_epoch, listing.epoch, epochs.newest(storage))
    past = _Past(epoch=max([*seen, *(ledger.epoch for ledger in offloaded)]))
    if past.epoch > MAX_EPOCH:
        raise DataLoss(f"the journal has the impossible slot {listing.last_slot}", remedy="remove that object")
    for items, read in ((listing.slots, reader.read_entry), (listing.checkpoints, reader.read_manifest)):
        for slot in sorted(items, reverse=True):
            try:
                newest = read(storage, items[slot])
            except DataLoss:
                continue
            epoch, sequence = min(newest.store_epoch, MAX_EPOCH), min(newest.last_sequence, untrusted.MAX_ID // 2)
            past = replace(past, epoch=max(past.epoch, epoch), sequence=max(past.sequence, sequence))
            break
    return past


def _bytes(lost: tuple[ByteRange, ...]) -> int:
    return sum(gap.length_bytes for gap in lost)
