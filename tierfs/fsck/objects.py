"""Checks objects in one pass, and keeps in flat arrays what the other checks need of each.

An index by name takes 12 bytes per object; files and listings are matched with records through it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from tierfs.fsck.findings import RECOVER, Finding, Kind, Mend, Severity
from tierfs.metadata import tables
from tierfs.metadata.records import RECORD_VERSION
from tierfs.metadata.tables import OBJECTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.metadata.untrusted import messages
from tierfs.types import Tier


class NamesIndex:
    """Numbers of objects by the hash of their name.

    Python keys its hash of strings again in each process, so two names that share one cannot be prepared. By accident
    a million names collide with another million with a probability of 5 in 10^8.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._numbers = array("I")
        self._sorted = True

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, name: str, number: int) -> None:
        """Add one name."""
        self._hashes.append(hash(name))
        self._numbers.append(number)
        self._sorted = False

    def find(self, name: str) -> Iterator[int]:
        """Yield the numbers of the objects of this name; more than one only if records are damaged."""
        if not self._sorted:
            self._sort()
        wanted, hashes = hash(name), self._hashes
        at = bisect_left(hashes, wanted)
        while at < len(hashes) and hashes[at] == wanted:
            yield self._numbers[at]
            at += 1

    def numbers(self) -> array[int]:
        """Return the numbers of all objects, unordered."""
        return self._numbers

    def _sort(self) -> None:
        order = sorted(range(len(self._hashes)), key=self._hashes.__getitem__)
        self._hashes = array("q", map(self._hashes.__getitem__, order))
        self._numbers = array("I", map(self._numbers.__getitem__, order))
        self._sorted = True


class ObjectTable:
    """The objects of one snapshot by number: their ids ascend, so a number is found by bisection."""

    def __init__(self) -> None:
        self.ids = array("Q")
        self.lengths = array("Q")
        self.recorded = array("L")
        """References according to the record."""
        self.counted = array("L")
        """Chunks that point to the object."""
        self.tiers = array("B")
        self.foreign = bytearray()
        self.names = {tier: NamesIndex() for tier in Tier}
        self.locations: set[int] = set()
        self._last = -1

    def add(self, record: object) -> None:
        """Add one object; ids ascend."""
        number = len(self.ids)
        message: _ObjectMessage = record  # type: ignore[assignment]
        self.ids.append(message.id)
        self.lengths.append(message.length)
        self.recorded.append(message.references)
        self.counted.append(0)
        self.tiers.append(message.tier)
        self.foreign.append(message.foreign)
        self.names[Tier(message.tier)].add(message.name, number)

    def number(self, object_id: int) -> int | None:
        """Return the number of an object, or None. Neighbours in a chain are often neighbours here."""
        ids, following = self.ids, self._last + 1
        if following < len(ids) and ids[following] == object_id:
            self._last = following
            return following
        number = bisect_left(ids, object_id)
        if number == len(ids) or ids[number] != object_id:
            return None
        self._last = number
        return number


class _ObjectMessage:
    """The fields of ObjectRecord's message that are read here."""

    id: int
    tier: int
    name: str
    length: int
    references: int
    foreign: bool


def load_objects(txn: ReadTransaction, locations: set[int], table: ObjectTable) -> Iterator[Finding]:
    """Fill the table and yield damaged records. `locations` are the ids that exist."""
    tiers = {int(tier) for tier in Tier}
    for key, record in messages(txn, OBJECTS):
        if record is None or record.id != tables.read_u64(key) or record.tier not in tiers or not record.name:
            yield _damaged(key)
            continue
        table.add(record)
        cold = record.tier == Tier.COLD
        if record.version > RECORD_VERSION or (cold and not record.etag):
            yield _damaged(key)
        if cold and record.location_id not in locations:
            yield Finding(
                Kind.LOCATION,
                Severity.DAMAGE,
                f"object {record.id}",
                f"it is in location {record.location_id}, which is unknown",
                remedy=RECOVER,
                object_id=record.id,
            )


def unused_and_miscounted(table: ObjectTable) -> Iterator[Finding]:
    """Yield objects without chunks and wrong reference counts, after the chunks were counted."""
    for number, object_id in enumerate(table.ids):
        counted, recorded = table.counted[number], table.recorded[number]
        if not counted:
            yield Finding(
                Kind.OBJECT_UNUSED,
                Severity.DAMAGE,
                f"object {object_id}",
                "no chunk points to it",
                mend=Mend.COLLECT_OBJECT,
                object_id=object_id,
            )
        elif counted != recorded:
            yield Finding(
                Kind.REFERENCES,
                Severity.DAMAGE,
                f"object {object_id}",
                f"{counted} chunks point to it, its record says {recorded}",
                mend=Mend.RECOUNT_REFERENCES,
                object_id=object_id,
            )


def _damaged(key: bytes) -> Finding:
    return Finding(
        Kind.RECORD,
        Severity.DAMAGE,
        f"object {int.from_bytes(key[: tables.U64_BYTES], 'big')}",
        "its record is damaged",
        remedy=RECOVER,
        row=(OBJECTS.name, key),
    )
