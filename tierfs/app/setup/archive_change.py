"""The archive place of a store: set for the first time, given another address, allowed on this host, or unset.

Crash order: the place marked -> noted in the cold tier -> recorded and queued for the journal. In between the mark is
the store's own, and a second try continues; nothing moves there before the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import islice

from tierfs.app.setup import place_change
from tierfs.app.setup.create import holds_a_store
from tierfs.app.setup.nesting import refuse_nested
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import units
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, NotFound, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore import probe
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.journal import archive_mark, store_mark
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.metadata import archive_place, changes, policies, store_ownership, tables
from tierfs.engine.metadata.records import LocationRecord, ObjectRecord, StoreRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.tables import GARBAGE, INTENTS, LOCATIONS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering.garbage.orphans import chunk_objects
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


@dataclass(frozen=True, slots=True)
class ArchiveUnset:
    """Result of unsetting the archive place."""

    before: LocationRecord | None
    """None: there was none."""
    stays: str = ""
    """The reason that the mark stays there; empty if it was removed."""


def unset(store: Store) -> ArchiveUnset:
    """Let a store have no archive place. Idempotent.

    Crash order: recorded and queued for the journal -> the note removed -> the mark. Raises InvalidRequest while
    anything of the store is there or on its way, or a policy names it, Fenced in a store that may not change,
    NoColdTier, and what the cold tier raises.
    """
    cold = place_change.of_store(store.metadata, "an archive place")
    with place_change.changing(store.paths, store.clock):
        with store.metadata.write() as txn:
            store_ownership.require_owner(txn.store)
            before = archive_place.find(txn)
            if before is not None:
                _require_left(txn, before)
                changes.end_archive(txn, before)
                policies.require_supported(txn, policies.location(txn, cold.id))
        archive_mark.remove_note(store.storage_of(cold.id))
        return ArchiveUnset(before, "" if before is None else _remove_mark(store, before))


def _require_left(txn: ReadTransaction, place: LocationRecord) -> None:
    """Raise InvalidRequest while records name something in an archive place."""
    url = printable(place.url)
    placed = archive_place.objects_in(txn, place.id)
    if placed:
        raise InvalidRequest(
            f"the archive place {url} has {units.count(placed, 'object')} of the store",
            remedy="first run: tierfs archive --back",
        )
    begun = sum(intent.location_id == place.id for _, intent in txn.scan(INTENTS))
    if begun:
        raise InvalidRequest(
            f"{units.count(begun, 'object')} on the way to the archive place {url}",
            remedy="stop what moves them, and run the command again",
        )
    deleted = sum(row.location_id == place.id for _, row in txn.scan(GARBAGE))
    if deleted:
        raise InvalidRequest(
            f"the archive place {url} has {units.count(deleted, 'deleted object')} whose grace period has not ended",
            remedy="a mount, a daemon, or tierfs gc --delete deletes them after it; then run the command again",
        )


def _remove_mark(store: Store, place: LocationRecord) -> str:
    """Remove the mark of a place that the store has left; return why it stays."""
    try:
        with closing(store.place_of(place).open()) as storage:
            if not archive_mark.is_ours(storage, store.metadata.store_id):
                return "the place is not marked as the archive of this store"
            left = sum(1 for _ in chunk_objects(storage))
            if left:
                return f"the place has {units.count(left, 'object')} without a record"
            storage.delete(MARK_NAME)
    except TierfsError as exc:
        return str(exc)
    return ""


def _require_possible(record: StoreRecord, before: LocationRecord | None, wanted: Mapping[str, str]) -> None:
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
    """Mark a place as the store's, which must be nobody's: two stores cannot share one.

    One that has objects of this store was its archive before a recovery that did not know it: they would be orphans.
    """
    probe.require_writable(storage)
    mark = store_mark.read(storage)
    if mark is None:
        if next(storage.list(JOURNAL_PREFIX), None) is not None:
            raise holds_a_store(place)
        refuse_nested(place, storage)
    elif mark.store_id != record.store_id:
        raise holds_a_store(place)
    elif next(chunk_objects(storage), None) is not None:
        raise AlreadyExists(
            f"{printable(place.record.url)} has objects of this store that no record names",
            remedy="recover the store again with them: tierfs recover --from-objects --archive-place URL; if they are "
            "worthless, delete segments and packs there first",
        )
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
