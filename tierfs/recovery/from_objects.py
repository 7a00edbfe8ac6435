"""`tierfs recover --from-objects`: journal and checkpoints are lost too, and the objects themselves are asked.

It rebuilds bytes, not verbs: what was concatenated, truncated or deleted may come back, policies and seals
do not. Crash order: objects read and linked on this disk alone -> slot won, in the range of a new epoch,
which voids what is left of the journal -> checkpoint, without which that slot cannot be replayed -> store.toml.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.clock import Clock, SystemClock
from tierfs.errors import DataLoss, InvalidRequest, TierfsError
from tierfs.journal import reader
from tierfs.journal.checkpoint import Checkpointer
from tierfs.journal.publish import Publisher
from tierfs.journal.reader import JournalListing
from tierfs.metadata import batches, changes, directories, journal_state, policies, tables, untrusted
from tierfs.metadata.journal_state import MAX_EPOCH
from tierfs.metadata.ledger_and_batch_records import BatchRecord
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import LOCATIONS, OUTBOX_NAME
from tierfs.metadata.transaction import WriteTransaction
from tierfs.parallel import Meter, OnProgress
from tierfs.recovery import inventory, ledgers
from tierfs.recovery.cover import LeftOver, Packs, verified_cover
from tierfs.recovery.from_journal import reached
from tierfs.recovery.inventory import Group, Inventory
from tierfs.recovery.ledgers import LedgerRebuilding, OffloadedLedger
from tierfs.recovery.rebuild_segment import PackIds, make_segment
from tierfs.setup import create
from tierfs.setup.create import ColdChoice, warnings_of
from tierfs.store_paths import StorePaths
from tierfs.types import ROOT_DIRECTORY, ByteRange, ReadPriority, SegmentId

_INVENTORY_NAME = "objects.jsonl"

_UNSEEN_OWNERS = 16
"""Epochs that are skipped: owners that left neither an entry nor an object, in a row (a guess)."""

_BATCHES_PER_COMMIT = 1000

_CHANGED = (
    "objects were written or deleted while they were read: an owner was alive, and is fenced now; "
    "to have what it changed, recover from the objects once more, into another directory"
)

_UNCOMPARED = "whether objects were written or deleted while they were read is not known: "

Confirm = Callable[[str], None]
"""Asks whether what stands there may be ignored; raises when it may not."""


@dataclass(frozen=True, slots=True)
class RebuiltStore:
    """One segment that was made of objects."""

    segment: str
    wanted: str
    """The name its objects tell, where another had to be given."""
    start_offset: int
    length: int
    objects: int
    lost: tuple[ByteRange, ...]


@dataclass(frozen=True, slots=True)
class FromObjectsReport:
    """What was rebuilt, and what was left aside."""

    path: Path
    store_id: str
    store_epoch: int
    cold_url: str
    objects: int
    bytes: int
    rebuilt: tuple[RebuiltStore, ...]
    left: tuple[LeftOver, ...]
    unproven: tuple[str, ...] = ()
    """Objects that were linked although nothing tells the CRC32C they were written with."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Past:
    """What the objects and the remains of the journal still tell."""

    epoch: int = 0
    sequence: int = 0


def recover_from_objects(
    path: Path, choice: ColdChoice, report: OnProgress, confirm: Confirm, clock: Clock | None = None
) -> FromObjectsReport:
    """Make a store in `path`, which must be missing or empty, out of its objects.

    Reads every object that it links, once. Raises AlreadyExists for a store, NotFound without objects, Fenced
    when another recovery was faster, what `confirm` raises where there is a journal, and what the storage
    raises; then nothing is left in `path`.
    """
    clock = clock or SystemClock()
    paths = StorePaths(path.absolute())
    with create.new_directory(paths), reached(choice, paths) as (location, storage):
        listing = reader.list_journal(storage)
        if listing.last_slot:
            confirm(_ignored(listing))
        found = inventory.take(storage, paths.root / _INVENTORY_NAME)
        offloaded = ledgers.find(storage, found.store_id, found.left)
        past = _past(storage, listing, found, offloaded)
        with closing(MetadataStore.create(paths.metadata, clock, found.store_id)) as metadata:
            rebuilding = Rebuilding(metadata, storage, location, report)
            rebuilt = [*rebuilding.rebuild(found, past), *rebuilding.rebuild_ledgers(found, offloaded)]
            found.path.unlink()
            create.create_files(paths)
            create.prepare_settings(paths)
            epoch = rebuilding.own()
        create.write_settings(paths)
        changed = _changed_meanwhile(storage, found)
    return FromObjectsReport(
        path=paths.root,
        store_id=found.store_id,
        store_epoch=epoch,
        cold_url=location.url,
        objects=rebuilding.objects,
        bytes=sum(one.length - one.start_offset - _bytes(one.lost) for one in rebuilt),
        rebuilt=tuple(rebuilt),
        left=tuple(found.left),
        unproven=tuple(found.unproven),
        warnings=(*changed, *warnings_of(paths, location)),
    )


