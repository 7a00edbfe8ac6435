"""Publish: the outbox becomes entries of the bucket's journal, one create-only slot after another.

The journal is the fence (design §6). Crash order: intent committed (slot, range, attempt) -> slot created -> ownership
confirmed by a listing -> markers of batches put -> rows dropped and the position moved in one commit. After a crash the
same intent yields the same entry, and a slot that holds it already is our own. Before a slot is created, a listing must
show the one before it: otherwise the place is not the store's cold tier (cold_identity.py).

The holder publishes, and so does each process whose appends are acknowledged by the journal. They agree by the
records: both write the entry of the same intent, and a slot that one of them creates was announced there before. The
lock that they take in turn saves requests; nothing depends on it, so a process that is stopped while it has the lock
delays the others by TURN_S. All waits end by the deadline in force (system/deadlines.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.system import deadlines
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import AlreadyExists, Conflict, Fenced, WrongColdTier
from tierfs.engine.chunkstore.located import LocatedStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.journal import batch_markers, cold_identity, kept_entries, left
from tierfs.engine.journal.asked import is_recent, note_asked
from tierfs.engine.journal.cold_identity import Sighting
from tierfs.engine.journal.life import StandbyMark, marks_in
from tierfs.engine.journal.names import entry_slot, left_name, slot_name
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.metadata import batches, changes, frames, store_ownership, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.batch_records import BatchRecord
from tierfs.engine.metadata.journal_state import Fencer, PublishIntent
from tierfs.engine.metadata.records import LocationRecord, StoreRecord
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import LOCATIONS, OUTBOX_NAME
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

__all__ = ["PROOF_S", "OtherOwner", "Publisher", "fenced_by", "look_for_other"]

log = logging.getLogger(__name__)

# Validity of a listing that proved the place ours, for the next upload, slot or eviction; counts suspended time.
# Shorter than an exchange of a disk or bucket takes, and one LIST per 10 s costs nothing. A guess.
PROOF_S = 10.0

# Validity of a check of the mark: a connection's target changes less often than its contents.
_MARK_S = 60.0

# Longest wait for another process that publishes: more than its requests take unless the server fails. A guess.
TURN_S = 5.0

# File beside the records whose lock publishers take in turn.
_TURN_NAME = "publishing"

# An entry ends at this size of its changes: half of a journal object's limit, so that framing always fits.
ENTRY_BYTES = 4 * 1024 * 1024

# An entry ends at this number of changes too, so that it is replayed in well under a second.
_ENTRY_CHANGES = 10_000


@dataclass(frozen=True, slots=True)
class _Entry:
    intent: PublishIntent
    data: bytes
    committed: tuple[BatchRecord, ...]
    """Batches that are complete with it."""


class Publisher:
    """Writes the journal of one store, and checks that it is still ours. Thread-safe, also beside other processes'."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, place: LocationRecord | None = None) -> None:
        """`place`: the record by which `storage` was connected; None: the one of now."""
        self._metadata = metadata
        self.storage = self._storage = storage
        self._place = place or _place_in(metadata)
        self._one_at_a_time = threading.RLock()
        self._proven_s: float | None = None
        self._marked_s: float | None = None
        """Time since boot at which the place, and its mark, were last seen to be ours."""
        self.standbys: tuple[StandbyMark, ...] = ()
        """The standbys that follow the store, as of the last listing of this process."""

    def publish(self, *, until: int | None = None, claims: bool = False, report: OnProgress = unseen) -> int:
        """Publish until the journal names change `until`; return how many entries were written.

        By default that is the newest change of now: changes that come meanwhile are gathered for the next call, however
        fast they come. Idempotent. `claims`: a new owner wins its first slot, before anything of its own is there to
        identify the place. Raises Fenced when another owner's entries are found (the store is read-only from then on),
        WrongColdTier, and what the storage raises: then nothing is lost, and the next call continues.
        """
        entries, published = 0, Meter(report, noun="journal entry")
        with deadlines.taken(self._one_at_a_time, _TURN_NAME):
            with self._metadata.read() as txn:
                until = txn.store.next_outbox - 1 if until is None else until
                if not _is_queued(txn, until):
                    return 0
            with self._turn():
                while self._is_queued(until) and (entry := self._next_entry()) is not None:
                    if not claims and not self._is_proven():
                        self._require_newest()
                    if not self._create(entry):
                        self._skip(entry.intent)
                        continue
                    self._require_newest(entry.intent.slot, claims=claims)
                    for record in entry.committed:  # before anything can rely on their being published
                        batch_markers.put(self._metadata, self._storage, record)
                    self._confirm(entry.intent, entry.data)
                    entries, claims = entries + 1, False
                    published(len(entry.data), "publishing to the journal", 1)
        return entries

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for other processes that publish, so that each entry is sent once."""
        from tierfs.base.system.locks import LockFile  # `status` asks the bucket for its owner, and publishes nothing

        path = self._metadata.path / _TURN_NAME
        with map_os_errors(str(path)):
            lock = LockFile(path)
        with closing(lock):
            with map_os_errors(str(path)):
                is_ours = lock.lock_within(deadlines.within(TURN_S))
            if not is_ours:
                deadlines.require_time("another process has been publishing")
                log.info("another process has been publishing for %.0f s; this one publishes in parallel", TURN_S)
            yield

    def is_in_place(self) -> bool:
        """Return whether the storage is still where the store's cold tier is."""
        return self._place is None or _place_in(self._metadata) in (None, self._place)

    def require_place(self, txn: ReadTransaction) -> None:
        """Raise Conflict if the cold tier has another address by now: what was just written is not there."""
        # An intent stays: under the new address the same entry is written again, or found if it is the same bucket.
        if self._place is not None and _place_of(txn) not in (None, self._place):
            raise _elsewhere()

    def mark_batches(self, *, after_sequence: int) -> None:
        """Write the markers that an owner before this one may have left out, of commits after a change."""
        batch_markers.put_all(self._metadata, self._storage, after_sequence=after_sequence)

    def require_ownership(self) -> None:
        """Verify by one listing that the place is ours and was not taken over, as before a deletion.

        Raises Fenced, WrongColdTier, and what the storage raises: then nothing is certain.
        """
        with deadlines.taken(self._one_at_a_time, _TURN_NAME):
            if self._store_record().journal.intent.attempt:
                self.publish()  # an entry in flight may be in the bucket already
            self.verify_ownership()

    def require_recent_ownership(self) -> None:
        """Call verify_ownership unless that succeeded in the last PROOF_S. Costs a microsecond then."""
        if not self._is_proven():
            self.verify_ownership()

    def verify_ownership(self) -> None:
        """Verify as require_ownership does, and publish nothing: it succeeds where a bucket only takes no writes."""
        with deadlines.taken(self._one_at_a_time, _TURN_NAME):
            store_ownership.require_owner(self._store_record())
            self._require_newest()  # an entry in flight is recognized by its intent, and is published later

    def _is_proven(self) -> bool:
        return is_recent(self._proven_s, self._metadata.clock.boot_s(), PROOF_S)

    def _is_queued(self, until: int) -> bool:
        """Return whether any of that is to be published; called each second, so it does not occupy the one writer."""
        with self._metadata.read() as txn:
            return _is_queued(txn, until)

    def _next_entry(self) -> _Entry | None:
        """Return the entry of the standing intent, or of a new one that is committed first; None without changes."""
        while True:
            with self._metadata.write() as txn:
                self.require_place(txn)  # no slot is created in a place that was left
                intent = intend(txn)
            if intent is None:
                return None
            with self._metadata.read() as view:
                if view.store.journal.intent != intent:
                    continue  # another process published it meanwhile, and its rows are gone
                slot, first, last = intent.slot, intent.first_sequence, intent.last_sequence
                message = changes.entry_of(view, slot, first, last, intent.attempt)
            return _Entry(intent, frames.frame(message), tuple(batches.committed_by(message.changes)))

    def _create(self, entry: _Entry) -> bool:
        """Win the slot, or find that it holds this very entry already; return False when a void entry has it."""
        name = slot_name(entry.intent.slot)
        try:
            self._storage.put(name, BufferSource(entry.data), metadata={ATTEMPT_KEY: entry.intent.attempt})
        except AlreadyExists as exc:
            return self._resolve_taken(name, entry.intent, exc)
        return True

    def _resolve_taken(self, name: str, intent: PublishIntent, taken: AlreadyExists) -> bool:
        """Return True when our entry has the slot, False when a void one has; raise Fenced for any other."""
        other = read_parsed(self._storage, name, frames.parse_entry)
        store = self._store_record()
        if _is_own(other, intent, store):
            log.info("slot %d was written before a crash and is our own", intent.slot)
            return True
        if _is_void(other, store):
            log.info("slot %d contains a void entry of epoch %d", intent.slot, other.store_epoch)
            return False
        owner = OtherOwner(name, other.store_epoch, other.attempt, _fencer(other))
        raise fenced_by(self._metadata, self._storage, owner) from taken

    def _require_newest(self, created: int = 0, *, claims: bool = False) -> None:
        """Verify by one listing that the place is ours, up to our newest slot and the one just created.

        A create that succeeds is not yet ownership, as superseded slots are deleted; later slots are not.
        """
        self._proven_s = None
        began_s = self._metadata.clock.boot_s()
        store = self._store_record()
        try:
            self._judge(store, created, claims=claims)
            if not is_recent(self._marked_s, began_s, _MARK_S):
                marked = cold_identity.require_mark(self._storage, store, created)
                self._marked_s = began_s if marked else None
        except WrongColdTier as exc:
            if not self.is_in_place():
                raise _elsewhere() from exc
            note_asked(self._metadata, began_s, cold_identity.as_warning(exc), every_s=PROOF_S)
            raise
        note_asked(self._metadata, began_s, every_s=PROOF_S)
        self._proven_s = began_s

    def _judge(self, store: StoreRecord, created: int, *, claims: bool) -> None:
        # A process of this store records its intent before it creates a slot or a manifest, and its position before
        # it deletes what is superseded: what a listing shows or lacks counts only if the records, read again, are as
        # they were before the listing.
        while True:
            if created <= store.journal.newest_slot:  # another process confirmed it, and it may be superseded by now
                created = 0
            try:
                other = look_for_other(self._storage, store, created, claims=claims, on_look=self._see_standbys)
                if other is None:
                    return
            except WrongColdTier:
                if _position(now := self._store_record()) == _position(store):
                    raise
            else:
                if _position(now := self._store_record()) == _position(store):
                    raise fenced_by(self._metadata, self._storage, other)
            store = now

    def _see_standbys(self, sighting: Sighting) -> None:
        self.standbys = marks_in(sighting.marks)

    def _skip(self, intent: PublishIntent) -> None:
        """Continue after a slot that a void entry has; readers skip it too."""
        with self._metadata.write() as txn:
            if txn.store.journal.intent == intent:
                txn.update_store(journal=replace(txn.store.journal, next_slot=intent.slot + 1, intent=PublishIntent()))

    def _confirm(self, intent: PublishIntent, data: bytes = b"") -> None:
        with self._metadata.write() as txn:
            self.require_place(txn)
            state = txn.store.journal
            if state.intent != intent:
                if state.published_sequence >= intent.last_sequence:
                    return  # another process created the same entry, and was first to confirm it
                raise Conflict("another process published meanwhile", remedy="run the command again")
            for sequence in range(intent.first_sequence, intent.last_sequence + 1):
                txn.delete(OUTBOX_NAME, tables.u64(sequence))
            kept_entries.keep(txn, intent.slot, data)
            # Changes that still wait are younger than the intent.
            state = replace(state, published_ms=txn.now_ms, queued_ms=txn.now_ms if txn.count(OUTBOX_NAME) else 0)
            published = replace(
                state, next_slot=intent.slot + 1, published_sequence=intent.last_sequence, intent=PublishIntent()
            )
            txn.update_store(journal=published)

    def _store_record(self) -> StoreRecord:
        with self._metadata.read() as txn:
            return txn.store


