"""The place of a store's cold tier, when it has another address: proved to be the store's before it is recorded.

The objects stay as they are: a server that moved, a bucket or directory copied by other means, a NAS mounted elsewhere.
A store without a cold tier gets one: the place is claimed first, as by `init`, and everything is published there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace

from tierfs.app.setup.create import claim, claimable
from tierfs.app.setup.supported import require_settings
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import Clock
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import Conflict, NotFound, TierfsError, no_cold_tier
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore import probe
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.probe import Trace
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import cold_identity, left
from tierfs.engine.metadata import changes, policies, tables
from tierfs.engine.metadata.records import LocationRecord, StoreRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.relocate import TierVersion, record_place
from tierfs.upkeep.holder.lock import HeldElsewhere, Hold

log = logging.getLogger(__name__)

# Examinations, each after an object was linked during the one before; each takes a few requests (a guess).
_CHANGE_TRIES = 10

# Time for the place before to show whether it is another one: a server that is there answers in less. A guess.
_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """A change of the cold tier's place."""

    before: LocationRecord | None
    after: LocationRecord


def of_store(metadata: MetadataStore, what: str) -> LocationRecord:
    """Return the place of a store's cold tier. Raises NoColdTier, naming `what` needs one."""
    place = _now(metadata)
    if place is None:
        raise no_cold_tier(what)
    return place


def _now(metadata: MetadataStore) -> LocationRecord | None:
    with metadata.read() as txn:
        location_id = txn.store.cold_location_id
        return txn.must_get(LOCATIONS, tables.u32(location_id), f"location {location_id}") if location_id else None


def connected(place: Place) -> ChunkStorage:
    """Connect to a place that a user named. Raises NotFound for a directory that is missing."""
    try:
        return place.open()
    except NotFound as exc:
        raise NotFound(str(exc), remedy="mount it, or give its current path") from exc


@contextmanager
def changing(paths: StorePaths, clock: Clock) -> Iterator[None]:
    """Let no other process change the place inside the block: of two first ones only one can have the whole journal.

    Raises Conflict.
    """
    try:
        held = Hold(paths.place_lock, clock)
    except HeldElsewhere as exc:
        raise Conflict("another process changes the cold tier's place", remedy="wait until it ends") from exc
    try:
        yield
    finally:
        held.release()


def change(
    metadata: MetadataStore, paths: StorePaths, settings: ColdSettings, wanted: Mapping[str, str]
) -> PlaceChange:
    """Record another address of the cold tier, or the first one. Idempotent; nothing is changed when it raises.

    Raises WrongColdTier unless the store's mark, its newest slot of the journal and each object that the journal does
    not name yet are there, Conflict while objects are made too fast, the errors of any request to it, NotFound for a
    directory that is missing, AlreadyExists for the first place if it holds a store, and Fenced in a store that may
    not change.
    """
    with changing(paths, metadata.clock):
        record = _now(metadata)
        if record is None:
            return PlaceChange(None, _give(metadata, Place.unknown(paths.root, settings).changed(wanted)))
        before = Place(record, paths.root, settings)
        place = before.changed(wanted)
        if place == before:
            return PlaceChange(record, record)
        with closing(connected(place)) as storage, metadata.read() as view:
            left.require_moved(storage, "finish the move: tierfs move --to ...")
            if view.store.replica:
                cold_identity.examine_followed(storage, view.store)
            else:
                require_settings(place.record, settings)
                place = place.probed(storage)
                policies.require_supported(view, place.record)
                is_other = _is_other(before, place, view.store, storage)
                _record_examined(metadata, before.record, place.record, storage, is_other=is_other)
        if view.store.replica:
            with metadata.write_replayed() as txn:  # its own address of the bucket, which no journal names
                txn.put(LOCATIONS, tables.u32(record.id), place.record)
        return PlaceChange(record, place.record)


def _is_other(before: Place, place: Place, record: StoreRecord, storage: ChunkStorage) -> bool:
    """Return whether the place before answers at once, is the store's, and does not show what is put into the new one.

    A server that moved is away under its old name: nothing waits for it.
    """
    if before.has_same_address(place):
        return False
    answers: list[bool] = []

    def ask(trace: Trace) -> None:
        try:
            with closing(before.open()) as other:
                cold_identity.examine(other, record)
                answers.append(not trace.is_at(other))
        except TierfsError as exc:
            log.info("the previous place is not checked: %s", exc)

    with probe.trace(storage) as trace:
        thread = threading.Thread(target=ask, args=(trace,), name="tierfs-place-before", daemon=True)
        thread.start()
        thread.join(_ASK_S)
    return answers == [True]


def _record_examined(
    metadata: MetadataStore, before: LocationRecord, place: LocationRecord, storage: ChunkStorage, *, is_other: bool
) -> None:
    """Record a place once it was seen to have all that the records name; what is linked meanwhile is looked for too.

    `is_other`: the one before is left, and the store's next holder puts a note there.
    """
    for _ in range(_CHANGE_TRIES):
        with metadata.read() as txn:
            version, record = TierVersion.of(txn), txn.store
            queued = _queued(txn, place)
        cold_identity.examine(storage, record)
        # The newest slot names what was published; what waits to be is in the place before, or in both if they are one.
        for name in queued:
            try:
                storage.stat(name)
            except NotFound as exc:
                raise cold_identity.wrong_cold_tier(f"{storage!r} has no {printable(name)}, which is new") from exc
        with metadata.write() as txn:
            if version.is_current(txn):
                record_place(txn, place)
                if is_other:
                    note = left.place_left(before, txn.store.journal.newest_slot, txn.now_ms)
                    txn.update_store(journal=replace(txn.store.journal, left=note))
                return
    raise Conflict(
        "objects are created faster than they are checked", remedy="run the command again at a lower write load"
    )


def _queued(txn: ReadTransaction, place: LocationRecord) -> list[str]:
    """Return the names of the objects in a place that records name and the journal does not yet."""
    first = txn.store.journal.published_sequence + 1
    ids = {made.id for made in changes.queued_objects(txn, first)}
    known = [made for made in (txn.get(OBJECTS, tables.u64(each)) for each in sorted(ids)) if made is not None]
    here = (name for made in known if made.location_id == place.id for name in (made.name, made.index_name))
    return [name for name in (*here, *(made.entries_name for made in known)) if name]


def _give(metadata: MetadataStore, place: Place) -> LocationRecord:
    """Give a store its first cold tier."""
    if not place.record.url:
        raise no_cold_tier("a change of its address")
    with metadata.read() as view:
        record = view.store
    # Crash order: the place claimed and everything published -> the place recorded. In between the place is marked as
    # this store's, and a second try goes on from there.
    if record.journal.newest_slot:
        storage = connected(place)
        cold_identity.examine(storage, record)
    else:
        storage = claimable(place)
    with closing(storage):
        require_settings(place.record, place.settings)
        place = place.probed(storage)
        with metadata.read() as txn:
            policies.require_supported(txn, place.record)
        claim(metadata, place, storage)
    with metadata.write() as txn:
        txn.update_store(cold_location_id=place.record.id)
        record_place(txn, place.record)
    return place.record
