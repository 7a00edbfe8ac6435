"""How far the offload of ledgers is, as `tierfs ledger status` tells it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from tierfs import names
from tierfs.metadata import directories
from tierfs.metadata.ledger_records import LedgerRecord
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import INTENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.segments import positions
from tierfs.segments.positions import Member, Position
from tierfs.types import SegmentId


class OffloadState(StrEnum):
    """Of one ledger."""

    NONE = "none"
    IN_PROGRESS = "in progress"
    FAILED = "failed"
    """The last attempt did not complete, and nobody is at it; the next one deletes what it left."""
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """One ledger of a managed ledger; times are milliseconds, 0 for never."""

    segment: str
    ledger_id: int
    state: str
    """`open` or `closed`."""
    entries: int
    bytes: int
    local_bytes: int
    closed_ms: int
    offload: OffloadState
    uuid: str | None
    """Of the newest attempt."""
    offloaded_ms: int
    local_deleted: bool


@dataclass(frozen=True, slots=True)
class ManagedStatus:
    """A managed ledger at one instant."""

    managed_ledger: str
    terminated: bool
    ledgers: tuple[LedgerStatus, ...]
    entries: int
    bytes: int
    local_bytes: int
    offloaded_bytes: int
    not_offloaded_bytes: int
    next_to_offload: str | None
    """Position of the first entry of a closed ledger that is not offloaded; None when there is no such ledger."""


def being_offloaded(txn: ReadTransaction) -> set[SegmentId]:
    """Segments of which an object is being made."""
    return {intent.segment_id for _, intent in txn.scan(INTENTS)}


def offload_state(known: LedgerRecord, in_progress: Collection[SegmentId]) -> OffloadState:
    """How far a ledger is; `in_progress`: see being_offloaded."""
    if known.offload.complete:
        return OffloadState.COMPLETE
    if known.offload.uuid is None:
        return OffloadState.NONE
    return OffloadState.IN_PROGRESS if SegmentId(known.segment_id) in in_progress else OffloadState.FAILED


def is_local_deleted(segment: SegmentRecord, known: LedgerRecord) -> bool:
    """Whether only the cold form is left; a store that was recovered has lost the local one without a word."""
    return known.offload.complete and (known.offload.local_deleted or not segment.local.count)


def status(txn: ReadTransaction, path: str) -> ManagedStatus:
    """Of a managed ledger. Raises NotFound, InvalidRequest for a segment."""
    directory_id = positions.directory_of(txn, path)
    found = positions.members(txn, directory_id)
    in_progress = being_offloaded(txn)
    waiting = (one for one in found if one.segment.sealed and one.segment.length and not one.segment.whole_in_cold)
    following = next(waiting, None)
    offloaded = sum(one.segment.length for one in found if one.segment.whole_in_cold)
    total = sum(one.segment.length for one in found)
    name = names.join(names.split(path))
    return ManagedStatus(
        managed_ledger=name,
        terminated=directories.directory(txn, directory_id).terminated,
        ledgers=tuple(_of(member, name, in_progress) for member in found),
        entries=sum(one.entries for one in found),
        bytes=total,
        local_bytes=sum(one.segment.local.bytes for one in found),
        offloaded_bytes=offloaded,
        not_offloaded_bytes=total - offloaded,
        next_to_offload=None if following is None else str(Position(following.ledger_id, 0)),
    )


def _of(member: Member, managed_ledger: str, in_progress: Collection[SegmentId]) -> LedgerStatus:
    segment, offload = member.segment, member.known.offload
    return LedgerStatus(
        segment=names.join((*names.split(managed_ledger), segment.name)),
        ledger_id=member.ledger_id,
        state="closed" if segment.sealed else "open",
        entries=member.entries,
        bytes=segment.length,
        local_bytes=segment.local.bytes,
        closed_ms=segment.sealed_ms,
        offload=offload_state(member.known, in_progress),
        uuid=None if offload.uuid is None else str(offload.uuid),
        offloaded_ms=offload.timestamp_ms if offload.complete else 0,
        local_deleted=is_local_deleted(segment, member.known),
    )
