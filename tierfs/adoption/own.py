"""What lies in a foreign place and is this store's own all the same: never adopted.

Its names would go with our garbage, and adopting it would promise that nothing deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tierfs.adoption.plan import LeftOut, Plan
from tierfs.background.ledger_listing import companions
from tierfs.chunkstore.checks import MARK_NAME
from tierfs.chunkstore.protocol import StoredObject
from tierfs.metadata import locations
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.tables import GARBAGE, INTENTS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction

_OWN_DIRECTORIES = ("journal/", "uploads/", "dumps/", "ledgers/")
"""Below our own location these are ours whatever the records say: their objects have none."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Full names, URL included, of what is ours. Servers are not compared: one has many names."""

    prefixes: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def holds(self, full_name: str) -> bool:
        """Whether an object is ours."""
        return full_name in self.names or full_name.startswith(self.prefixes)


def own_names(txn: ReadTransaction, place: LocationRecord) -> OwnNames:
    """What is ours where `place` is; empty unless it overlaps with our own cold location."""
    if not txn.store.cold_location_id:
        return OwnNames()
    ours = locations.location(txn, txn.store.cold_location_id)
    if not (f"{ours.url}/".startswith(f"{place.url}/") or f"{place.url}/".startswith(f"{ours.url}/")):
        return OwnNames()
    named = {holder.name for _, holder in txn.scan(OBJECTS) if holder.location_id == ours.id}
    named.update(companions(txn))
    named.update(intent.name for _, intent in txn.scan(INTENTS))
    named.add(MARK_NAME)
    named.update(row.name for _, row in txn.scan(GARBAGE) if row.location_id == ours.id)
    prefixes = tuple(f"{ours.url}/{directory}" for directory in _OWN_DIRECTORIES)
    return OwnNames(prefixes, frozenset(f"{ours.url}/{name}" for name in named))


def without_own(
    plan: Plan, found: Iterable[StoredObject], place: LocationRecord, own: OwnNames
) -> Iterator[StoredObject]:
    """What is not ours; the rest is left out of `plan`."""
    for one in found:
        if own.holds(f"{place.url}/{one.name}"):
            plan.left_out.append(LeftOut(one.name, "this store's own"))
        else:
            yield one
