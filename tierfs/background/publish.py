"""Publish: the outbox becomes entries of the bucket's journal, one create-only slot after another.

The journal is the fence (design §6). Crash order: intent committed (slot, range, attempt) -> slot
created -> ownership confirmed by a listing -> rows dropped and the position moved in one commit. After
a crash the same intent yields the same entry, and a slot that holds it already is our own.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace

from tierfs.background.journal_names import (
    JOURNAL_PREFIX,
    checkpoint_slot,
    entry_slot,
    slot_name,
)
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.errors import AlreadyExists, Conflict, DataLoss, Fenced
from tierfs.metadata import fence, journal, keys
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import Fencer, PublishIntent, StoreRecord
from tierfs.metadata.store import MetadataStore, new_id
from tierfs.metadata.tables import OUTBOX_NAME
from tierfs.metadata.transaction import ReadTransaction

log = logging.getLogger(__name__)

_ENTRY_BYTES = 4 * 1024 * 1024
"""Changes per entry end here: half of what a journal object may have, so that framing always fits."""

_ENTRY_CHANGES = 10_000
"""And here, so that one entry is replayed in well under a second."""


@dataclass(frozen=True, slots=True)
class _Entry:
    intent: PublishIntent
    data: bytes


class Publisher:
    """Writes the journal of one store, and knows whether it is still ours. Used by the holder only; thread-safe."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage) -> None:
        self._metadata = metadata
        self._storage = storage
        self._one_at_a_time = threading.RLock()

    def publish(self) -> int:
        """Publish until the outbox is empty; returns the number of entries written. Idempotent.

        Raises Fenced when another owner's entries are found (the store is read-only from then on), and
        what the storage raises: then nothing is lost, and the next call goes on.
        """
        entries = 0
        with self._one_at_a_time:
            while self._is_queued() and (entry := self._next_entry()) is not None:
                if not self._create(entry):
                    self._skip(entry.intent)
                    continue
                self._require_newest(entry.intent.slot, checkpoints_from=entry.intent.slot)
                self._confirm(entry.intent)
                entries += 1
        return entries

    def require_ownership(self) -> None:
        """Make certain by one listing that nobody took the bucket over, as before a deletion.

        Raises Fenced, and what the storage raises: then nothing is certain.
        """
        with self._one_at_a_time:
            if self._store_record().journal.intent.attempt:
                self.publish()  # an entry that is on its way may be in the bucket already
            store = self._store_record()
            fence.require_owner(store)
            next_slot = store.journal.next_slot
            self._require_newest(next_slot - 1, checkpoints_from=next_slot)

    def _is_queued(self) -> bool:
        """Whether there is anything to publish; asked each second, so the one writer is not taken for it."""
        with self._metadata.read() as txn:
            fence.require_owner(txn.store)
            return bool(txn.store.journal.intent.attempt or txn.count(OUTBOX_NAME))

    def _next_entry(self) -> _Entry | None:
        """The entry of the standing intent, or of a new one that is committed first."""
        with self._metadata.write() as txn:
            state = txn.store.journal
            intent = state.intent
            if not intent.attempt:
                found = _next_range(txn, state.published_sequence)
                if found is None:
                    return None
                intent = PublishIntent(
                    slot=state.next_slot, first_sequence=found[0], last_sequence=found[1], attempt=new_id()
                )
                txn.update_store(journal=replace(state, intent=intent))
        with self._metadata.read() as view:
            message = journal.entry_of(view, intent.slot, intent.first_sequence, intent.last_sequence, intent.attempt)
        return _Entry(intent, journal.frame(message))

    def _create(self, entry: _Entry) -> bool:
        """Win the slot, or find that it holds this very entry already; False when a void one has it."""
        name = slot_name(entry.intent.slot)
        try:
            self._storage.put(name, BufferSource(entry.data), metadata={"attempt": entry.intent.attempt})
        except AlreadyExists as exc:
            return self._is_own(name, entry, exc)
        return True

    def _is_own(self, name: str, entry: _Entry, taken: AlreadyExists) -> bool:
        """Whether the entry that has a slot is ours, or void; raises Fenced when it is neither."""
        other = journal.parse_entry(read_small(self._storage, name), name)
        store = self._store_record()
        if (other.store_id, other.store_epoch, other.attempt) == (
            store.store_id,
            store.store_epoch,
            entry.intent.attempt,
        ):
            log.info("slot %d was written before a crash and is our own", entry.intent.slot)
            return True
        if _is_void(other, store):
            log.info("slot %d holds a void entry of epoch %d", entry.intent.slot, other.store_epoch)
            return False
        raise self._fenced(other.store_epoch, _fencer(other)) from taken

    def _require_newest(self, slot: int, *, checkpoints_from: int) -> None:
        """A create that succeeds is not yet ownership: superseded slots are deleted. Later ones are not.

        Entries of lower epochs are void wherever they stand, so they prove nothing.
        """
        store = self._store_record()
        for found in self._storage.list(JOURNAL_PREFIX, after=slot_name(slot)):
            later = entry_slot(found.name)
            if later is not None and later > slot:
                other = journal.parse_entry(read_small(self._storage, found.name), found.name)
                if not _is_void(other, store):
                    raise self._fenced(other.store_epoch, _fencer(other))
            checkpoint = checkpoint_slot(found.name)
            if checkpoint is not None and checkpoint >= checkpoints_from:
                manifest = journal.parse_manifest(read_small(self._storage, found.name), found.name)
                raise self._fenced(manifest.store_epoch, Fencer(store_id=manifest.store_id))

    def _skip(self, intent: PublishIntent) -> None:
        """Go on behind a slot that a void entry has; readers skip it too."""
        with self._metadata.write() as txn:
            if txn.store.journal.intent == intent:
                moved = replace(txn.store.journal, next_slot=intent.slot + 1, intent=PublishIntent())
                txn.update_store(journal=moved)

    def _confirm(self, intent: PublishIntent) -> None:
        with self._metadata.write() as txn:
            state = txn.store.journal
            if state.intent != intent:
                raise Conflict("another process published meanwhile", remedy="run the command again")
            for sequence in range(intent.first_sequence, intent.last_sequence + 1):
                txn.delete(OUTBOX_NAME, keys.u64(sequence))
            published = replace(
                state,
                next_slot=intent.slot + 1,
                published_sequence=intent.last_sequence,
                intent=PublishIntent(),
            )
            txn.update_store(journal=published)

    def _store_record(self) -> StoreRecord:
        with self._metadata.read() as txn:
            return txn.store

    def _fenced(self, epoch: int, fencer: Fencer) -> Fenced:
        """Remember it: from now on the store changes nothing, here or in the bucket (invariant 7)."""
        with self._metadata.write_notes() as txn:
            txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=epoch, fencer=fencer))
            return fence.fenced(txn.store)


