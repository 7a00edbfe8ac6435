"""This store's own objects in a foreign place, which are never adopted.

Our garbage collection would delete them, and an adoption promises that foreign objects are never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.chunkstore.validate import MARK_NAME
from tierfs.engine.metadata import archive_place, policies
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.tables import GARBAGE, INTENTS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.adoption.plan import AdoptionPlan, LeftOut
from tierfs.tiering.ledgers.owners import companions, unchunked_names

# Directories below our own location that are always ours: their objects have no records.
_OWN_DIRECTORIES = ("journal/", "uploads/", "dumps/", "ledgers/")


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Full names, including the URL, of our own objects. Servers are not compared: one has many names."""

    prefixes: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def holds(self, full_name: str) -> bool:
        """Return whether an object is ours."""
        return full_name in self.names or full_name.startswith(self.prefixes)


def own_names(txn: ReadTransaction, place: LocationRecord) -> OwnNames:
    """Return the names of our own objects in `place`; empty unless it overlaps with our own cold location, or our
    archive place."""
    if not txn.store.cold_location_id:
        return OwnNames()
    places = [_names_at(txn, place, policies.location(txn, txn.store.cold_location_id))]
    archive = archive_place.find(txn)
    if archive is not None:
        places.append(_names_at(txn, place, archive))
    prefixes = tuple(prefix for each in places for prefix in each.prefixes)
    return OwnNames(prefixes, frozenset().union(*(each.names for each in places)))


def _names_at(txn: ReadTransaction, place: LocationRecord, ours: LocationRecord) -> OwnNames:
    if not (f"{ours.url}/".startswith(f"{place.url}/") or f"{place.url}/".startswith(f"{ours.url}/")):
        return OwnNames()
    named = {record.name for _, record in txn.scan(OBJECTS) if record.location_id == ours.id}
    named.update(companions(txn), unchunked_names(txn))
    named.update(intent.name for _, intent in txn.scan(INTENTS))
    named.add(MARK_NAME)
    named.update(row.name for _, row in txn.scan(GARBAGE) if row.location_id == ours.id)
    prefixes = tuple(f"{ours.url}/{directory}" for directory in _OWN_DIRECTORIES)
    return OwnNames(prefixes, frozenset(f"{ours.url}/{name}" for name in named))


def without_own(
    plan: AdoptionPlan, listed: Iterable[StoredObject], place: LocationRecord, own: OwnNames
) -> Iterator[StoredObject]:
    """Yield the objects that are not ours; record the others as left out of `plan`."""
    for stored in listed:
        if own.holds(f"{place.url}/{stored.name}"):
            plan.left_out.append(LeftOut(stored.name, "this store's own"))
        else:
            yield stored
