"""Sealing a segment, and rolling its active chunk.

Unsealing: a sealed segment takes bytes again, under the same name as a new file.

Going on in a successor: a writer whose segment policy seals, or has sealed, moves there.

The successor of a segment belongs to that segment's living writer until somebody has written to it, so a
second process cannot slip in between the commit that seals and the writer that follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tierfs import names
from tierfs.errors import Conflict, Fenced, InvalidRequest, NotFound, Sealed
from tierfs.metadata import chains, changes, directories, policies, tables
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.policy import Policy
from tierfs.segments import create, ownership, streams
from tierfs.segments.ownership import WriterLocks
from tierfs.types import SegmentId, SegmentKind, SegmentStatus, Tier


def seal(metadata: MetadataStore, writer_locks: WriterLocks, name: str) -> tuple[SegmentRecord, str | None]:
    """End a segment for good; a sealed one is success. Returns it and the chunk file that ended.

    Of a stream, the member that is appended to is sealed, whichever of them `name` names. Raises NotFound, or
    Conflict naming a live writer. Earlier writers are fenced.
    """
    with metadata.write() as txn:
        segment = streams.newest(txn, directories.segment_by_name(txn, name))
        if segment.status is SegmentStatus.SEALED:
            return segment, None
        fenced = ownership.fence(txn, segment, writer_locks)
        return create.write(txn, fenced), active_file(txn, segment)


def roll(metadata: MetadataStore, segment_id: SegmentId) -> str | None:
    """End the active chunk at the committed length; returns its file, or None when there was none.

    A live writer goes on: its next commit finds the chunk ended and its bytes are written again to a
    new one. Idempotent.
    """
    with metadata.write() as txn:
        segment = directories.segment(txn, segment_id)
        if segment is None or not segment.active:
            return None
        ended = active_file(txn, segment)
        rolled = replace(segment, active=False, resumable=False, generation=segment.generation + 1)
        txn.put(SEGMENTS, tables.u64(segment.id), rolled)
        return ended


def active_file(txn: ReadTransaction, segment: SegmentRecord) -> str | None:
    """The chunk file that the segment is being appended to, if there is one."""
    last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.length) if segment.active else None
    return chains.object_of(txn, last).name if last is not None else None


def unseal(metadata: MetadataStore, name: str) -> tuple[SegmentRecord, bool]:
    """Open a sealed segment again; an open one is success. Returns it, and whether it was sealed.

    Appends go on at its length in a new chunk; who wrote before the seal is fenced. The name gets a new
    inode, so that a file that was opened sealed never grows. Raises NotFound, IsDirectory, InvalidRequest
    for a ledger, and Conflict naming the successor of a segment that policy sealed.
    """
    with metadata.write() as txn:
        segment = directories.segment_by_name(txn, name)
        if not segment.sealed:
            return segment, False
        if segment.kind is not SegmentKind.BYTES:
            raise InvalidRequest(f"{names.printable(name)} is a ledger, and ledgers stay closed")
        _require_no_successor(txn, segment, name)
        opened = replace(
            directories.renew_inode(txn, segment),
            status=SegmentStatus.OPEN,
            successor_id=0,
            sealed_ms=0,
            writer_epoch=segment.writer_epoch + 1,
            generation=segment.generation + 1,
            changed_ms=txn.now_ms,
        )
        changes.put_segment(txn, opened)
        return opened, True


def _require_no_successor(txn: ReadTransaction, segment: SegmentRecord, name: str) -> None:
    """A stream that goes on elsewhere would fork. A successor that was deleted is none."""
    if segment.status is not SegmentStatus.SEALED_BY_POLICY or not segment.successor_id:
        return
    successor = directories.segment(txn, SegmentId(segment.successor_id))
    if successor is None:
        return
    path = names.printable(directories.path_of(txn, successor.parent_id, successor.name))
    raise Conflict(f"cannot unseal {names.printable(name)}: it goes on in {path}", remedy=f"append to {path}")


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
        ended = active_file(txn, segment)
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
    ended = active_file(txn, segment)
    following = streams.go_on(txn, segment)
    return None if following is None else (following, ended)
