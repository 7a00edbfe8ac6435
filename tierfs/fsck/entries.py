"""The entries of ledgers: their runs follow each other without a gap and end where their segment does."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.fsck.findings import RECOVER, Finding, Kind, Mend, Place, Severity
from tierfs.metadata import keys
from tierfs.metadata.messages import message, messages
from tierfs.metadata.tables import ENTRIES, SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import SegmentKind


def check_entries(txn: ReadTransaction) -> Iterator[Finding]:
    """Every run, and each ledger's end."""
    ends: dict[int, tuple[int, int]] = {}
    """Per ledger met so far: the entry and the offset that its next run must begin with."""
    for key, run in messages(txn, ENTRIES):
        segment_id, first = keys.read_u64(key), keys.read_u64(key[keys.U64_BYTES :])
        subject = f"entries of segment {segment_id} from {first} on"
        if not _is_ledger(txn, segment_id):
            text = "there is no ledger of this number"
            row = (ENTRIES.name, key)
            yield Finding(Kind.ENTRIES, Severity.DAMAGE, subject, text, mend=Mend.DROP_ROW, row=row)
            continue
        expected = ends.get(segment_id, (0, 0))
        if run is None or run.first_entry_id != first or (first, run.payload_start) != expected:
            text = f"they should begin with entry {expected[0]} at byte {expected[1]}"
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
        subject = f"ledger {segment.name} ({keys.read_u64(key)})"
        if segment.cold.count and not end:
            mend, place = Mend.RESTORE_ENTRIES, Place(segment.id)
            yield Finding(Kind.ENTRIES, Severity.DAMAGE, subject, text, mend=mend, place=place)
        else:
            yield Finding(Kind.ENTRIES, Severity.DAMAGE, subject, text, remedy=RECOVER)


def _is_ledger(txn: ReadTransaction, segment_id: int) -> bool:
    segment = message(txn, SEGMENTS, keys.u64(segment_id))
    return segment is not None and segment.kind == SegmentKind.LEDGER.value
