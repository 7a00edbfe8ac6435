"""Who may write a segment: registering as its writer, and fencing the one before (invariant 7)."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace

from tierfs import names
from tierfs.errors import Conflict, Fenced, NotFound, Sealed
from tierfs.metadata import directories, keys
from tierfs.metadata.records import SegmentRecord, WriterInfo
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.segments.writer_locks import WriterLocks
from tierfs.types import SegmentId, SegmentStatus

_COMMAND_CHARACTERS = 120


def register(
    txn: WriteTransaction, segment: SegmentRecord, writer_locks: WriterLocks, *, take_over: bool
) -> SegmentRecord:
    """Make this process the writer: one epoch further, so that every earlier writer is fenced.

    The chunk of a writer that closed cleanly goes on; the chunk of a dead or robbed one ends at the
    committed length. Raises Conflict naming a live writer unless `take_over`. Holds the lock of the
    new epoch; the caller releases it if the transaction fails, and the old epoch's when it succeeded.
    """
    held = writer_locks.try_lock(segment.id, segment.writer_epoch)
    if not held and not take_over:
        raise live_writer_conflict(segment)
    epoch = segment.writer_epoch + 1
    if not writer_locks.try_lock(segment.id, epoch):
        raise live_writer_conflict(segment)
    registered = replace(
        segment,
        writer_epoch=epoch,
        writer=_this_process(txn.now_ms),
        active=segment.active and segment.resumable and held,
        resumable=False,
    )
    txn.put(SEGMENTS, keys.u64(segment.id), registered)
    return registered


def fence(txn: WriteTransaction, segment: SegmentRecord, writer_locks: WriterLocks) -> SegmentRecord:
    """End whoever wrote before without becoming a writer; raises Conflict while another process writes."""
    require_no_writer_elsewhere(segment, writer_locks)
    return replace(segment, writer_epoch=segment.writer_epoch + 1, active=False, resumable=False)


def require_no_writer_elsewhere(segment: SegmentRecord, writer_locks: WriterLocks) -> None:
    """Raise Conflict while another process writes the segment."""
    if writer_locks.is_alive_elsewhere(segment.id, segment.writer_epoch):
        raise live_writer_conflict(segment)


def require_current(txn: ReadTransaction, segment_id: SegmentId, epoch: int, name: str) -> SegmentRecord:
    """The record of a segment this process writes. Raises NotFound, Fenced or Sealed when it no longer does."""
    segment = directories.segment(txn, segment_id)
    if segment is None or segment.status is SegmentStatus.DELETED:
        raise NotFound(f"segment {names.printable(name)} was deleted")
    if segment.sealed:
        raise Sealed(f"segment {names.printable(name)} is sealed")
    if segment.writer_epoch != epoch:
        raise Fenced(
            f"segment {names.printable(name)} was taken over by {describe_writer(segment)}",
            remedy="stop this writer; what it was told is written stays written",
        )
    return segment


def live_writer_conflict(segment: SegmentRecord) -> Conflict:
    """The error that names who writes."""
    return Conflict(
        f"segment {names.printable(segment.name)} is being written by {describe_writer(segment)}",
        remedy="wait for it, or take over with: tierfs append --take-over",
    )


def describe_writer(segment: SegmentRecord) -> str:
    """The newest writer in words."""
    writer = segment.writer
    if not writer.pid:
        return "an unknown process"
    return f"process {writer.pid} on {writer.host} ({names.printable(writer.command)})"


def _this_process(now_ms: int) -> WriterInfo:
    command = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:_COMMAND_CHARACTERS]
    return WriterInfo(pid=os.getpid(), host=socket.gethostname(), command=command, since_ms=now_ms)
