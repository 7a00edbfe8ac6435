"""The change of a segment's record that ends it."""

from __future__ import annotations

from dataclasses import replace

from tierfs import names
from tierfs.metadata import entries, journal, ledgers
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import SegmentKind, SegmentStatus


def write(txn: WriteTransaction, segment: SegmentRecord, *, successor_id: int = 0) -> SegmentRecord:
    """Write the segment as sealed, and tell mounts and the journal.

    By policy if it has a successor, else by the user. When it was sealed stays what it was.
    """
    sealed = replace(
        segment,
        status=SegmentStatus.SEALED_BY_POLICY if successor_id else SegmentStatus.SEALED,
        successor_id=successor_id,
        active=False,
        resumable=False,
        sealed_ms=segment.sealed_ms or txn.now_ms,
        changed_ms=txn.now_ms,
    )
    journal.put_segment(txn, sealed)
    if sealed.kind is SegmentKind.LEDGER:
        _close_ledger(txn, sealed)
    txn.touch(inode=sealed.inode, segment_id=sealed.id)
    return sealed


def _close_ledger(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Note what the ledger has now that it takes no more. Its id is the name's, or the segment's own number."""
    ledger_id = names.ledger_id(segment.name)
    known = ledgers.find(txn, segment.id)
    closed = replace(
        known,
        ledger_id=known.ledger_id or (segment.id if ledger_id is None else ledger_id),
        entries=entries.count(txn, segment.id),
        bytes=segment.length,
        timestamp_ms=segment.sealed_ms,
    )
    ledgers.put(txn, closed)