def _changed_meanwhile(storage: ChunkStorage, found: Inventory) -> tuple[str, ...]:
    """A warning when the objects are others by now.

    The store is complete and owns the bucket: a listing that fails or is interrupted is a warning too, where an
    exception would empty the new directory.
    """
    try:
        return () if inventory.names_now(storage) == found.names else (_CHANGED,)
    except TierfsError as exc:
        return (f"{_UNCOMPARED}{exc}",)
    except KeyboardInterrupt:
        return (f"{_UNCOMPARED}interrupted",)


class Rebuilding:
    """One store made of objects."""

    def __init__(
        self, metadata: MetadataStore, storage: ChunkStorage, location: LocationRecord, report: OnProgress
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._location = location
        self._meter = Meter(report)
        self._unshared = 0
        """Objects of one segment each that were linked."""
        self._packs = Packs()
        self._pack_ids: PackIds = {}

    @property
    def objects(self) -> int:
        """How many are linked; a pack is one, however many segments have bytes in it."""
        return self._unshared + len(self._pack_ids)

    def rebuild(self, found: Inventory, past: _Past) -> list[RebuiltStore]:
        """Link every segment, on this disk alone; nothing in the bucket changes."""
        self._begin(found, past)
        rebuilt = [made for group in found.groups() if (made := self._segment(found, group)) is not None]
        self._batches(found)
        found.left += found.foreign()
        return rebuilt

    def rebuild_ledgers(self, found: Inventory, offloaded: list[OffloadedLedger]) -> list[RebuiltStore]:
        """Link every ledger, as `rebuild`."""
        found.bytes += sum(one.data.length_bytes for one in offloaded)
        rebuilding = LedgerRebuilding(self._metadata, self._storage, self._location, self._metered(found))
        made = [
            RebuiltStore(plan.name, plan.name, 0, plan.payload_bytes, len(plan.parts), ())
            for plan in rebuilding.run(offloaded, found.left)
        ]
        with self._metadata.write() as txn:  # the checkpoint tells what their entries in the outbox would
            txn.delete_prefix(OUTBOX_NAME, b"")
        self._unshared += len(made)
        return made

    def own(self) -> int:
        """Win the bucket and write a checkpoint that needs nothing before it; returns the epoch.

        Raises Fenced when another recovery was faster.
        """
        publisher = Publisher(self._metadata, self._storage)
        with self._metadata.write() as txn:
            epoch = txn.store.store_epoch
            state = replace(
                txn.store.journal,
                next_slot=journal_state.first_of(epoch),
                published_sequence=txn.store.next_outbox - 1,
            )
            txn.update_store(journal=state)
            changes.owner_begins(txn, socket.gethostname())
        publisher.publish(claims=True)
        Checkpointer(self._metadata, self._storage, publisher, 1).checkpoint()
        return epoch

    def _begin(self, found: Inventory, past: _Past) -> None:
        """The first records of the store, in an epoch that no earlier owner can have."""
        epoch = past.epoch + _UNSEEN_OWNERS
        sequence = max(past.sequence, journal_state.first_of(epoch))
        next_id = max(journal_state.first_of(epoch), found.highest_segment + 1)
        with self._metadata.write() as txn:
            txn.update_store(store_epoch=epoch, next_outbox=sequence + 1, next_id=next_id)
        with self._untold() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"read_priority": ReadPriority.LOCAL_FIRST.value})
            txn.put(LOCATIONS, tables.u32(self._location.id), self._location)
            txn.update_store(cold_location_id=self._location.id)

    @contextmanager
    def _untold(self) -> Iterator[WriteTransaction]:
        """A transaction whose changes no entry tells: the checkpoint holds what they made."""
        with self._metadata.write() as txn:
            first = txn.store.next_outbox
            yield txn
            for sequence in range(first, txn.store.next_outbox):
                txn.delete(OUTBOX_NAME, tables.u64(sequence))

    def _segment(self, found: Inventory, group: Group) -> RebuiltStore | None:
        cover, grids, damaged = verified_cover(self._storage, group.objects, self._packs, self._metered(found))
        found.left += damaged
        found.left += [LeftOver(one.label, "a newer or larger object has its bytes") for one in cover.left]
        if not cover.chosen:
            return None
        found.unproven += [one.name for one in cover.chosen if one.crc32c is None]
        try:
            with self._untold() as txn:
                segment_id = _free_id(txn, group.segment_id)
                suffix = not found.has_name(group)
                name, segment = make_segment(txn, segment_id, group.path, cover, grids, self._pack_ids, suffix=suffix)
        except InvalidRequest as exc:
            found.left += [LeftOver(one.label, str(exc)) for one in cover.chosen]
            return None
        self._unshared += sum(not one.pack_bytes for one in cover.chosen)
        return RebuiltStore(name, group.path, segment.start_offset, segment.length, len(cover.chosen), cover.gaps)

    def _batches(self, found: Inventory) -> None:
        """Remember which versions are there, so that an application that repeats one does not write it twice."""
        ours = [one for one in found.batches if one.store_id == found.store_id]
        for first in range(0, len(ours), _BATCHES_PER_COMMIT):
            with self._untold() as txn:
                for one in ours[first : first + _BATCHES_PER_COMMIT]:
                    batches.commit(txn, BatchRecord(application=one.application, batch=one.batch, job=one.job))

    def _metered(self, found: Inventory) -> Meter:
        self._meter.total_bytes = found.bytes
        return self._meter


