"""Going on in a successor: a writer whose segment policy seals, or has sealed, moves there.

The successor of a segment belongs to that segment's living writer until somebody has written to it, so a
second process cannot slip in between the commit that seals and the writer that follows.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierfs import names
from tierfs.errors import Fenced, NotFound, Sealed
from tierfs.metadata import directories, policies
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import WriteTransaction
from tierfs.policy import Policy
from tierfs.segments import ownership, seal, streams
from tierfs.segments.writer_locks import WriterLocks
from tierfs.types import SegmentId, SegmentStatus


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a writer goes on."""

    segment: SegmentRecord
    policy: Policy
    ended: str | None
    """The chunk file of its old segment that ended by it."""


def move(
    txn: WriteTransaction, writer_locks: WriterLocks, segment_id: SegmentId, epoch: int, name: str
) -> Moved | None:
    """Make the writer of a segment the writer of its successor, sealing the one by policy if nobody has.

    None if the segment cannot be continued: it then stays open. Raises NotFound, Sealed or Fenced when this
    writer may not write any more. The caller releases the new lock if the transaction fails, and the old
    one's when it succeeded.
    """
    segment = directories.segment(txn, segment_id)
    if segment is None:
        raise NotFound(f"segment {names.printable(name)} was deleted")
    if segment.status is SegmentStatus.SEALED_BY_POLICY:
        following = streams.successor(txn, segment) or streams.go_on(txn, segment)
        ended = None
    else:
        segment = ownership.require_current(txn, segment_id, epoch, name)
        ended = seal.active_file(txn, segment)
        following = streams.go_on(txn, segment)
    if following is None and not segment.sealed:
        return None
    if following is None or following.status is SegmentStatus.SEALED:
        raise Sealed(f"segment {names.printable(name)} is sealed")
    if segment.writer_epoch != epoch or following.writer_epoch:
        owner = following if following.writer_epoch else segment
        raise Fenced(
            f"segment {names.printable(name)} was taken over by {owner.writer}",
            remedy="stop this writer; what it was told is written stays written",
        )
    registered = ownership.register(txn, following, writer_locks, take_over=False)
    return Moved(registered, policies.effective(txn, registered), ended)


def end_if_due(
    txn: WriteTransaction, writer_locks: WriterLocks, segment_id: SegmentId, *, now_ms: int
) -> tuple[SegmentRecord, str | None] | None:
    """Seal a segment by policy that is long or old enough; returns its successor and the file that ended.

    One that is only long is left to its writer while there is one in another process: it goes on at the next
    append by itself, and what is one file for it (an ingest) stays one. A living writer follows by itself.
    """
    segment = directories.segment(txn, segment_id)
    if segment is None or not streams.may_end(segment):
        return None
    policy = policies.effective(txn, segment)
    old = streams.is_old(segment, policy, now_ms)
    idle = not writer_locks.is_alive_elsewhere(segment.id, segment.writer_epoch)
    if not (old or (idle and streams.is_long(segment, policy))):
        return None
    ended = seal.active_file(txn, segment)
    following = streams.go_on(txn, segment)
    return None if following is None else (following, ended)