@dataclass(frozen=True, slots=True)
class OtherOwner:
    """An object that another owner put after this store's newest slot."""

    name: str
    epoch: int
    attempt: str
    fencer: Fencer
    left_slot: int = 0
    """Newest slot of the place as it was left by a move, for a note that tells so."""


def _elsewhere() -> Conflict:
    return Conflict("the address of the cold tier has changed", remedy="run the command again")


def look_for_other(
    storage: ChunkStorage,
    store: StoreRecord,
    created: int = 0,
    *,
    claims: bool = False,
    on_look: Callable[[Sighting], None] = lambda _: None,
) -> OtherOwner | None:
    """Return the first object of another owner, by one listing; None when the place is the store's.

    A note that a move left counts as one: this store is a copy of the one that was moved.

    Raises WrongColdTier unless the newest slot is shown, and the one just `created`; a new owner that `claims` the
    place has only that one. Entries of lower epochs are void at any position, so they prove nothing.
    `on_look` gets the listing.
    """
    state = store.journal
    sighting = cold_identity.look(storage, state.next_slot - 1)
    on_look(sighting)
    if sighting.left and not claims:  # as the last of its store's owners left it, and not as one of them goes on
        note = left.read(storage, sighting.left)
        fencer = Fencer(store_id=note.store_id, host=note.host, since_ms=note.moved_ms, moved_to=note.to)
        name = left_name(sighting.left)
        return OtherOwner(name, store.store_epoch, name, fencer, sighting.left)
    for name in sighting.later:
        if entry_slot(name) == created:
            continue
        if entry_slot(name) is None:
            manifest = read_parsed(storage, name, frames.parse_manifest)
            return OtherOwner(name, manifest.store_epoch, manifest.attempt, Fencer(store_id=manifest.store_id))
        entry = read_parsed(storage, name, frames.parse_entry)
        if not (_is_own(entry, state.intent, store) or _is_void(entry, store)):
            return OtherOwner(name, entry.store_epoch, entry.attempt, _fencer(entry))
    for slot in (0 if claims else state.newest_slot, created):
        cold_identity.require_shown(storage, sighting, slot)
    return None


