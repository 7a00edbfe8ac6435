"""Identity of a cold tier (invariant 12): the journal there has our newest slot, and the mark has our id.

A mount point without its disk, an emptied bucket, one restored to an earlier copy and another store's bucket all answer
politely. Nothing is written to them or deleted for them, and no local byte is evicted because of objects that should be
there.

A store made before marks existed gets one from its holder once its journal proved the place to be its own.
"""

from __future__ import annotations

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss, NotFound, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import left
from tierfs.engine.journal.names import (
    JOURNAL_PREFIX,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    left_slot,
    slot_name,
    standby_of,
)
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.journal.store_mark import mark_of, read_store_id, replace, write_mark
from tierfs.engine.metadata import frames
from tierfs.engine.metadata.records import StoreRecord

_REMEDY = "mount it, or check bucket and endpoint; if it is lost, restore its newest copy, or run: tierfs recover"

# Remedies where a place was left by a move.
_COPY = "continue with the store that was moved; this is an earlier copy of it, or an old backup"
FOLLOW = "follow the new one: tierfs config {setting}"


def wrong_cold_tier(why: str) -> WrongColdTier:
    """Return the error of a place that is not the store's."""
    return WrongColdTier(f"this is not the store's cold tier: {why}", remedy=_REMEDY)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Result of one listing of the journal's end."""

    shown: frozenset[int]
    """Slots that exist, as entries or as checkpoints."""
    later: tuple[str, ...]
    """Names of entries and manifests after our newest slot, entries first."""
    left: int = 0
    """The newest slot as the place was left by a move, if a note tells that of our newest one or a later one."""
    marks: tuple[str, ...] = ()
    """Names of the marks of standbys."""


def look(storage: ChunkStorage, newest: int) -> Sighting:
    """List the journal from slot `newest` on; all of it for 0. Raises what the storage raises."""
    shown: set[int] = set()
    later: list[str] = []
    marks: list[str] = []
    noted = 0
    for item in storage.list(JOURNAL_PREFIX, after=slot_name(newest - 1) if newest > 1 else ""):
        entry, checkpoint = entry_slot(item.name), checkpoint_slot(item.name)
        slot = entry if entry is not None else checkpoint
        if slot is None:
            noted = max(noted, left_slot(item.name) or 0)
            if standby_of(item.name) is not None:
                marks.append(item.name)
            continue
        shown.add(slot)
        if slot > newest:
            later.append(item.name)
    return Sighting(frozenset(shown), tuple(later), noted if noted >= newest else 0, tuple(marks))


def require_shown(storage: ChunkStorage, sighting: Sighting, slot: int) -> None:
    """Raise WrongColdTier unless our newest slot, or its checkpoint, exists. Slot 0 stands for none."""
    if not slot or slot in sighting.shown:
        return
    raise wrong_cold_tier(f"{storage!r} {_what_it_holds(storage)}, and this store published slot {slot}")


def _what_it_holds(storage: ChunkStorage) -> str:
    """Describe the journal there, for a message; called only after a mismatch."""
    whole = look(storage, 0)
    if not whole.shown:
        return "has no journal"
    last = max(whole.shown)
    moved = f" (its store was moved to {left.read(storage, whole.left).to})" if whole.left >= last else ""
    return f"has a journal that ends at slot {last}{moved}"


def require_same_store(storage: ChunkStorage, name: str, store_id: str, ours: StoreRecord) -> None:
    """Raise WrongColdTier when an object of the journal names another store; "" stands for none."""
    if store_id not in ("", ours.store_id):
        raise wrong_cold_tier(f"{name} in {storage!r} is of the store {printable(store_id)}, not of {ours.store_id}")


def as_warning(error: WrongColdTier) -> str:
    """Return one line for `status`: the error and its remedy."""
    return f"{error}; {error.remedy}"


def examine(storage: ChunkStorage, ours: StoreRecord) -> None:
    """Raise WrongColdTier unless the place is the store's; writes nothing. For doctor."""
    newest = ours.journal.newest_slot
    sighting = look(storage, newest)
    if sighting.left:
        raise left.error(storage, sighting.left, _COPY)
    require_shown(storage, sighting, newest)
    require_mark(storage, ours, write=False)


def examine_followed(storage: ChunkStorage, ours: StoreRecord) -> None:
    """Raise WrongColdTier unless a replica's bucket is there, with a journal that is not behind what it has applied."""
    newest = ours.journal.newest_slot
    sighting = look(storage, newest)
    if sighting.left >= max(sighting.shown, default=newest) and sighting.left:
        raise left.error(storage, sighting.left, FOLLOW)
    if not sighting.shown:  # its last slot may be superseded by now, but then there are later ones
        raise wrong_cold_tier(f"{storage!r} {_what_it_holds(storage)}, and this replica has applied slot {newest}")
    require_mark(storage, ours, write=False)


def require_mark(storage: ChunkStorage, ours: StoreRecord, created: int = 0, *, write: bool = True) -> bool:
    """Raise WrongColdTier when the mark names another store; return whether the place is marked now.

    A missing or damaged mark is written again once the journal proved the place: by the slot this owner has just
    created, or by its newest one, which is read for that. Before its first slot, and without `write`, nothing is
    written.
    """
    store_id, put = None, write_mark
    try:
        store_id = read_store_id(storage)
    except DataLoss:
        put = replace
    if store_id is not None and store_id != ours.store_id:
        raise wrong_cold_tier(f"the mark in {storage!r} is of the store {store_id}, not {ours.store_id}")
    newest = ours.journal.newest_slot
    if store_id is None and (created or newest):
        if not created:
            _require_own_slot(storage, ours, newest)
        if write:
            put(storage, mark_of(ours))
    return bool(store_id or created or newest)


def _require_own_slot(storage: ChunkStorage, ours: StoreRecord, slot: int) -> None:
    name = slot_name(slot)
    try:
        store_id = read_parsed(storage, name, frames.parse_entry).store_id
    except NotFound:
        name = checkpoint_name(slot)
        store_id = read_parsed(storage, name, frames.parse_manifest).store_id
    require_same_store(storage, name, store_id, ours)
