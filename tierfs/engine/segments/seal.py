"""Seal and unseal a segment, roll its active chunk, and move a writer to the successor of a segment policy sealed.

An unsealed segment accepts bytes again, under the same name as a new file. A successor belongs to the living writer of
the segment before it until its first append, so that no second process can slip in between the commit that seals and
the writer that moves.
"""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, Fenced, InvalidRequest, NotFound, Sealed
from tierfs.base.words.types import SegmentId, SegmentKind, SegmentStatus, Tier
from tierfs.engine.metadata import chains, changes, directories, policies, tables
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import ownership, sealed_record, streams
from tierfs.engine.segments.writer_locks import WriterLocks


def seal(metadata: MetadataStore, writer_locks: WriterLocks, name: str) -> tuple[SegmentRecord, str | None]:
    """Seal a segment for good; idempotent. Return it and the chunk file that ended.

    Of a stream, the newest member is sealed, whichever member `name` names. Earlier writers are fenced. Raises
    NotFound, or Conflict naming a live writer.
    """
    with metadata.write() as txn:
        segment = streams.newest(txn, directories.segment_by_name(txn, name))
        if segment.status is SegmentStatus.SEALED:
            return segment, None
        fenced = ownership.fence(txn, segment, writer_locks)
        return sealed_record.write(txn, fenced), active_file(txn, segment)


def roll(metadata: MetadataStore, segment_id: SegmentId) -> str | None:
    """End the active chunk at the committed length; return its file, or None when there was none.

    A live writer continues: its next commit finds the chunk ended, and it writes the bytes again to a new one.
    Idempotent.
    """
    with metadata.write() as txn:
        segment = directories.segment(txn, segment_id)
        return None if segment is None else end_chunk(txn, segment)


def end_chunk(txn: WriteTransaction, segment: SegmentRecord) -> str | None:
    """Do as `roll` in a transaction."""
    ended = active_file(txn, segment)
    if segment.active:
        _roll(txn, segment)
    return ended


def end_local_only(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """End the active chunk if it has bytes that only the local disk acknowledged, so that they are offloaded now.

    Replicas show the bytes up to the first missing one: they would show no later append until the chunk ends.
    """
    return _roll(txn, segment) if segment.active and not _ends_cold(txn, segment) else segment


def _roll(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    rolled = replace(segment, active=False, resumable=False, generation=segment.generation + 1)
    txn.put(SEGMENTS, tables.u64(segment.id), rolled)
    return rolled


def _ends_cold(txn: ReadTransaction, segment: SegmentRecord) -> bool:
    """Return whether the cold tier has the last byte: then it has the active chunk, as each chunk ends here if not."""
    last = chains.chunk_at(txn, segment.id, Tier.COLD, segment.length) if segment.cold.count else None
    return last is not None and last.end_offset >= segment.length


def active_file(txn: ReadTransaction, segment: SegmentRecord) -> str | None:
    """Return the name of the segment's active chunk file, or None."""
    last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.length) if segment.active else None
    return chains.object_of(txn, last).name if last is not None else None


def unseal(metadata: MetadataStore, name: str) -> tuple[SegmentRecord, bool]:
    """Open a sealed segment again; idempotent. Return it, and whether it was sealed.

    Appends continue at its length in a new chunk; writers from before the seal are fenced. The name gets a new
    inode, so that a file opened sealed never grows. Raises NotFound, IsDirectory, InvalidRequest for a ledger,
    and Conflict naming the successor of a segment that policy sealed.
    """
    with metadata.write() as txn:
        segment = directories.segment_by_name(txn, name)
        if not segment.sealed:
            return segment, False
        if segment.kind is not SegmentKind.BYTES:
            raise InvalidRequest(f"{names.printable(name)} is a ledger, and ledgers stay closed")
        _require_no_successor(txn, segment, name)
        open_again = opened(txn, segment)
        changes.put_segment(txn, open_again)
        return open_again, True


def opened(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Return a sealed segment as one that accepts bytes, with a new inode; the caller writes it."""
    renewed = directories.renew_inode(txn, segment)
    return replace(
        renewed,
        status=SegmentStatus.OPEN,
        successor_id=0,
        sealed_ms=0,
        unsealed_id=renewed.inode,
        writer_epoch=segment.writer_epoch + 1,
        generation=segment.generation + 1,
        changed_ms=txn.now_ms,
    )


def _require_no_successor(txn: ReadTransaction, segment: SegmentRecord, name: str) -> None:
    """Raise Conflict if the segment has a successor: the stream would fork. A deleted successor does not count."""
    if segment.status is not SegmentStatus.SEALED_BY_POLICY or not segment.successor_id:
        return
    successor = directories.segment(txn, SegmentId(segment.successor_id))
    if successor is None:
        return
    path = names.printable(directories.path_of(txn, successor.parent_id, successor.name))
    raise Conflict(f"cannot unseal {names.printable(name)}: it continues in {path}", remedy=f"append to {path}")


@dataclass(frozen=True, slots=True)
class Moved:
    """The successor a writer continues in."""

    segment: SegmentRecord
    policy: Policy
    ended: str | None
    """The chunk file of the old segment that the move ended."""


def move(
    txn: WriteTransaction, writer_locks: WriterLocks, segment_id: SegmentId, epoch: int, name: str
) -> Moved | None:
    """Make the writer of a segment the writer of its successor, sealing the segment by policy if still open.

    Return None if the segment cannot be continued: it then stays open. Raises NotFound, Sealed or Fenced when this
    writer may no longer write. The caller releases the new lock if the transaction fails, and the old one if it
    succeeds.
    """
    segment = directories.living_segment(txn, segment_id)
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
            remedy="stop this writer; its acknowledged appends stay",
        )
    registered = ownership.register(txn, following, writer_locks, take_over=False)
    return Moved(registered, policies.effective(txn, registered), ended)


def end_if_due(
    txn: WriteTransaction, writer_locks: WriterLocks, segment_id: SegmentId, *, now_ms: int
) -> tuple[SegmentRecord, str | None] | None:
    """Seal a segment if it is long or old enough by policy; return its successor and the chunk file that ended.

    A segment that is only long is left to a living writer in another process: the writer moves to the successor at
    its next append, and an ingested file stays one segment. The writer of an old one follows by itself.
    """
    segment = directories.living_segment(txn, segment_id)
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
