"""Identity of a cold tier (invariant 12): the journal there has our newest slot, and the mark has our id.

A mount point without its disk, an emptied bucket, one restored to an earlier copy and another store's bucket all answer
politely. Nothing is written to them or deleted for them, and no local byte is evicted because of objects that should be
there.

The mark is the object `tierfs-store` at the root of a cold location; it names the store. The journal proves ownership;
the mark tells apart two stores whose journals look alike, and a mounted directory from an empty mount point, and gives
`recover --from-objects` the store that it rebuilds. A store made before marks existed gets one from its holder once its
journal proved the place to be its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotFound, WrongColdTier
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import left
from tierfs.engine.journal.names import (
    JOURNAL_PREFIX,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    left_slot,
    slot_name,
)
from tierfs.engine.metadata import changes
from tierfs.engine.metadata.records import RECORD_VERSION, StoreRecord

T = TypeVar("T")

__all__ = ["MARK_NAME", "StoreMark", "is_there", "mark_of", "read", "read_store_id", "replace", "write_mark"]

# Also a key of the object's user metadata, which saves a read of its bytes where a copy kept it.
_STORE_KEY = "store"

_MAX_BYTES = 4096
_ID_DIGITS = 32
_UNKNOWN = "1970-01-01T00:00:00Z"
_NOTE = "cold tier of a tierfs store; leave this object here"
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class StoreMark:
    """The store to which a cold location belongs."""

    store_id: str
    format: int = RECORD_VERSION
    created_ms: int = 0
    """Time the store was made; 0 = unknown."""


def mark_of(store: StoreRecord) -> StoreMark:
    """Return the mark that a store puts into its cold tier."""
    return StoreMark(store.store_id, created_ms=store.created_ms)


def read(storage: ChunkStorage) -> StoreMark | None:
    """Return the mark of a location, or None. Raises DataLoss for a mark that cannot be read."""
    try:
        stat = storage.stat(MARK_NAME)
        if stat.length_bytes > _MAX_BYTES:
            raise _damaged(f"it has {stat.length_bytes} bytes")
        buffer = bytearray(stat.length_bytes)
        storage.read_into(MARK_NAME, 0, memoryview(buffer))
    except NotFound:
        return None
    return _parsed(bytes(buffer))


def read_store_id(storage: ChunkStorage) -> str | None:
    """Return the store of the mark, by one small request where the user metadata survived; otherwise as `read`."""
    try:
        store_id = storage.stat(MARK_NAME).metadata.get(_STORE_KEY)
    except NotFound:
        return None
    if store_id is not None and _is_id(store_id):
        return store_id
    mark = read(storage)
    return None if mark is None else mark.store_id


def is_there(storage: ChunkStorage) -> bool:
    """Return whether a location is marked, by any store."""
    try:
        storage.stat(MARK_NAME)
    except NotFound:
        return False
    return True


def write_mark(storage: ChunkStorage, mark: StoreMark) -> None:
    """Mark a location, create-only; a mark of the same store is success. Raises AlreadyExists for any other."""
    try:
        _put(storage, mark, create_only=True)
    except AlreadyExists:
        if read_store_id(storage) != mark.store_id:
            raise


def replace(storage: ChunkStorage, mark: StoreMark) -> None:
    """Mark a location whose owner its journal proved, over a mark that is damaged or another store's."""
    _put(storage, mark, create_only=False)


def _put(storage: ChunkStorage, mark: StoreMark, *, create_only: bool) -> None:
    created = datetime.fromtimestamp(mark.created_ms / _MS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"tierfs": _NOTE, _STORE_KEY: mark.store_id, "format": mark.format, "created": created}
    data = json.dumps(fields, indent=2).encode() + b"\n"
    storage.put(MARK_NAME, BufferSource(data), metadata={_STORE_KEY: mark.store_id}, create_only=create_only)


