"""Checks objects in one pass, and keeps in flat arrays what the other checks need of each.

An index by name takes 12 bytes per object; files and listings are matched with records through it.

Checks checksum runs and the entries of ledgers.

Checksum runs are read in one pass beside the objects: every byte of every object has its CRC (invariant 8).
Entry runs of a ledger follow each other without a gap and end at the segment's end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tierfs.base.words.types import CRC_BLOCK_BYTES, SegmentKind, Tier
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.message_rows import message, messages
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.tables import CHECKSUMS, ENTRIES, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.findings import RECOVER, Finding, FindingPlace, Kind, Mend, Severity


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


_CRC_BYTES = 4


def check_checksums(txn: ReadTransaction, table: ObjectTable) -> Iterator[Finding]:
    """Yield runs without an object and objects with bytes that no run covers."""
    number, count = 0, len(table.ids)
    for object_id, rows in groupby(messages(txn, CHECKSUMS), key=_object_id):
        while number < count and table.ids[number] < object_id:
            yield _gap(table, number, 0)
            number += 1
        if number == count or table.ids[number] != object_id:
            yield from _orphans(object_id, rows)
            continue
        gap = _first_gap(rows, table.lengths[number])
        if gap is not None:
            yield _gap(table, number, gap)
        number += 1
    for rest in range(number, count):
        yield _gap(table, rest, 0)


def _object_id(row: tuple[bytes, Any]) -> int:
    return tables.read_u64(row[0])


def _first_gap(rows: Iterator[tuple[bytes, Any]], length: int) -> int | None:
    """Return the first offset without a CRC, or None if every byte has one and no CRC covers nothing.

    A run ends where the next begins, so that a composed object keeps its pieces' grids: the last block of
    a run may be short.
    """
    last_block, end = -1, 0
    for key, run in rows:
        start = int.from_bytes(key[tables.U64_BYTES :], "big")
        whole = run is not None and run.start == start and run.crcs and not len(run.crcs) % _CRC_BYTES
        if not whole or start > end or start <= last_block:
            return end
        end = start + len(run.crcs) // _CRC_BYTES * CRC_BLOCK_BYTES
        last_block = end - CRC_BLOCK_BYTES
    return None if last_block < length <= end else min(end, length)


def _gap(table: ObjectTable, number: int, offset: int) -> Finding:
    object_id = table.ids[number]
    return Finding(
        Kind.CHECKSUM_GAP,
        Severity.DAMAGE,
        f"object {object_id}",
        f"its checksums do not cover it from byte {offset} on",
        mend=Mend.REBUILD_CHECKSUMS,
        object_id=object_id,
    )


def _orphans(object_id: int, rows: Iterator[tuple[bytes, Any]]) -> Iterator[Finding]:
    for key, _ in rows:
        yield Finding(
            Kind.CHECKSUM_ORPHAN,
            Severity.DAMAGE,
            f"object {object_id}",
            "its checksums exist, but the object does not",
            mend=Mend.DROP_ROW,
            row=(CHECKSUMS.name, key),
        )


def check_entries(txn: ReadTransaction) -> Iterator[Finding]:
    """Check every entry run and the end of each ledger."""
    ends: dict[int, tuple[int, int]] = {}
    """Per ledger seen so far: the entry and the offset at which its next run must begin."""
    for key, run in messages(txn, ENTRIES):
        segment_id, first = tables.read_u64(key), tables.read_u64(key[tables.U64_BYTES :])
        subject = f"entries of segment {segment_id} from {first} on"
        if not _is_ledger(txn, segment_id):
            # What an adoption that was killed had written before its commit; a ledger that is gone is told by others.
            text, row = "no ledger has this number", (ENTRIES.name, key)
            yield Finding(Kind.ENTRIES, Severity.NOTE, subject, text, mend=Mend.DROP_ROW, row=row)
            continue
        expected = ends.get(segment_id, (0, 0))
        if run is None or run.first_entry_id != first or (first, run.payload_start) != expected:
            text = f"expected entry {expected[0]} at byte {expected[1]} first"
            yield Finding(Kind.ENTRIES, Severity.DAMAGE, subject, text, remedy=RECOVER)
        if run is not None:
            ends[segment_id] = (first + len(run.lengths), run.payload_start + sum(run.lengths))
    yield from _check_ends(txn, ends)


def _check_ends(txn: ReadTransaction, ends: dict[int, tuple[int, int]]) -> Iterator[Finding]:
    for key, segment in messages(txn, SEGMENTS):
        if segment is None or segment.kind != SegmentKind.LEDGER.value:
            continue
        _, end = ends.get(segment.id, (0, 0))
        if end == segment.length:
            continue
        text = f"its entries end at byte {end} of {segment.length}"
        subject = f"ledger {segment.name} ({tables.read_u64(key)})"
        if segment.cold.count and not end:
            mend, place = Mend.RESTORE_ENTRIES, FindingPlace(segment.id)
            yield Finding(Kind.ENTRIES, Severity.DAMAGE, subject, text, mend=mend, place=place)
        else:
            yield Finding(Kind.ENTRIES, Severity.DAMAGE, subject, text, remedy=RECOVER)


def _is_ledger(txn: ReadTransaction, segment_id: int) -> bool:
    segment = message(txn, SEGMENTS, tables.u64(segment_id))
    return segment is not None and segment.kind == SegmentKind.LEDGER.value