def fenced_by(metadata: MetadataStore, storage: ChunkStorage, other: OtherOwner) -> Fenced:
    """Record that another owner has the bucket, and return the error. Raises WrongColdTier for another store's object.

    From then on the store changes nothing, here or in the bucket (invariant 7). Raises Conflict if the cold tier has
    another place by now: who writes to the one before is no owner of this one.
    """
    if isinstance(storage, LocatedStorage):
        storage.present()
    with metadata.read() as txn:
        cold_identity.require_same_store(storage, other.name, other.fencer.store_id, txn.store)
    with metadata.write_notes() as writing:
        if other.left_slot and writing.store.journal.newest_slot > other.left_slot:
            raise _elsewhere()  # it is this store that was moved meanwhile, and this process is late
        journal = replace(writing.store.journal, fenced_by_epoch=other.epoch, fencer=other.fencer)
        writing.update_store(journal=journal)
        return store_ownership.fenced(writing.store)


def _position(store: StoreRecord) -> tuple[object, ...]:
    """Return what each new object of the journal moves, before it is created or after."""
    state = store.journal
    return state.next_slot, state.published_sequence, state.intent, state.checkpoint, state.checkpoint_slot


def _place_of(txn: ReadTransaction) -> LocationRecord | None:
    return txn.get(LOCATIONS, tables.u32(txn.store.cold_location_id))


