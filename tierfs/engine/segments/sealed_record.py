"""Write the record that seals a segment, and the final record of a ledger."""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.words import names
from tierfs.base.words.types import (
    SegmentKind,
    SegmentStatus,
)
from tierfs.engine.metadata import changes, entries
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import WriteTransaction


def write(txn: WriteTransaction, segment: SegmentRecord, *, successor_id: int = 0) -> SegmentRecord:
    """Write the segment as sealed, and notify mounts and the journal.

    It is sealed by policy if it has a successor, else by the user. An earlier time of sealing is kept.
    """
    sealed = replace(
        segment,
        status=SegmentStatus.SEALED_BY_POLICY if successor_id else SegmentStatus.SEALED,
        successor_id=successor_id,
        active=False,
        resumable=False,
        grows_from=0,
        sealed_ms=segment.sealed_ms or txn.now_ms,
        changed_ms=txn.now_ms,
    )
    changes.put_segment(txn, sealed)
    if sealed.kind is SegmentKind.LEDGER:
        _close_ledger(txn, sealed)
    txn.touch(inode=sealed.inode, segment_id=sealed.id)
    return sealed


def _close_ledger(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Record the ledger's final entries and bytes. Its id is the name's, or the segment's own number."""
    ledger_id = names.ledger_id(segment.name)
    ledger = entries.find(txn, segment.id)
    closed = replace(
        ledger,
        ledger_id=ledger.ledger_id or (segment.id if ledger_id is None else ledger_id),
        entries=entries.count(txn, segment.id),
        bytes=segment.length,
        timestamp_ms=segment.sealed_ms,
    )
    entries.put_ledger(txn, closed)
