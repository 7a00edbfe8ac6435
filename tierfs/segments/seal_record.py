"""The change of a segment's record that ends it."""

from __future__ import annotations

from dataclasses import replace

from tierfs.metadata import journal
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import SegmentStatus


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
    txn.touch(inode=sealed.inode, segment_id=sealed.id)
    return sealed