def _place_in(metadata: MetadataStore) -> LocationRecord | None:
    with metadata.read() as txn:
        return _place_of(txn)


def _is_queued(txn: ReadTransaction, until: int) -> bool:
    store_ownership.require_owner(txn.store)
    state = txn.store.journal
    return state.published_sequence < until and bool(state.intent.attempt or txn.count(OUTBOX_NAME))


def _is_own(entry: pb.JournalEntry, intent: PublishIntent, store: StoreRecord) -> bool:
    """Return whether an entry is that of this intent, as after a crash."""
    return bool(intent.attempt) and (entry.store_id, entry.store_epoch, entry.attempt) == (
        store.store_id,
        store.store_epoch,
        intent.attempt,
    )


def _is_void(entry: pb.JournalEntry, store: StoreRecord) -> bool:
    """Return whether an entry is of an earlier owner of this store, superseded when it wrote the entry."""
    return entry.store_id == store.store_id and entry.store_epoch < store.store_epoch


def _fencer(entry: pb.JournalEntry) -> Fencer:
    """Return the owner that wrote an entry; only an owner's first entry has its host and time."""
    begins = next((change.owner_begins for change in entry.changes if change.HasField("owner_begins")), None)
    if begins is None:
        return Fencer(store_id=entry.store_id)
    return Fencer(store_id=entry.store_id, host=begins.host, since_ms=begins.wall_ms)


def intend(txn: WriteTransaction) -> PublishIntent | None:
    """Return the standing intent of an entry, or write that of the next one; None without changes."""
    state = txn.store.journal
    if state.intent.attempt:
        return state.intent
    sequences = _next_range(txn, state.published_sequence)
    if sequences is None:
        return None
    first, last = sequences
    intent = PublishIntent(slot=state.next_slot, first_sequence=first, last_sequence=last, attempt=new_id())
    txn.update_store(journal=replace(state, intent=intent))
    return intent


def _next_range(txn: ReadTransaction, published: int) -> tuple[int, int] | None:
    """Return first and last sequence of the next entry, or None when everything is published.

    A limit ends no entry between an unlink and the link of the remaining parts: an owner that takes over there would
    have a gap.
    """
    first, last, size_bytes = 0, 0, 0
    for count, (sequence, data) in enumerate(changes.outbox(txn, published)):
        size_bytes += len(data)
        if count and (size_bytes > ENTRY_BYTES or count >= _ENTRY_CHANGES):
            return first, _complete(txn, first, last)
        first, last = first or sequence, sequence
    return (first, last) if first else None


def _complete(txn: ReadTransaction, first: int, last: int) -> int:
    """Return the last sequence that leaves no unlink at the end, nor the checksums of a link that follows.

    Returns `last` when there is nothing else: unlinks of large removals, or checksums of a single huge object.
    """
    for sequence in range(last, first - 1, -1):
        data = txn.get_raw(OUTBOX_NAME, tables.u64(sequence)) or b""
        if pb.Change.FromString(data).WhichOneof("body") not in ("cold_unlink", "checksums"):
            return sequence
    return last
