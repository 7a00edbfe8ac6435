"""What a store already has of a ledger that is to be adopted. Reads rows alone."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from tierfs.base.words.types import ChunkState, EntryKind, SegmentId, SegmentKind, Tier
from tierfs.engine.metadata import chains, directories, empty_ledgers, entries, policies
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.adoption.grow import other_segment, segment_of
from tierfs.tiering.adoption.ledger_grow import objects_of
from tierfs.tiering.adoption.plan import LedgerPlan


class Standing(Enum):
    """State in the store of a segment to be adopted."""

    NEW = "new"
    ADOPTED = "adopted"
    IN_DOUBT = "in doubt"
    """Adopted, but bytes of it were recorded as lost or suspect since then, or its objects have other etags."""
    MOVED = "moved"
    """Adopted, from objects of its place that are not those of the plan: another attempt's, which are gone."""


def standing(txn: ReadTransaction, plan: LedgerPlan, place: LocationRecord) -> Standing:
    """Return whether the ledger exists already, made of the same objects.

    Raises AlreadyExists when its name stands for anything else, NotDirectory when it runs through a segment.
    """
    entry = directories.find(txn, plan.name)
    if entry is None:
        return Standing.NEW
    segment = directories.segment(txn, SegmentId(entry.id)) if entry.kind is EntryKind.SEGMENT else None
    if segment is None:
        raise other_segment(plan.name, "a directory")
    other = _other(txn, segment, place)
    if other is not None:
        raise other_segment(plan.name, other)
    if not _is_made_of(txn, segment, plan):
        return Standing.MOVED
    return Standing.IN_DOUBT if _in_doubt(txn, segment, plan) else Standing.ADOPTED


def _other(txn: ReadTransaction, segment: SegmentRecord, place: LocationRecord) -> str | None:
    """Return what a segment is that was not adopted from the place as a closed ledger; None for one that was."""
    if segment.kind is not SegmentKind.LEDGER:
        return "a segment that is not a ledger"
    offload = entries.find(txn, segment.id).offload
    if not segment.sealed or segment.local.count or not offload.complete:
        return segment_of(txn, None, place)
    for record in objects_of(txn, segment):
        if not (record.foreign and policies.same_place(policies.location(txn, record.location_id), place)):
            return segment_of(txn, record, place)
    return None


def _is_made_of(txn: ReadTransaction, segment: SegmentRecord, plan: LedgerPlan) -> bool:
    """Return whether the objects of an adopted ledger are those of one attempt."""
    linked = {record.name for record in objects_of(txn, segment)}
    return linked <= {part.data.name for part in plan.parts} and entries.find(txn, segment.id).offload.uuid == plan.uuid


def linked_first(txn: ReadTransaction, plan: LedgerPlan) -> LedgerPlan:
    """Return a plan with the attempt first that the ledger was adopted from, if all of its objects are there."""
    entry = directories.find(txn, plan.name)
    is_segment = entry is not None and entry.kind is EntryKind.SEGMENT
    segment = directories.segment(txn, SegmentId(entry.id)) if entry is not None and is_segment else None
    if segment is None or segment.kind is not SegmentKind.LEDGER:
        return plan
    linked = {record.name for record in objects_of(txn, segment)}
    uuid = entries.find(txn, segment.id).offload.uuid
    for attempt in plan.attempts:
        names = {part.data.name for part in attempt.parts}
        if linked <= names and (linked or attempt.uuid == uuid):
            return replace(attempt, others=tuple(other for other in plan.attempts if other != attempt))
    return plan


def _in_doubt(txn: ReadTransaction, segment: SegmentRecord, plan: LedgerPlan) -> bool:
    """Return whether bytes are lost or suspect, the objects have other etags, or rows of entries are missing."""
    if lacks_rows(txn, segment) or _lacks_objects(txn, segment, plan):
        return True
    etags = {part.data.name: part.data.etag for part in plan.parts}
    changed = any(record.etag != etags[record.name] for record in objects_of(txn, segment))
    return changed or any(chunk.state is not ChunkState.GOOD for chunk in chains.chunks(txn, segment.id, Tier.COLD))


def _lacks_objects(txn: ReadTransaction, segment: SegmentRecord, plan: LedgerPlan) -> bool:
    """Return whether the objects of a ledger without bytes are others than recorded, or not recorded."""
    if segment.length or segment.cold.count or len(plan.parts) != 1:
        return False
    known, data = empty_ledgers.find(txn, entries.find(txn, segment.id)), plan.parts[0].data
    return known is None or (known.etag, known.stored_bytes) != (data.etag, data.length_bytes)


def lacks_rows(txn: ReadTransaction, segment: SegmentRecord) -> bool:
    """Return whether rows of entries are missing, or do not end where the segment does."""
    known = entries.find(txn, segment.id)
    return entries.count(txn, segment.id) != known.entries or entries.end(txn, segment.id) != segment.length
