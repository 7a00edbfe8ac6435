"""Give a cold tier another place: copy what is missing there, and record it as the store's.

Objects are immutable, and a storage shows an object whole or not at all: a name that is there was copied, so that a
copy that was stopped continues where it was. What has checksums is proved afterwards by reading it there. Everything
else is compared. Nothing that is there is replaced: it may be the only good copy, in a place that other tools filled.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound, PermissionDenied
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, LocationId
from tierfs.engine.chunkstore.probe import PROBE_DIRECTORY, Trace
from tierfs.engine.chunkstore.protocol import ChunkStorage, ComposedObject, ServerCopies, StoredObject
from tierfs.engine.chunkstore.validate import MARK_NAME, check_name
from tierfs.engine.journal.epochs import EPOCHS_PREFIX
from tierfs.engine.journal.names import ALIVE_NAME, JOURNAL_PREFIX, MOVING_NAME, left_slot, standby_of
from tierfs.engine.metadata import batches, changes, tables
from tierfs.engine.metadata.journal_state import NOWHERE
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.tables import INTENTS, LOCATIONS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering.objects import JOBS_PREFIX, discard, is_job

log = logging.getLogger(__name__)

# Objects copied at once; a large one is copied in parts, several at once (a guess).
_AT_ONCE = 8

# Largest object that is compared: the limit of one of the journal.
_COMPARED_BYTES = 8 * MIB

# Objects that are proved by their checksums instead.
_WITH_CHECKSUMS = ("segments/", "packs/")


def record_place(txn: WriteTransaction, place: LocationRecord) -> None:
    """Record another place of the cold tier, or another address of the same; queue it for the journal.

    Objects that are being made go to the place before: they are given up, so that none is linked that is not there.
    """
    for _, intent in list(txn.scan(INTENTS)):
        discard(txn, intent)
    changes.put(txn, LOCATIONS, place)
    # A place that a note is missing in may be this one.
    txn.update_store(journal=replace(txn.store.journal, left=NOWHERE))


@dataclass(frozen=True, slots=True)
class Newer:
    """What may be in a place since a version of its tier: a few names, however many objects are there."""

    names: tuple[str, ...]
    prefixes: tuple[str, ...]
    """Beginnings of names below which there are few objects."""


@dataclass(frozen=True, slots=True)
class TierVersion:
    """A moment of a cold tier: if it is the same later, no object was linked meanwhile, and nothing published."""

    next_slot: int
    checkpoint_slot: int
    next_outbox: int
    """Of the changes that wait for the journal."""
    next_id: int
    published_sequence: int
    begun: frozenset[str]
    """Names of the objects that were being made, which have their ids already."""
    object_moves: int = 0

    @classmethod
    def of(cls, txn: ReadTransaction) -> TierVersion:
        """Return the present one."""
        store, journal = txn.store, txn.store.journal
        begun = frozenset(intent.name for _, intent in txn.scan(INTENTS) if not is_job(intent))
        return cls(
            journal.next_slot,
            journal.checkpoint_slot,
            store.next_outbox,
            store.next_id,
            journal.published_sequence,
            begun,
            store.object_moves,
        )

    def newer(self, txn: ReadTransaction, location_id: LocationId) -> Newer:
        """Return what may have been put into the tier since, and counts: objects that were linked, and the journal.

        Objects that are begun and not linked are missing: `record_place` ends them.
        """
        # Names that objects got in the archive, or on their way back, have the ids of before: then all are looked at.
        have_moved = txn.store.object_moves != self.object_moves
        first_id = 0 if have_moved else self.next_id
        made = (
            record
            for _, record in txn.scan(OBJECTS, tables.u64(first_id))
            if record.location_id == location_id
            and (record.id >= self.next_id or record.linked_sequence >= self.next_outbox)
        )
        beside = (name for record in made for name in (record.name, record.index_name, record.entries_name) if name)
        jobs = {record.job for record in batches.unfolded(txn, self.published_sequence) if record.job}
        return Newer(
            tuple(sorted({*beside, *self.begun})),
            (EPOCHS_PREFIX, JOURNAL_PREFIX, *(f"{JOBS_PREFIX}{job}/" for job in sorted(jobs))),
        )

    def is_current(self, txn: ReadTransaction) -> bool:
        """Return whether no object was linked since, whenever it was begun, and nothing published."""
        journal = txn.store.journal
        if (journal.next_slot, journal.checkpoint_slot) != (self.next_slot, self.checkpoint_slot):
            return False
        # The commit that links an object queues the change that names it. Ids tell nothing: a pack has its id from its
        # intent. What is begun and not linked needs no comparison: record_place ends it.
        return next(changes.queued_objects(txn, self.next_outbox), None) is None


@dataclass(slots=True)
class Copied:
    """Results of the copying."""

    objects: int = 0
    bytes: int = 0
    by_server_bytes: int = 0
    """Of those, the bytes that did not pass through this machine."""
    present: int = 0
    """Objects that were there."""
    left: list[str] = field(default_factory=list)
    """Names that no object of a store has, as other tools make them."""

    def add(self, copied: ComposedObject) -> None:
        """Count one object that was copied."""
        self.objects += 1
        self.bytes += copied.length_bytes
        self.by_server_bytes += copied.length_bytes - copied.client_bytes


class TierCopy:
    """Copies the objects of one place to another. Used by one thread, which starts others."""

    def __init__(self, origin: ChunkStorage, target: ChunkStorage, meter: Meter, trace: Trace | None = None) -> None:
        """`trace`: what is in the target, to notice that it lies inside the origin."""
        self._trace = trace
        self._origin = origin
        self._target = target
        self._meter = meter
        self._server_copies = True
        self.done = Copied()
        self.is_inside = False
        """Whether the target was seen to lie inside the origin."""

    def run(self, *, compares: bool, newer: Newer | None = None) -> int:
        """Copy every object that is missing, or those of `newer` alone; return how many.

        `compares`: compare those that are there and have no checksums; the caller proves the others afterwards. Without
        it, what is copied now is compared, whatever it is. The mark is left out: it is written when the
        copy begins. Raises DataLoss for one that differs, InvalidRequest for a target inside the origin, and what the
        storages raise; then a later call continues.
        """
        before = self.done.objects
        self.done.present, self.done.left = 0, []
        prefixes = ("",) if newer is None else newer.prefixes
        listed = (stored.name for prefix in prefixes for stored in self._wanted(prefix, compares=compares))
        names = chain(listed, () if newer is None else filter(self._is_missing, newer.names))

        def copy(name: str) -> ComposedObject | None:
            if not compares:
                return self._copy(name, compared_bytes=sys.maxsize)
            return self._copy(name, compared_bytes=0 if name.startswith(_WITH_CHECKSUMS) else _COMPARED_BYTES)

        with Pool(_AT_ONCE, "tierfs-move") as pool:
            for name, copied in pool.as_completed(copy, names):
                if copied is not None:
                    self.done.add(copied)
                    self._meter(copied.length_bytes, name, 1)
        return self.done.objects - before

    def again(self, name: str) -> None:
        """Copy an object over the one there, whose bytes are wrong; the caller proved those of the origin."""
        self._target.delete(name)
        self._copy(name, compared_bytes=0)

    def _is_missing(self, name: str) -> bool:
        """Return whether the target lacks an object that has checksums, which its length alone tells."""
        try:
            there = self._target.stat(name)
        except NotFound:
            return True
        try:
            here = self._origin.stat(name)
        except NotFound:
            return False
        if there.length_bytes != here.length_bytes:
            raise self._differ(name)
        self.done.present += 1
        return False

    def _wanted(self, prefix: str, *, compares: bool) -> Iterator[StoredObject]:
        """Yield the objects to copy, ascending: both listings are in the same order."""
        there = self._target.list(prefix)
        other = next(there, None)
        for stored in self._origin.list(prefix):
            if self._trace is not None and self._trace.is_below(self._origin, stored.name, (MOVING_NAME,)):
                self.is_inside = True
                raise InvalidRequest(
                    f"{self._target!r} is inside the current place, {self._origin!r}",
                    remedy="choose another prefix or directory",
                )
            name = stored.name.encode()
            while other is not None and other.name.encode() < name:
                other = next(there, None)
            if _is_of_the_place(stored.name):
                continue
            if not self._is_ours(stored.name):
                continue
            if other is None or other.name != stored.name:
                yield stored
                continue
            if not stored.name.startswith(_WITH_CHECKSUMS) and self._differs(stored, other, compares=compares):
                raise self._differ(stored.name)
            self.done.present += 1
            self._meter(stored.length_bytes, stored.name, 1)

    def _differ(self, name: str) -> DataLoss:
        return DataLoss(
            f"{printable(name)} differs between {self._target!r} and {self._origin!r}",
            remedy="if the one in the new place is wrong, remove it, and run the command again",
        )

    def _is_ours(self, name: str) -> bool:
        try:
            check_name(name)
        except InvalidRequest:
            self.done.left.append(name)
            return False
        return True

    def _differs(self, stored: StoredObject, other: StoredObject, *, compares: bool) -> bool:
        """Compare an object that has no checksums at both places."""
        if stored.length_bytes != other.length_bytes or not compares or stored.length_bytes > _COMPARED_BYTES:
            return stored.length_bytes != other.length_bytes
        return self._has_other_bytes(stored)

    def _has_other_bytes(self, stored: StoredObject) -> bool:
        """Read an object at both places, in steps of bounded size; one wrong read is none (invariant 16)."""
        for at in range(0, stored.length_bytes, _COMPARED_BYTES):
            length_bytes = min(_COMPARED_BYTES, stored.length_bytes - at)
            if self._step_differs(stored.name, at, length_bytes) and self._step_differs(stored.name, at, length_bytes):
                return True
        return False

    def _step_differs(self, name: str, at: int, length_bytes: int) -> bool:
        buffers = [memoryview(bytearray(length_bytes)) for _ in range(2)]
        for storage, buffer in zip((self._origin, self._target), buffers, strict=True):
            storage.read_into(name, at, buffer)
        return buffers[0] != buffers[1]

    def _copy(self, name: str, *, compared_bytes: int) -> ComposedObject | None:
        """Copy one object; return it with its cost, or None if it was deleted meanwhile.

        One of at most `compared_bytes` is read at both places, as nothing else will notice bytes that were damaged on
        their way. Raises DataLoss if two copies differ.
        """
        for last in (False, True):
            copied = self._copy_once(name)
            if copied is None or copied.length_bytes > compared_bytes or not self._was_damaged(name):
                return copied
            self._target.delete(name)  # it was not there before
            if last:
                raise DataLoss(f"{printable(name)} differs between {self._target!r} and {self._origin!r}")
        raise AssertionError("unreachable")

    def _was_damaged(self, name: str) -> bool:
        """Return whether a copy differs; not if the original was deleted meanwhile."""
        try:
            return self._has_other_bytes(self._origin.stat(name))
        except NotFound:
            return False

    def _copy_once(self, name: str) -> ComposedObject | None:
        try:
            stored = self._origin.stat(name)  # listings carry no metadata
        except NotFound:
            return None
        try:
            client_bytes = self._by_server(stored)
            if client_bytes is None:
                self._target.put(name, StoredSource(self._origin, stored), metadata=stored.metadata)
                client_bytes = stored.length_bytes
        except AlreadyExists:  # the answer to a first try was lost, and not every object names its attempt
            if self._target.stat(name).length_bytes != stored.length_bytes or self._has_other_bytes(stored):
                raise
            client_bytes = stored.length_bytes
        except NotFound:
            if any(each.name == name for each in islice(self._origin.list(name), 1)):
                raise  # it is the other place that is missing
            return None
        return ComposedObject.of(stored, client_bytes)

    def _by_server(self, stored: StoredObject) -> int | None:
        """Let the server copy; return the bytes that passed through here all the same, None where it cannot."""
        if not self._server_copies:
            return None
        try:
            return self._target.copy_from(self._origin, stored) if isinstance(self._target, ServerCopies) else None
        except (PermissionDenied, InvalidRequest) as exc:  # most often keys that know only one of the buckets
            self._server_copies = False
            log.info("the server does not copy, so the bytes pass through this machine: %s", exc)
            return None


def _is_of_the_place(name: str) -> bool:
    """Return whether an object tells of the place that it is in."""
    if name == ALIVE_NAME or standby_of(name) is not None:  # standbys follow the place, and put their marks anew
        return True
    return name in (MARK_NAME, MOVING_NAME) or name.startswith(PROBE_DIRECTORY) or left_slot(name) is not None


class StoredSource:
    """A Source over one version of an object in another storage."""

    def __init__(self, storage: ChunkStorage, stored: StoredObject) -> None:
        self._storage = storage
        self._stored = stored

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._stored.length_bytes

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Return the bytes in a buffer of their own. Raises DataLoss when the object was replaced."""
        view = memoryview(bytearray(length_bytes))
        self._storage.read_into(self._stored.name, offset, view, if_match=self._stored.etag)
        return view
