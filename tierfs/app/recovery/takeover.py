"""Take a bucket over from an owner that may be alive: win the slot after its newest entry.

A create-only PUT decides the winner of a slot. A taken slot holds an entry that the owner published meanwhile: it is
replayed, and the next slot is tried. The winning entry is replayed like any other, so no change of our own is made
here before the bucket is ours.
"""

from __future__ import annotations

import logging
import socket
from contextlib import closing

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import AlreadyExists, NotFound, Unavailable
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.journal import epochs, reader, replay
from tierfs.engine.journal.names import slot_name
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.metadata import changes, epoch_numbers, frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import StoreRecord
from tierfs.engine.metadata.store import MetadataStore, new_id

log = logging.getLogger(__name__)

# Slots tried in a row. Each is a race of two requests against the owner's three: a few are lost, never a thousand.
_TRIES = 1000

# Tries per listing: one finds all new entries at once, and costs a request of the race.
_LIST_EVERY = 8


class SupersededError(Exception):
    """The slots after the metadata's last one were deleted because of a newer checkpoint: rebuild from that one."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """One attempt to own a bucket, with metadata that were rebuilt from its journal."""

    metadata: MetadataStore
    storage: ChunkStorage
    place: Place
    standby_attempt: str = ""
    """Id of the takeover of a standby, which shows signs of life from its first entry on; empty: of a recovery."""
    follows_epoch: int | None = None
    """Of the owner that a standby follows, and takes the bucket from; None: from whoever owns it."""

    def win(self) -> int:
        """Begin the next store epoch in the bucket, and return it; the previous owner is fenced from then on.

        Raises Fenced when another recovery was faster, or the owner is not the one that was followed, SupersededError,
        Unavailable when the owner was faster a thousand times, DataLoss for a damaged entry, and storage errors.
        """
        with self.metadata.read() as txn:
            store = txn.store
        # Whoever begins one from here on was faster. Ours may be greater, as the other may note its epoch before we do,
        # and win its slot after that: it owns the bucket then, and its first appends must not be superseded.
        faster_from = store.store_epoch + 1
        if self.follows_epoch is not None and store.store_epoch > self.follows_epoch:
            raise epochs.faster(store.store_epoch)
        self._catch_up(faster_from, store)
        epoch = max(faster_from, epochs.newest(self.storage) + 1)  # beyond an owner that the journal no longer names
        now_ms, standby_attempt = self.metadata.clock.now_ms(), self.standby_attempt
        epochs.begin(self.storage, epoch, self.metadata.store_id, now_ms, standby_attempt=standby_attempt)
        attempt = new_id()
        for number in range(1, _TRIES + 1):
            if number % _LIST_EVERY == 0:
                with self.metadata.read() as txn:
                    store = txn.store
                self._catch_up(faster_from, store)
            entry = self._entry(epoch, attempt)
            if self._create(entry, faster_from):
                self._require_newest(entry)
                self._begin(entry)
                return epoch
        raise Unavailable("the owner publishes faster than it can be replaced", remedy="stop it, or retry")

    def _catch_up(self, faster_from: int, store: StoreRecord) -> None:
        """Replay every entry after those that `store` has. Raises SupersededError when some may be missing or void."""
        applied, current = store.journal.next_slot - 1, store.store_epoch
        listing = reader.list_journal(self.storage, after_slot=applied)
        if reader.must_start_over(listing, applied):
            raise SupersededError(f"slots after {applied} were deleted")
        items = reader.entries_behind(self.storage, listing, applied, current)
        try:
            with closing(reader.read_entries(self.storage, items)) as entries:
                for entry in entries:
                    self._replay(entry, faster_from)
        except NotFound as exc:
            raise SupersededError(str(exc)) from exc

    def _entry(self, epoch: int, attempt: str) -> pb.JournalEntry:
        with self.metadata.read() as txn:
            now_ms = self.metadata.clock.now_ms()
            return changes.takeover_entry(txn.store, epoch, attempt, self.place.record, socket.gethostname(), now_ms)

    def _create(self, entry: pb.JournalEntry, faster_from: int) -> bool:
        """Try to win the slot; return whether it is ours. A taken slot's entry is replayed."""
        name = slot_name(entry.slot)
        try:
            self.storage.put(name, BufferSource(frames.frame(entry)), metadata={"attempt": entry.attempt})
        except AlreadyExists:
            try:
                other = read_parsed(self.storage, name, frames.parse_entry)
            except NotFound as exc:
                raise SupersededError(str(exc)) from exc
            if other.attempt == entry.attempt:
                return True  # the answer to the first request was lost
            log.info("slot %d was taken by the previous owner", entry.slot)
            self._replay(other, faster_from)
            return False
        return True

    def _replay(self, entry: pb.JournalEntry, faster_from: int) -> None:
        if entry.store_epoch >= faster_from:
            raise epochs.faster(entry.store_epoch)
        with self.metadata.write() as txn:
            replay.apply_entry(txn, entry)
            replay.see_time(txn, replay.written_ms(entry))

    def _require_newest(self, entry: pb.JournalEntry) -> None:
        """Raise unless no entry or checkpoint follows ours: a deleted slot can be created again, and is then void."""
        listing = reader.list_journal(self.storage, after_slot=entry.slot)
        checkpoints = [slot for slot in listing.checkpoints if slot >= entry.slot]
        later = [reader.read_entry(self.storage, item).store_epoch for item in listing.slots.values()]
        later += [reader.read_manifest(self.storage, listing.checkpoints[slot]).store_epoch for slot in checkpoints]
        newest = max(later, default=0)
        if newest >= entry.store_epoch:
            raise epochs.faster(newest)
        if later:
            raise SupersededError(f"slot {entry.slot} was deleted earlier")

    def _begin(self, entry: pb.JournalEntry) -> None:
        with self.metadata.write() as txn:
            replay.apply_entry(txn, entry)
            # The previous owner may have used ids that its journal never named.
            next_id = max(txn.store.next_id, epoch_numbers.first_of(entry.store_epoch))
            txn.update_store(next_id=next_id, created_ms=txn.now_ms)
