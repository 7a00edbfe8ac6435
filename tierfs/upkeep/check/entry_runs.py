"""Checks entry runs: those of a ledger follow each other without a gap and end at the segment's end."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.words.types import SegmentKind
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.message_rows import message, messages
from tierfs.engine.metadata.tables import ENTRIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.findings import RECOVER, Finding, FindingPlace, Kind, Mend, Severity


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
