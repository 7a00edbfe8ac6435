"""Accepting the present wall clock: what an earlier, wrong one dated into the future is dated now.

Without it a clock that ran ahead, and was set back, would hold up every timed deletion for as long as it was ahead.
Only an operator can say which of the two is right; where a server can, it does (clock_check.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from tierfs.metadata import keys
from tierfs.metadata.records import Record
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import GARBAGE, OBJECTS, SEGMENTS, Table
from tierfs.metadata.transaction import ReadTransaction, batches

R = TypeVar("R", bound=Record)

_BATCH_ROWS = 1000
"""Rows looked at per snapshot, and dated anew per commit: some 10 ms, so that appends hardly wait."""

_LATEST_RETRY_MS = 6 * 3600 * 1000
"""A deletion that failed is put off by at most so long (collect.py)."""

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
    """What had a date in the future."""

    now_ms: int
    segments: int = 0
    objects: int = 0
    deletions: int = 0


def accept(metadata: MetadataStore, *, grace_s: int) -> ClockAccepted:
    """Take the present time for right. Idempotent; a crash in between leaves a part for the next time.

    `grace_s` is the longest that a deletion is put off by policy. Raises Fenced in a store that may only be read.
    """
    now_ms = metadata.clock.now_ms()
    segments = _date_anew(metadata, SEGMENTS, _SEGMENT_TIMES, now_ms)
    objects = _date_anew(metadata, OBJECTS, _OBJECT_TIMES, now_ms)
    deletions = _bring_forward(metadata, now_ms, max(grace_s * 1000, _LATEST_RETRY_MS))
    with metadata.write() as txn:
        txn.update_store(last_wall_ms=0, clock_accepted_ms=txn.now_ms)
        txn.touch(policies=True)  # the holder looks at everything again
    return ClockAccepted(now_ms, segments, objects, deletions)


def _date_anew(metadata: MetadataStore, table: Table[R], times: Sequence[str], now_ms: int) -> int:
    """Put times behind `now_ms` to it; returns in how many rows."""

    def find(_: ReadTransaction, rows: list[tuple[bytes, R]]) -> list[bytes]:
        return [key for key, record in rows if any(getattr(record, name) > now_ms for name in times)]

    count = 0
    for late in filter(None, batches(metadata.read, table, _BATCH_ROWS, find)):
        with metadata.write() as txn:
            for key in late:
                record = txn.get(table, key)
                if record is not None:
                    changes = {name: min(getattr(record, name), now_ms) for name in times}
                    txn.put(table, key, replace(record, **changes))
                    count += 1
    return count


def _bring_forward(metadata: MetadataStore, now_ms: int, longest_ms: int) -> int:
    """Make deletions due at most `longest_ms` from now; returns how many were due later."""
    count, last_ms = 0, now_ms + longest_ms
    while True:
        with metadata.write() as txn:
            late = list(islice(txn.scan(GARBAGE, keys.pair(last_ms + 1, 0)), _BATCH_ROWS))
            for key, record in late:
                txn.delete(GARBAGE.name, key)
                txn.put(GARBAGE, keys.pair(last_ms, record.sequence), replace(record, due_ms=last_ms))
        count += len(late)
        if len(late) < _BATCH_ROWS:
            return count
