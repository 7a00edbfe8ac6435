"""The archive place: a second directory or bucket of a store, to which objects of the cold tier move.

It is a location next to the store's own and the foreign ones, at most one. Whoever can write to the bucket's journal
could name any: the checks of what comes from there, and the mark in the place itself (journal/archive_mark.py), keep
what is not the store's from being deleted.
"""

from __future__ import annotations

from tierfs.base.words.types import IN_PLACE, LocationId
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.tables import LOCATIONS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction

NONE = LocationId(0)


def find(txn: ReadTransaction) -> LocationRecord | None:
    """Return the archive place of a store; None without one. Reads all locations, which are few."""
    return next((record for _, record in txn.scan(LOCATIONS) if record.archive), None)


def id_of(txn: ReadTransaction) -> LocationId:
    """Return its id; NONE without one."""
    place = find(txn)
    return NONE if place is None else place.id


def is_archive(txn: ReadTransaction, location_id: int) -> bool:
    """Return whether a location is the archive place, at the cost of one get."""
    record = txn.get(LOCATIONS, tables.u32(location_id))
    return record is not None and record.archive


def objects_in(txn: ReadTransaction, location_id: LocationId) -> int:
    """Return the number of objects in the archive place, at the cost of a scan in a store that is being counted."""
    if txn.sums is not None:
        return txn.sums.placed_objects
    return sum(record.location_id == location_id for _, record in txn.scan(OBJECTS))


def id_for(txn: ReadTransaction, location_id: int, archive_class: str) -> LocationId:
    """Return the archive place for a check of one object: NONE unless it says that it is there, and its location is."""
    return LocationId(location_id) if archive_class == IN_PLACE and is_archive(txn, location_id) else NONE