def _parsed(data: bytes) -> StoreMark:
    """Return the mark in untrusted bytes. Raises DataLoss unless they have the right form."""
    try:
        fields: Any = json.loads(data)
        store_id, version = fields[_STORE_KEY], fields.get("format", RECORD_VERSION)
        created = datetime.fromisoformat(fields.get("created", _UNKNOWN))
        created_ms = round(created.timestamp() * _MS_PER_S)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as exc:
        raise _damaged("it is not a JSON object that names a store") from exc
    if not isinstance(store_id, str) or not _is_id(store_id):
        raise _damaged(f"its store {printable(str(store_id))} is not a store id")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged("its format is not a number")
    return StoreMark(store_id, version, created_ms)


def _is_id(text: str) -> bool:
    return len(text) == _ID_DIGITS and all(digit in "0123456789abcdef" for digit in text)


def _damaged(why: str) -> DataLoss:
    return DataLoss(f"{MARK_NAME} is damaged: {why}")


_REMEDY = "mount it, or check bucket and endpoint; if it is lost, restore its newest copy, or run: tierfs recover"


# Remedies where a place was left by a move.
_COPY = "go on with the store that was moved; this is a copy of it from before, or an old backup"
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


def look(storage: ChunkStorage, newest: int) -> Sighting:
    """List the journal from slot `newest` on; all of it for 0. Raises what the storage raises."""
    shown: set[int] = set()
    later: list[str] = []
    noted = 0
    for item in storage.list(JOURNAL_PREFIX, after=slot_name(newest - 1) if newest > 1 else ""):
        entry, checkpoint = entry_slot(item.name), checkpoint_slot(item.name)
        slot = entry if entry is not None else checkpoint
        if slot is None:
            noted = max(noted, left_slot(item.name) or 0)
            continue
        shown.add(slot)
        if slot > newest:
            later.append(item.name)
    return Sighting(frozenset(shown), tuple(later), noted if noted >= newest else 0)


def require_shown(storage: ChunkStorage, sighting: Sighting, slot: int) -> None:
    """Raise WrongColdTier unless our newest slot, or its checkpoint, exists. Slot 0 stands for none."""
    if not slot or slot in sighting.shown:
        return
    raise wrong_cold_tier(f"{storage!r} {_what_it_holds(storage)}, and this store published slot {slot}")


def _what_it_holds(storage: ChunkStorage) -> str:
    """Describe the journal there, for a message; called only after a mismatch."""
    whole = look(storage, 0)
    if not whole.shown:
        return "holds no journal"
    last = max(whole.shown)
    moved = f" (it was left for {left.read(storage, whole.left).to})" if whole.left >= last else ""
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
        raise wrong_cold_tier(f"the mark in {storage!r} names the store {store_id}, not {ours.store_id}")
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
        store_id = read_parsed(storage, name, changes.parse_entry).store_id
    except NotFound:
        name = checkpoint_name(slot)
        store_id = read_parsed(storage, name, changes.parse_manifest).store_id
    require_same_store(storage, name, store_id, ours)


def read_parsed(
    storage: ChunkStorage, name: str, parse: Callable[[bytes, str], T], length_bytes: int | None = None
) -> T:
    """Return a journal object; see read_small. Raises DataLoss for one that is damaged when it is read again, too."""
    try:
        return parse(read_small(storage, name, length_bytes), name)
    except DataLoss:  # a transfer damages bytes once, a bucket twice (invariant 16)
        return parse(read_small(storage, name, length_bytes), name)


def read_small(storage: ChunkStorage, name: str, length_bytes: int | None = None) -> bytes:
    """Return all bytes of a journal object, whose size is asked for unless a listing told it.

    It is untrusted: it is checked before memory is allocated for it.
    """
    if length_bytes is None:
        length_bytes = storage.stat(name).length_bytes
    changes.check_size(name, length_bytes)
    buffer = memoryview(bytearray(length_bytes))
    if length_bytes:
        storage.read_into(name, 0, buffer)
    return bytes(buffer)
