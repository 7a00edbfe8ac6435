"""Checks checksum runs and the entries of ledgers.

Checksum runs are read in one pass beside the objects: every byte of every object has its CRC (invariant 8).
Entry runs of a ledger follow each other without a gap and end at the segment's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tierfs.fsck.findings import RECOVER, Finding, FindingPlace, Kind, Mend, Severity
from tierfs.fsck.objects import ObjectTable
from tierfs.metadata import tables
from tierfs.metadata.tables import CHECKSUMS, ENTRIES, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.metadata.untrusted import message, messages
from tierfs.types import CRC_BLOCK_BYTES, SegmentKind

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
            text = "no ledger has this number"
            row = (ENTRIES.name, key)
            yield Finding(Kind.ENTRIES, Severity.DAMAGE, subject, text, mend=Mend.DROP_ROW, row=row)
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
