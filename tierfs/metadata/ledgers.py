"""Rows of `ledgers`: what tiering knows of a ledger besides its segment. Changes go to the journal too."""

from __future__ import annotations

from tierfs.metadata import entries, journal, keys
from tierfs.metadata.ledger_records import LedgerRecord
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import LEDGERS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.types import SegmentId, SegmentKind


def find(txn: ReadTransaction, segment_id: SegmentId) -> LedgerRecord:
    """What is known of a ledger; a record without anything where nothing was written yet."""
    known: LedgerRecord | None = txn.get(LEDGERS, keys.u64(segment_id))
    return known or LedgerRecord(segment_id=segment_id)


def put(txn: WriteTransaction, ledger: LedgerRecord) -> None:
    """Write what is known of a ledger, and tell the journal."""
    txn.put(LEDGERS, keys.u64(ledger.segment_id), ledger)
    journal.ledger_changed(txn, ledger)


def forget(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Drop all rows of a segment that goes, if it is a ledger."""
    if segment.kind is SegmentKind.LEDGER:
        entries.remove(txn, segment.id)
        txn.delete(LEDGERS.name, keys.u64(segment.id))
