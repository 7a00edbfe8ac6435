"""The archive place of a store: set for the first time, given another address, or allowed on this host.

Crash order: the place marked -> noted in the cold tier -> recorded and queued for the journal. In between the mark is
the store's own, and a second try continues; nothing moves there before the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice

from tierfs.app.setup import place_change
from tierfs.app.setup.create import holds_a_store
from tierfs.app.setup.nesting import refuse_nested
from tierfs.app.store import Store
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore import probe
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal import archive_mark, store_mark
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import archive_place, changes, policies, store_ownership, tables
from tierfs.engine.metadata.records import LocationRecord, ObjectRecord, StoreRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.tables import INTENTS, LOCATIONS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering.objects import discard
from tierfs.upkeep.check.places import ASKED_FOR

# Rows of a step of a walk: some 10 ms.
_BATCH = 500

# A place that ends with its process.
_PASSING = "memory:"


@dataclass(frozen=True, slots=True)
class ArchiveChange:
    """A change of the archive place."""

    before: LocationRecord | None
    after: LocationRecord


def change(store: Store, wanted: Mapping[str, str]) -> ArchiveChange:
    """Record the archive place of a store, by its parts. Idempotent; nothing is recorded when it raises.

    Another address of the place has its mark and objects already; in a replica, and after a recovery, this allows the
    place that the journal names. Raises InvalidRequest for a place that overlaps with another of the store,
    AlreadyExists for one of another store, WrongColdTier for one without the mark where that must be there, NoColdTier,
    NotFound for a directory that is missing, Fenced in a store that may not change, and what the place raises.
    """
    cold = place_change.of_store(store.metadata, "an archive place")
    with place_change.changing(store.paths, store.clock):
        with store.metadata.read() as txn:
            record, before = txn.store, archive_place.find(txn)
            _require_possible(record, before, wanted)
            start = Place.unknown(store.path, store.settings.cold)
            place = (start if before is None else store.place_of(before)).changed(wanted)
            _require_apart(txn, place)
        bare = place.open() if place.directory is None else place_change.connected(place)
        with closing(bare) as storage:
            if before is None:
                _claim(place, storage, record)
            else:
                archive_mark.require(storage, record.store_id)
                _require_objects(store, before.id, storage)
            if record.replica:
                return ArchiveChange(before, _allow(store, place))
            place = _able(place, storage)
            archive_mark.write_note(store.storage_of(cold.id), place.record)
        return ArchiveChange(before, _record(store, place, before))


def _require_possible(record: StoreRecord, before: LocationRecord | None, wanted: Mapping[str, str]) -> None:
    if not wanted.get("url", "-"):
        raise InvalidRequest(
            "archive.place cannot be removed: without policies of the class place nothing moves there",
            remedy="to move all objects back: tierfs archive / --back",
        )
    if record.replica:
        if before is None:
            raise InvalidRequest("the store that this replica follows has no archive place", remedy="set it there")
        return
    store_ownership.require_owner(record)
    if before is None and "url" not in wanted:
        raise InvalidRequest("the store has no archive place", remedy="set it: tierfs config archive.place=URL")


def _require_apart(txn: ReadTransaction, place: Place) -> None:
    """Raise InvalidRequest for a place above, in or below another one of the store, as far as URLs tell."""
    url = place.record.url
    if url.startswith(_PASSING):
        raise InvalidRequest(f"{printable(url)} ends with its process, so it cannot be an archive place")
    ours = f"{_resolved(place)}/"
    for _, other in txn.scan(LOCATIONS):
        theirs = f"{_resolved(replace(place, record=other))}/"
        if not other.archive and (ours.startswith(theirs) or theirs.startswith(ours)):
            raise InvalidRequest(
                f"{printable(url)} overlaps with {policies.told(other)}, which the store has already",
                remedy="choose another prefix or directory",
            )


def _resolved(place: Place) -> str:
    directory = place.directory
    return place.record.url if directory is None else str(directory.resolve())


def _claim(place: Place, storage: ChunkStorage, record: StoreRecord) -> None:
    """Mark a place as the store's, which must be nobody's: two stores cannot share one."""
    probe.require_writable(storage)
    mark = store_mark.read(storage)
    if mark is None:
        if next(storage.list(JOURNAL_PREFIX), None) is not None:
            raise holds_a_store(place)
        refuse_nested(place, storage)
    elif mark.store_id != record.store_id:
        raise holds_a_store(place)
    archive_mark.write(storage, record)


def _require_objects(store: Store, location_id: LocationId, storage: ChunkStorage) -> None:
    """Raise NotFound unless some objects, spread over all, are at the other address."""

    def names(_: ReadTransaction, rows: list[tuple[bytes, ObjectRecord]]) -> list[str]:
        return [record.name for _, record in rows if record.location_id == location_id]

    with store.metadata.read() as txn:
        placed = 0 if txn.sums is None else txn.sums.placed_objects
    named = (name for some in batches(store.metadata.read, OBJECTS, _BATCH, names) for name in some)
    for name in islice(named, 0, None, max(1, placed // ASKED_FOR)):
        try:
            storage.stat(name)
        except NotFound as exc:
            raise NotFound(f"{storage!r} has no {printable(name)}", remedy="copy all objects there first") from exc


def _able(place: Place, storage: ChunkStorage) -> Place:
    """Return the place with what it was found to honour. Raises InvalidRequest for one that cannot be an archive."""
    place = place.probed(storage)
    if place.record.keeps_objects:
        raise InvalidRequest(
            f"the key may not delete in {printable(place.record.url)}", remedy="use a key that may delete there"
        )
    return place


def _record(store: Store, place: Place, before: LocationRecord | None) -> LocationRecord:
    with store.metadata.write() as txn:
        if archive_place.find(txn) != before:
            raise AlreadyExists("another process has set the archive place", remedy="run the command again")
        newest = max(known.id for _, known in txn.scan(LOCATIONS))
        number = LocationId(newest + 1) if before is None else before.id
        after = replace(place.record, id=number, writable=True, archive=True, from_journal=False)
        if after == before:
            return after
        _end_intents(txn, number)
        changes.put(txn, LOCATIONS, after)
    return after


def _end_intents(txn: WriteTransaction, location_id: LocationId) -> None:
    """End the objects that are being made at the address before: none is linked that is not at the present one."""
    for _, intent in list(txn.scan(INTENTS)):
        if intent.location_id == location_id:
            discard(txn, intent)


def _allow(store: Store, place: Place) -> LocationRecord:
    """Record in a replica the address of the place for this host, which no journal names."""
    after = replace(place.record, from_journal=False)
    with store.metadata.write_replayed() as txn:
        txn.put(LOCATIONS, tables.u32(after.id), after)
    return after