def _free_id(txn: WriteTransaction, wanted: SegmentId) -> SegmentId:
    """The id that the objects tell, or a new one where a newer segment has it (before ids jumped with every epoch)."""
    if int(wanted) == ROOT_DIRECTORY or directories.segment(txn, wanted) is not None:
        return SegmentId(txn.allocate_id())
    return wanted


def _ignored(listing: JournalListing) -> str:
    """What the remains of a journal are, for the question whether to ignore them."""
    checkpoints = f"; checkpoints at {', '.join(map(str, sorted(listing.checkpoints)))}" if listing.checkpoints else ""
    return f"a journal with {len(listing.slots)} entries up to slot {listing.last_slot}{checkpoints}"


def _past(storage: ChunkStorage, listing: JournalListing, found: Inventory, offloaded: list[OffloadedLedger]) -> _Past:
    """Where to begin, so that nothing that an earlier owner wrote counts as ours."""
    past = _Past(epoch=max([found.newest_epoch, listing.epoch, *(one.epoch for one in offloaded)]))
    if past.epoch > MAX_EPOCH:
        raise DataLoss(f"the journal has an impossible slot, {listing.last_slot}", remedy="remove that object")
    for items, read in ((listing.slots, reader.read_entry), (listing.checkpoints, reader.read_manifest)):
        for slot in sorted(items, reverse=True):
            try:
                one = read(storage, items[slot])
            except DataLoss:
                continue
            epoch, sequence = min(one.store_epoch, MAX_EPOCH), min(one.last_sequence, untrusted.MAX_ID // 2)
            past = replace(past, epoch=max(past.epoch, epoch), sequence=max(past.sequence, sequence))
            break
    return past


def _bytes(lost: tuple[ByteRange, ...]) -> int:
    return sum(gap.length_bytes for gap in lost)
