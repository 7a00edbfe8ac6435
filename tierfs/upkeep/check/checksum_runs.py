"""Checks checksum runs, in one pass beside the objects: every byte of every object has its CRC (invariant 8).

Those of a compressed object also place the frames of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.metadata import frame_rows, tables
from tierfs.engine.metadata.message_rows import messages
from tierfs.engine.metadata.tables import CHECKSUMS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.findings import Finding, Kind, Mend, Severity
from tierfs.upkeep.check.object_table import ObjectTable

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
        gap = _first_gap(rows, table.lengths[number], table.compressed[number])
        if gap is not None:
            yield _gap(table, number, gap)
        number += 1
    for rest in range(number, count):
        yield _gap(table, rest, 0)


def _object_id(row: tuple[bytes, Any]) -> int:
    return tables.read_u64(row[0])


def _first_gap(rows: Iterator[tuple[bytes, Any]], length: int, compressed_bytes: int = 0) -> int | None:
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
        if compressed_bytes and not frame_rows.places_frames(run, length, compressed_bytes):
            return start
        end = start + len(run.crcs) // _CRC_BYTES * CRC_BLOCK_BYTES
        last_block = end - CRC_BLOCK_BYTES
    return None if last_block < length <= end else min(end, length)


def _gap(table: ObjectTable, number: int, offset: int) -> Finding:
    object_id = table.ids[number]
    places = " or the places of its frames" if table.compressed[number] else ""
    return Finding(
        Kind.CHECKSUM_GAP,
        Severity.DAMAGE,
        f"object {object_id}",
        f"its checksums{places} are missing from byte {offset} on",
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
