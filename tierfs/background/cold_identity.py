"""Whether a place is the store's cold tier (invariant 12): the journal there shows our newest slot, the mark our id.

A mount point without its disk, an emptied bucket, one put back to an earlier copy and another store's all answer
politely. Nothing is written to them or deleted for them, and no local byte goes because of what they should hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.background import store_mark
from tierfs.background.journal_names import (
    JOURNAL_PREFIX,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    slot_name,
)
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss, NotFound, WrongColdTier
from tierfs.metadata import journal
from tierfs.metadata.records import StoreRecord
from tierfs.names import printable

_REMEDY = "mount it, or check bucket and endpoint; if it is lost, restore its newest copy, or run: tierfs recover"


def wrong_cold_tier(why: str) -> WrongColdTier:
    """The error of a place that is not the store's."""
    return WrongColdTier(f"this is not the store's cold tier: {why}", remedy=_REMEDY)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one listing of the journal's end showed."""

    shown: frozenset[int]
    """Slots that are there, as entries or as checkpoints."""
    later: tuple[str, ...]
    """Names of entries and manifests behind our newest slot, entries first."""


def look(storage: ChunkStorage, newest: int) -> Sighting:
    """List the journal from slot `newest` on; all of it for 0. Raises what the storage raises."""
    shown: set[int] = set()
    later: list[str] = []
    for found in storage.list(JOURNAL_PREFIX, after=slot_name(newest - 1) if newest > 1 else ""):
        entry, checkpoint = entry_slot(found.name), checkpoint_slot(found.name)
        slot = entry if entry is not None else checkpoint
        if slot is None:
            continue
        shown.add(slot)
        if slot > newest:
            later.append(found.name)
    return Sighting(frozenset(shown), tuple(later))


def require_shown(storage: ChunkStorage, sighting: Sighting, slot: int) -> None:
    """Raise WrongColdTier unless our newest slot, or its checkpoint, is there. Slot 0 stands for none."""
    if not slot or slot in sighting.shown:
        return
    raise wrong_cold_tier(f"{storage!r} {_what_it_holds(storage)}, and this store published slot {slot}")


def _what_it_holds(storage: ChunkStorage) -> str:
    """For people; asked only when something is wrong."""
    whole = look(storage, 0)
    if not whole.shown:
        return "holds no journal"
    return f"has a journal that ends at slot {max(whole.shown)}"


def require_same_store(storage: ChunkStorage, name: str, store_id: str, ours: StoreRecord) -> None:
    """Raise WrongColdTier when an object of the journal names another store; "" stands for none."""
    if store_id not in ("", ours.store_id):
        raise wrong_cold_tier(f"{name} in {storage!r} is of the store {printable(store_id)}, not of {ours.store_id}")


def as_warning(error: WrongColdTier) -> str:
    """One line of `status`: what is wrong, and what to do about it."""
    return f"{error}; {error.remedy}"


def examine(storage: ChunkStorage, ours: StoreRecord) -> None:
    """Raise WrongColdTier unless the place is the store's; writes nothing. For doctor."""
    newest = ours.journal.newest_slot
    require_shown(storage, look(storage, newest), newest)
    require_mark(storage, ours, write=False)


def require_mark(storage: ChunkStorage, ours: StoreRecord, created: int = 0, *, write: bool = True) -> bool:
    """Raise WrongColdTier when the mark names another store; returns whether the place is marked now.

    A missing or damaged mark is written anew once the journal proved the place: by the slot this owner has just
    created, or by its newest one, which is read for that. Before its first slot, and without `write`, it marks
    nothing.
    """
    found, put = None, store_mark.write
    try:
        found = store_mark.read_store_id(storage)
    except DataLoss:
        put = store_mark.replace
    if found is not None and found != ours.store_id:
        raise wrong_cold_tier(f"the mark in {storage!r} names the store {found}, not {ours.store_id}")
    newest = ours.journal.newest_slot
    if found is None and (created or newest):
        if not created:
            _require_own_slot(storage, ours, newest)
        if write:
            put(storage, store_mark.mark_of(ours))
    return bool(found or created or newest)


def _require_own_slot(storage: ChunkStorage, ours: StoreRecord, slot: int) -> None:
    name = slot_name(slot)
    try:
        store_id = journal.parse_entry(read_small(storage, name), name).store_id
    except NotFound:
        name = checkpoint_name(slot)
        store_id = journal.parse_manifest(read_small(storage, name), name).store_id
    require_same_store(storage, name, store_id, ours)


def read_small(storage: ChunkStorage, name: str) -> bytes:
    """All of a journal object. Its size is checked before it is read: what is in a bucket is hostile."""
    length = storage.stat(name).length_bytes
    if length > journal.MAX_OBJECT_BYTES:
        raise DataLoss(f"{name} has {length} bytes; an object of a journal has at most {journal.MAX_OBJECT_BYTES}")
    buffer = memoryview(bytearray(length))
    if length:
        storage.read_into(name, 0, buffer)
    return bytes(buffer)
