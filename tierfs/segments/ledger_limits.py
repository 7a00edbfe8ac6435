"""When policy closes a ledger, and closing one that nobody is about to close."""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.metadata import directories, entries, policies
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.policy import Policy
from tierfs.segments import seal, seal_record, streams
from tierfs.segments.writer_locks import WriterLocks
from tierfs.types import SegmentId, SegmentKind


@dataclass(frozen=True, slots=True)
class Filling:
    """How full an open ledger is."""

    entries: int
    length: int

    def is_full(self, policy: Policy) -> bool:
        """Whether it has as many entries or bytes as policy wants."""
        enough = policy.ledger_entries is not None and self.entries >= policy.ledger_entries
        return enough or (policy.seal_bytes is not None and self.length >= policy.seal_bytes)

    def plus(self, payload_bytes: int) -> Filling:
        """With one more entry."""
        return Filling(self.entries + 1, self.length + payload_bytes)


def filling(txn: ReadTransaction, segment: SegmentRecord) -> Filling:
    """Of a ledger as it is."""
    return Filling(entries.count(txn, segment.id), segment.length)


def is_due(txn: ReadTransaction, segment: SegmentRecord, policy: Policy, now_ms: int) -> bool:
    """Whether policy wants a ledger closed that is open."""
    if segment.kind is not SegmentKind.LEDGER or segment.sealed:
        return False
    return streams.is_old(segment, policy, now_ms) or filling(txn, segment).is_full(policy)


def close_if_due(txn: WriteTransaction, writer_locks: WriterLocks, segment_id: SegmentId) -> tuple[bool, str | None]:
    """Close a ledger that policy wants closed; returns whether it did, and the file that ended.

    One that is only full is left to its writer while there is one. The writer of one that is old finds it closed, and
    goes on in the next ledger.
    """
    segment = directories.segment(txn, segment_id)
    if segment is None:
        return False, None
    policy = policies.effective(txn, segment)
    if not is_due(txn, segment, policy, txn.now_ms):
        return False, None
    alive = writer_locks.is_alive_elsewhere(segment.id, segment.writer_epoch)
    if alive and not streams.is_old(segment, policy, txn.now_ms):
        return False, None
    ended = seal.active_file(txn, segment)
    seal_record.write(txn, segment)
    return True, ended