def _is_void(entry: pb.JournalEntry, store: StoreRecord) -> bool:
    """Whether an entry is of an owner before this store, who was superseded when it wrote it."""
    return entry.store_id == store.store_id and entry.store_epoch < store.store_epoch


def _fencer(entry: pb.JournalEntry) -> Fencer:
    """Who wrote an entry; the first one of an owner says where it runs."""
    begins = next((change.owner_begins for change in entry.changes if change.HasField("owner_begins")), None)
    if begins is None:
        return Fencer(store_id=entry.store_id)
    return Fencer(store_id=entry.store_id, host=begins.host, since_ms=begins.wall_ms)


def _next_range(txn: ReadTransaction, published: int) -> tuple[int, int] | None:
    """First and last sequence of the next entry, or None when everything is published."""
    first, last, size_bytes = 0, 0, 0
    for count, (sequence, data) in enumerate(journal.outbox(txn, published)):
        size_bytes += len(data)
        if count and (size_bytes > _ENTRY_BYTES or count >= _ENTRY_CHANGES):
            break
        first, last = first or sequence, sequence
    return (first, last) if first else None


def read_small(storage: ChunkStorage, name: str) -> bytes:
    """All of a journal object. Its size is checked before it is read: what is in a bucket is hostile."""
    length = storage.stat(name).length_bytes
    if length > journal.MAX_OBJECT_BYTES:
        raise DataLoss(f"{name} has {length} bytes; an object of a journal has at most {journal.MAX_OBJECT_BYTES}")
    buffer = memoryview(bytearray(length))
    if length:
        storage.read_into(name, 0, buffer)
    return bytes(buffer)
