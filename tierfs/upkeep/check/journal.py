"""The bucket's journal: the newest checkpoint, and every slot from there to our position (invariant 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tierfs.base.words import units
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.names import (
    ALIVE_NAME,
    JOURNAL_PREFIX,
    MOVING_NAME,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    left_slot,
    part_of,
    slot_name,
    standby_of,
)
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.journal.reader import parts_of, read_manifest, read_part
from tierfs.engine.metadata import frames, store_ownership
from tierfs.engine.metadata.records import StoreRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.upkeep.check.findings import Finding, Kind, Mend, Severity

# A holder may publish and write a checkpoint during the check: then everything is checked again.
_TRIES = 3


class JournalCheck:
    """Reads the journal as `tierfs recover` would."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage) -> None:
        self._metadata = metadata
        self._storage = storage

    def run(self) -> list[Finding]:
        """Return everything that is wrong. Raises what the storage raises."""
        findings: list[Finding] = []
        for _ in range(_TRIES):
            store = self._store()
            findings = list(self._check(store))
            if not findings or self._store().journal == store.journal:
                break
        return findings

    def is_ours(self) -> bool:
        """Return whether the bucket holds this store's journal; if not, it is another bucket, or not mounted."""
        store_id = self._store().store_id
        return any(self._is_of(listed.name, store_id) for listed in self._storage.list(JOURNAL_PREFIX))

    def _is_of(self, name: str, store_id: str) -> bool:
        """Return whether one slot or checkpoint is this store's."""
        try:
            if entry_slot(name) is not None:
                return read_parsed(self._storage, name, frames.parse_entry).store_id == store_id
            if checkpoint_slot(name) is not None:
                return read_parsed(self._storage, name, frames.parse_manifest).store_id == store_id
            return False
        except (NotFound, DataLoss):
            return False

    def _store(self) -> StoreRecord:
        with self._metadata.read() as txn:
            return txn.store

    def _check(self, store: StoreRecord) -> Iterator[Finding]:
        state = store.journal
        if state.fenced_by_epoch and store_ownership.is_old_backup(store):
            error = store_ownership.fenced(store)
            yield Finding(Kind.JOURNAL, Severity.NOTE, "journal", f"not checked: {error}", remedy=error.remedy)
            return
        if state.fenced_by_epoch:
            text = f"another store owns the bucket since epoch {state.fenced_by_epoch} and checks the journal"
            yield Finding(Kind.JOURNAL, Severity.NOTE, "journal", text)
            return
        if store.replica:
            text = "this store is a replica: its owner checks the journal"
            yield Finding(Kind.JOURNAL, Severity.NOTE, "journal", text)
            return
        names = [listed.name for listed in self._storage.list(JOURNAL_PREFIX)]
        slots = {slot for name in names if (slot := entry_slot(name)) is not None}
        newest = max((slot for name in names if (slot := checkpoint_slot(name)) is not None), default=0)
        yield from _strangers(names)
        yield from self._ahead(store, max(slots, default=0), newest)
        if state.checkpoint_slot:
            yield from self._checkpoint(state.checkpoint_slot)
        for slot in range(state.checkpoint_slot + 1, state.next_slot):
            yield from self._slot(store, slot, listed=slot in slots)

    def _ahead(self, store: StoreRecord, newest_slot: int, newest_checkpoint: int) -> Iterator[Finding]:
        """Yield entries after our position, except one that a crash kept us from confirming."""
        state = store.journal
        last = max(state.next_slot - 1, state.intent.slot if state.intent.attempt else 0)
        checkpoint = max(state.checkpoint_slot, state.checkpoint.slot if state.checkpoint.attempt else 0)
        if newest_slot > last or newest_checkpoint > max(last, checkpoint):
            text = f"the bucket is at slot {max(newest_slot, newest_checkpoint)}, this store at {state.next_slot - 1}"
            remedy = (
                "another store owns the bucket, or this metadata is an old backup: run tierfs status, then tierfs "
                "recover"
            )
            yield Finding(Kind.JOURNAL, Severity.DAMAGE, "journal", text, remedy=remedy)

    def _slot(self, store: StoreRecord, slot: int, *, listed: bool) -> Iterator[Finding]:
        name = slot_name(slot)
        if not listed:
            yield _bad(name, "it is missing")
            return
        try:
            entry = read_parsed(self._storage, name, frames.parse_entry)
        except (DataLoss, NotFound) as exc:
            yield _bad(name, str(exc))
            return
        if entry.slot != slot or entry.store_id != store.store_id or entry.store_epoch > store.store_epoch:
            yield _bad(name, f"it is slot {entry.slot} of store {entry.store_id}, epoch {entry.store_epoch}")

    def _checkpoint(self, slot: int) -> Iterator[Finding]:
        name = checkpoint_name(slot)
        try:
            manifest = read_manifest(self._storage, self._storage.stat(name))
        except (DataLoss, NotFound) as exc:
            yield _bad(name, str(exc))
            return
        for part in parts_of(manifest):
            for name in part.names:  # a copy that is never read would be missed once it is needed
                try:
                    read_part(self._storage, replace(part, names=(name,), length_bytes=0))
                except (DataLoss, NotFound) as exc:
                    yield _bad(name, str(exc))


def _strangers(names: list[str]) -> Iterator[Finding]:
    """Yield one note on objects that every reader ignores."""
    strange = [name for name in names if entry_slot(name) is None and checkpoint_slot(name) is None]
    strange = [name for name in strange if part_of(name) is None and left_slot(name) is None]
    strange = [name for name in strange if name not in (MOVING_NAME, ALIVE_NAME) and standby_of(name) is None]
    if strange:
        text = f"{units.count(len(strange), 'object')} with names that no owner uses, ignored; this is the first"
        yield Finding(Kind.JOURNAL, Severity.NOTE, strange[0], text, remedy="remove objects that tierfs did not write")


def _bad(name: str, text: str) -> Finding:
    return Finding(Kind.JOURNAL, Severity.DAMAGE, name, text, mend=Mend.WRITE_CHECKPOINT)
