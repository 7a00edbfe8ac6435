"""Checkpoint: the whole metadata at one position of the journal, in parts, manifest last.

A small state is written whole; of a large one a checkpoint lists the levels before it and writes one more (levels.py).

Crash order: intent committed -> parts created -> everything they contain published -> manifest created -> position
moved -> superseded slots deleted, and only below the newest checkpoint but one, and of levels only those that neither
of the two lists. They go ascending, but in any order within a batch, where the place removes many objects with one
request: a reader whom a gap could mislead sees two newer checkpoints, and starts over. A crash leaves parts without a
manifest, which the next checkpoint deletes by their attempt, or an unconfirmed manifest, which the next one confirms,
as the checkpoint is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotFound, PermissionDenied
from tierfs.engine.chunkstore.protocol import MOST_DELETED, BufferSource, ChunkStorage, ManyDeletes, StoredObject
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.journal import kept_entries, levels
from tierfs.engine.journal.levels import LevelWriter, ListedLevels, PartWriter
from tierfs.engine.journal.names import (
    JOURNAL_PREFIX,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    level_name,
    level_of,
    part_of,
)
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import changes, frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.journal_state import CheckpointIntent, JournalState
from tierfs.engine.metadata.records import RECORD_VERSION, StoreRecord
from tierfs.engine.metadata.store import MetadataStore, new_id

log = logging.getLogger(__name__)


class Checkpointer:
    """Writes checkpoints of one store. Used by the holder only."""

    def __init__(
        self, metadata: MetadataStore, storage: ChunkStorage, publisher: Publisher, every_entries: int
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._publisher = publisher
        self._every_entries = every_entries

    def checkpoint_if_due(self, report: OnProgress = unseen) -> bool:
        """Write a checkpoint when enough entries were published since the last; return whether one was written."""
        state = self._state()
        if state.next_slot - 1 - state.checkpoint_slot < self._every_entries:
            return False
        self.checkpoint(report)
        return True

    def checkpoint(self, report: OnProgress = unseen, *, whole: bool = False) -> int:
        """Write a checkpoint now; return its slot. Raises Fenced and what the storage raises.

        `whole`: it refers to no level of an earlier one, as those may be damaged.
        """
        self._publisher.publish()
        self._publisher.require_ownership()
        self._resolve_crashed()
        intent = self._intend()
        if intent is None:
            return self._state().checkpoint_slot
        try:
            manifest = self._write_parts(intent, Meter(report, noun="checkpoint part"), whole)
        except (DataLoss, NotFound) as exc:
            if whole:
                raise
            # Levels before it, or slots, that it was to join. The metadata have all that is in them.
            log.warning("the whole state is written as a new checkpoint, because one of before is damaged: %s", exc)
            return self.checkpoint(report, whole=True)
        self._publisher.publish()  # the journal first names changes in the parts that are newer than the slot
        self._publisher.require_ownership()  # readers start at a manifest, so only the owner may write one
        self._put_manifest(intent, manifest)
        self._confirm(intent)
        self.delete_superseded()
        return intent.slot

    def _put_manifest(self, intent: CheckpointIntent, manifest: pb.CheckpointManifest) -> None:
        """Create the manifest, or accept that of this attempt: an answer may be lost after the server has stored it."""
        name = checkpoint_name(intent.slot)
        try:
            framed = frames.compressed_frame(manifest) if manifest.levels else frames.frame(manifest)
            self._storage.put(name, BufferSource(framed), metadata={ATTEMPT_KEY: intent.attempt})
        except AlreadyExists:
            if read_parsed(self._storage, name, frames.parse_manifest).attempt != intent.attempt:
                raise

    def _resolve_crashed(self) -> None:
        """Confirm a crashed checkpoint whose manifest was written; delete the parts of one without a manifest."""
        crashed = self._state().checkpoint
        if not crashed.attempt:
            return
        name = checkpoint_name(crashed.slot)
        try:
            manifest = read_parsed(self._storage, name, frames.parse_manifest)
        except NotFound:
            self._delete_parts(crashed)
            return
        if manifest.attempt == crashed.attempt:
            self._confirm(crashed)

    def _state(self) -> JournalState:
        with self._metadata.read() as txn:
            return txn.store.journal

    def _intend(self) -> CheckpointIntent | None:
        """Commit the intent of a checkpoint at the newest slot; return None when that checkpoint exists."""
        with self._metadata.write() as txn:
            state = txn.store.journal
            if state.checkpoint_slot == state.next_slot - 1:
                return None
            intent = CheckpointIntent(
                attempt=new_id(), slot=state.next_slot - 1, last_sequence=txn.store.next_outbox - 1
            )
            txn.update_store(journal=replace(state, checkpoint=intent))
        return intent

    def _write_parts(self, intent: CheckpointIntent, written: Meter, whole: bool) -> pb.CheckpointManifest:
        """Write the parts; return the manifest that lists them."""
        writer = PartWriter(self._storage, intent, written)
        with self._metadata.read() as txn:
            store, rows = txn.store, levels.rows_of(txn)
        base = None if whole else levels.find_base(self._storage, store, intent.slot)
        if base is None or levels.is_state_due(base.manifest, base.entry_bytes, rows):
            return self._write_state(intent, writer)
        manifest = manifest_of(store, intent)
        LevelWriter(self._metadata, self._storage, base).write(manifest, writer)
        return manifest

    def _write_state(self, intent: CheckpointIntent, writer: PartWriter) -> pb.CheckpointManifest:
        with self._metadata.read() as txn:
            manifest = manifest_of(txn.store, intent)
            if writer.write_state(manifest, changes.state_changes(txn)):
                manifest.levels[0].last_sequence = manifest.last_sequence
                manifest.state_rows = levels.rows_of(txn)
        return manifest

    def _confirm(self, intent: CheckpointIntent) -> None:
        with self._metadata.write() as txn:
            self._publisher.require_place(txn)
            state = txn.store.journal
            moved = replace(
                state,
                checkpoint=CheckpointIntent(),
                checkpoint_slot=intent.slot,
                previous_checkpoint_slot=state.checkpoint_slot,
            )
            txn.update_store(journal=moved)
            kept_entries.forget(txn, intent.slot)

    def superseded(self) -> Iterator[StoredObject]:
        """Yield the journal's objects below the newest checkpoint but one, ascending: a crash leaves a tail of them."""
        state = self._state()
        keep_from = state.previous_checkpoint_slot
        listed: ListedLevels | None = None
        for item in self._storage.list(JOURNAL_PREFIX) if keep_from else ():
            slot = entry_slot(item.name)
            checkpoint = checkpoint_slot(item.name)
            part = part_of(item.name)
            old_slot = slot is not None and slot <= keep_from
            old_checkpoint = checkpoint is not None and checkpoint < keep_from
            old_part = part is not None and part[0] < keep_from
            if old_part and level_of(item.name) is not None:  # a later checkpoint may list it
                listed = listed or ListedLevels(self._storage, (keep_from, state.checkpoint_slot))
                old_part = part not in listed
            if old_slot or old_checkpoint or old_part:
                yield item

    def kept(self) -> list[StoredObject]:
        """Return superseded objects that could not be deleted; lists the bucket only if any were noted."""
        return list(self.superseded()) if self._state().superseded_kept else []

    def delete_superseded(self) -> PermissionDenied | None:
        """Delete superseded objects; return the error where the key may not delete, which is not a failure.

        Deletion stops at an object that is kept: slots are deleted in ascending order.
        """
        if not self._state().previous_checkpoint_slot:
            return None
        self._publisher.require_ownership()
        superseded = self.superseded()
        while names := [item.name for item in islice(superseded, MOST_DELETED)]:
            try:
                self._delete(names)
            except PermissionDenied as exc:
                kept = sum(1 for _ in self.superseded())
                log.info("%d superseded objects are kept, because they cannot be deleted: %s", kept, exc)
                self._note_kept(kept, str(exc))
                return exc
        self._note_kept(0, "")
        return None

    def _delete(self, names: Sequence[str]) -> None:
        """Delete objects with one request where the place has one, otherwise each in order."""
        if isinstance(self._storage, ManyDeletes) and self._storage.delete_many(names):
            return
        for name in names:
            self._storage.delete(name)

    def _note_kept(self, count: int, error: str) -> None:
        """Record the count for `status`, and for `gc`, which lists them."""
        state = self._state()
        if (state.superseded_kept, state.superseded_error) != (count, error):
            with self._metadata.write() as txn:
                noted = replace(txn.store.journal, superseded_kept=count, superseded_error=error)
                txn.update_store(journal=noted)

    def _delete_parts(self, crashed: CheckpointIntent) -> None:
        """Delete the parts of a crashed checkpoint; where the key may not delete, they are superseded later."""
        for prefix in (checkpoint_name(crashed.slot), level_name(crashed.slot, crashed.attempt)):
            listed = (item.name for item in self._storage.list(prefix))
            parts = (name for name in listed if part_of(name) == (crashed.slot, crashed.attempt))
            while names := list(islice(parts, MOST_DELETED)):
                try:
                    self._delete(names)
                except PermissionDenied as exc:
                    log.info("parts of a crashed checkpoint are kept, because they cannot be deleted: %s", exc)


def manifest_of(store: StoreRecord, intent: CheckpointIntent) -> pb.CheckpointManifest:
    """Return the manifest of a checkpoint of the state with this record, without its parts."""
    return pb.CheckpointManifest(
        version=RECORD_VERSION,
        store_id=store.store_id,
        store_epoch=store.store_epoch,
        slot=intent.slot,
        attempt=intent.attempt,
        last_sequence=store.next_outbox - 1,
        next_id=store.next_id,
        written_ms=store.trusted_wall_ms,
    )
