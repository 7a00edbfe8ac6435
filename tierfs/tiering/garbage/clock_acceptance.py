"""Take the present wall clock for right: times that an earlier, wrong one put into the future become now.

Otherwise a clock that ran ahead, and was set back, would hold up every timed deletion for as long as it was ahead. Only
an operator can tell which of the two is right; where a server can, it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import NO_READING
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import ObjectRecord, Record
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS, SEGMENTS, Table
from tierfs.engine.metadata.transaction import ReadTransaction

R = TypeVar("R", bound=Record)

# Rows looked at per snapshot, and dated again per commit: some 10 ms, so that appends hardly wait.
_BATCH_ROWS = 1000

# A deletion that failed is put off by at most so long (collect.py).
_LATEST_RETRY_MS = 6 * 3600 * 1000

_SEGMENT_TIMES = (
    "created_ms",
    "modified_ms",
    "changed_ms",
    "sealed_ms",
    "recovered_ms",
    "first_byte_ms",
)
_OBJECT_TIMES = ("created_ms", "written_ms")


@dataclass(frozen=True, slots=True)
class ClockAccepted:
    """Number of rows that had a date in the future."""

    now_ms: int
    segments: int = 0
    objects: int = 0
    deletions: int = 0


def accept(metadata: MetadataStore, *, grace_s: int) -> ClockAccepted:
    """Take the present time for right. Idempotent; a crash in between leaves a part for the next time.

    `grace_s` is the longest that a deletion is put off by policy. Raises Fenced in a store that may only be read.
    """
    from tierfs.engine.segments import trash  # status knows the clock's command, and needs nothing of this

    now_ms = metadata.clock.now_ms()
    segments = _date_anew(metadata, SEGMENTS, _SEGMENT_TIMES, now_ms)
    objects = _date_anew(metadata, OBJECTS, _OBJECT_TIMES, now_ms)
    deletions = _bring_forward(metadata, now_ms, max(grace_s * 1000, _LATEST_RETRY_MS))
    deletions += trash.date_all_anew(metadata)
    with metadata.write() as txn:
        txn.update_store(last_wall_ms=0, clock_accepted_ms=txn.now_ms, clock_seen=NO_READING)
        txn.touch(policies=True)  # the holder looks at everything again
    return ClockAccepted(now_ms, segments, objects, deletions)


def _date_anew(metadata: MetadataStore, table: Table[R], times: Sequence[str], now_ms: int) -> int:
    """Put times later than `now_ms` to it; return the number of rows."""

    def find(_: ReadTransaction, rows: list[tuple[bytes, R]]) -> list[bytes]:
        return [key for key, record in rows if _dated(record, times, now_ms) != record]

    count = 0
    for late in filter(None, batches(metadata.read, table, _BATCH_ROWS, find)):
        with metadata.write() as txn:
            for key in late:
                record = txn.get(table, key)
                if record is not None:
                    txn.put(table, key, _dated(record, times, now_ms))
                    count += 1
    return count


def _dated(record: R, times: Sequence[str], now_ms: int) -> R:
    """Return a record without times later than `now_ms`."""
    changes: dict[str, Any] = {name: min(getattr(record, name), now_ms) for name in times}
    if isinstance(record, ObjectRecord):
        changes["times"] = record.times.until(now_ms)
    return replace(record, **changes)


def _bring_forward(metadata: MetadataStore, now_ms: int, longest_ms: int) -> int:
    """Make deletions due at most `longest_ms` from now; return how many were due later."""
    count, last_ms = 0, now_ms + longest_ms
    while True:
        with metadata.write() as txn:
            late = list(islice(txn.scan(GARBAGE, tables.pair(last_ms + 1, 0)), _BATCH_ROWS))
            for key, record in late:
                txn.delete(GARBAGE.name, key)
                txn.put(GARBAGE, tables.pair(last_ms, record.sequence), replace(record, due_ms=last_ms))
        count += len(late)
        if len(late) < _BATCH_ROWS:
            return count
