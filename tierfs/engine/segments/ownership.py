"""Ownership of a segment: register as its writer, and fence the previous one (invariant 7).

A writer is alive while it has its lock (`writer_locks`).
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, Fenced, NotFound, Sealed, TierfsError
from tierfs.base.words.types import SegmentId, SegmentKind, SegmentStatus
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.record_parts import WriterInfo
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import LOCATIONS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments.writer_locks import WriterLocks

_COMMAND_CHARACTERS = 120


class StaleBase(TierfsError):
    """Internal: an earlier change failed or the segment moved; the bytes must be written again."""


class Continued(StaleBase):
    """Internal: policy sealed the segment; its writer continues in the successor."""


def register(
    txn: WriteTransaction, segment: SegmentRecord, writer_locks: WriterLocks, *, take_over: bool
) -> SegmentRecord:
    """Make this process the writer, in the next epoch, so that every earlier writer is fenced.

    The chunk of a writer that closed cleanly continues; that of a dead or replaced one ends at the committed
    length. Raises Conflict naming a live writer unless `take_over`. Holds the lock of the new epoch; the caller
    releases it if the transaction fails, and the old epoch's if it succeeds. Raises Conflict for a segment that grows
    from a foreign layout.
    """
    require_own_growth(txn, segment)
    awaited = _writer_on_its_way(txn, segment, writer_locks)
    if awaited is not None and not take_over:
        raise live_writer_conflict(txn, awaited)
    held = writer_locks.try_lock(segment.id, segment.writer_epoch)
    if not held and not take_over:
        raise live_writer_conflict(txn, segment)
    epoch = segment.writer_epoch + 1
    if not writer_locks.try_lock(segment.id, epoch):
        raise live_writer_conflict(txn, segment)
    registered = replace(
        segment,
        writer_epoch=epoch,
        writer=_this_process(txn.now_ms),
        active=segment.active and segment.resumable and held,
        resumable=False,
    )
    txn.put(SEGMENTS, tables.u64(segment.id), registered)
    return registered


def require_own_growth(txn: ReadTransaction, segment: SegmentRecord) -> None:
    """Raise Conflict for a segment that grows from a foreign layout: bytes appended here would be in its way."""
    if segment.grows_from and not segment.sealed:
        place = txn.get(LOCATIONS, tables.u32(segment.grows_from))
        name = directories.full_name(txn, segment)
        where = "a foreign place" if place is None else names.printable(place.url)
        # A closed ledger stays closed; the next entry of its managed ledger begins another.
        ends = "seal it" if segment.kind is SegmentKind.LEDGER else "seal and tierfs unseal it"
        raise Conflict(
            f"segment {name} follows {where} and does not accept local appends",
            remedy=f"to stop following: tierfs adopt --stop its place, tierfs {ends}",
        )


def fence(txn: WriteTransaction, segment: SegmentRecord, writer_locks: WriterLocks) -> SegmentRecord:
    """Fence earlier writers without becoming one; raises Conflict while another process writes."""
    require_no_writer_elsewhere(txn, segment, writer_locks)
    return replace(segment, writer_epoch=segment.writer_epoch + 1, active=False, resumable=False)


def require_no_writer_elsewhere(txn: ReadTransaction, segment: SegmentRecord, writer_locks: WriterLocks) -> None:
    """Raise Conflict while another process writes the segment."""
    if writer_locks.is_alive_elsewhere(segment.id, segment.writer_epoch):
        raise live_writer_conflict(txn, segment)
    awaited = _writer_on_its_way(txn, segment, writer_locks)
    if awaited is not None:
        raise live_writer_conflict(txn, awaited)


def require_current(txn: ReadTransaction, segment_id: SegmentId, epoch: int, name: str) -> SegmentRecord:
    """Return the record of a segment this process writes.

    Raises NotFound, Fenced or Sealed if it may no longer write it, Continued if it continues in the successor.
    """
    segment = directories.living_segment(txn, segment_id)
    if segment is None:
        raise NotFound(f"segment {names.printable(name)} was deleted")
    if segment.sealed and segment.status is not SegmentStatus.SEALED_BY_POLICY:
        raise Sealed(f"segment {names.printable(name)} is sealed")
    if segment.writer_epoch != epoch:
        raise Fenced(
            f"segment {names.printable(name)} was taken over by {segment.writer}",
            remedy="stop this writer; its acknowledged appends stay",
        )
    if segment.sealed:
        raise Continued(f"segment {names.printable(name)} continues in its successor")
    return segment


def _writer_on_its_way(txn: ReadTransaction, segment: SegmentRecord, writer_locks: WriterLocks) -> SegmentRecord | None:
    """Return the predecessor if its writer, in another living process, has yet to move to this segment."""
    if segment.writer_epoch or not segment.predecessor_id:
        return None
    before = directories.segment(txn, SegmentId(segment.predecessor_id))
    if before is None or not writer_locks.is_alive_elsewhere(before.id, before.writer_epoch):
        return None
    return before


def live_writer_conflict(txn: ReadTransaction, segment: SegmentRecord) -> Conflict:
    """Return the error that names the segment's writer."""
    verb = "ledger append" if segment.kind is SegmentKind.LEDGER else "append"
    path = directories.path_of(txn, segment.parent_id, segment.name)
    return Conflict(
        f"segment {names.printable(path)} is being written by {segment.writer}",
        remedy=f"wait for it, or take over with: tierfs {verb} --take-over {names.as_word(path)}",
    )


def own_writer_conflict(segment: SegmentRecord) -> Conflict:
    """Return the error of a second writer in one process."""
    return Conflict(
        f"segment {names.printable(segment.name)} is being written in this process",
        remedy="append through that writer, close it first, or replace it with take_over",
    )


def _this_process(now_ms: int) -> WriterInfo:
    # Arguments are bytes: of a path that is not valid UTF-8, the record can only keep what people see.
    command = names.printable(" ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]))[:_COMMAND_CHARACTERS]
    return WriterInfo(pid=os.getpid(), host=os.uname().nodename, command=command, since_ms=now_ms)
