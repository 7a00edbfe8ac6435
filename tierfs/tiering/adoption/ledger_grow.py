"""What a ledger gained since it was adopted: further objects of Pulsar's streaming form.

In this form Pulsar offloads a ledger while it is written, one object after the other; before it closes the ledger, no
index says how many entries there are. Such a ledger is adopted open, and grows from its place, as RocketMQ's queues do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.names import printable
from tierfs.base.words.types import EntryKind, SegmentId, SegmentKind, Tier
from tierfs.engine.metadata import chains, directories, entries, policies, tables
from tierfs.engine.metadata.records import LocationRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.adoption.grow import other_segment
from tierfs.tiering.adoption.plan import LedgerPart, LedgerPlan


@dataclass(frozen=True, slots=True)
class LedgerGrowth:
    """The objects that make a ledger what its place holds now."""

    plan: LedgerPlan
    """Of the new objects alone; there may be none."""
    known: tuple[LedgerPart, ...]
    """The objects that are linked."""
    segment: SegmentRecord
    """As it is: open, or closed because it seemed complete."""
    entries: int
    """Number of entries as it is."""

    @property
    def nothing(self) -> bool:
        """Whether the ledger is what its place holds."""
        return not self.plan.parts


def growth_of(txn: ReadTransaction, plan: LedgerPlan, place: LocationRecord) -> LedgerGrowth | None:
    """Return what adopting `plan` adds to a ledger; None for a closed one that gained nothing, and for other names.

    Raises AlreadyExists when objects of a ledger that grows are gone, changed, or hold the same entries as others.
    """
    entry = directories.find(txn, plan.name)
    is_segment = entry is not None and entry.kind is EntryKind.SEGMENT
    segment = directories.segment(txn, SegmentId(entry.id)) if entry is not None and is_segment else None
    if segment is None or segment.kind is not SegmentKind.LEDGER or not (segment.sealed or segment.grows_from):
        return None
    linked = {record.name: record for record in objects_of(txn, segment)}
    etags = {part.data.name: part.data.etag for part in plan.parts}
    other = next((name for name, record in linked.items() if not _is_there(txn, record, etags, place)), None)
    count = entries.count(txn, segment.id)
    # One with empty entries alone has no bytes to link.
    new = tuple(part for part in plan.parts if part.data.name not in linked and part.first_entry_id >= count)
    new = () if plan.entries == count else new
    if segment.sealed and (other is not None or not new):
        return None
    if other is not None:
        raise other_segment(plan.name, f"made of other objects: {printable(other)} is missing or has changed")
    last = plan.parts[-1]
    if not new and last.uuid != entries.find(txn, segment.id).offload.uuid:
        held = f"already has entry {last.first_entry_id}, the first of {printable(last.data.name)}"
        raise other_segment(plan.name, f"a ledger that {held}")
    added = {part.data.name for part in new}
    known = tuple(part for part in plan.parts if part.data.name not in added)
    return LedgerGrowth(replace(plan, parts=new), known, segment, count)


def _is_there(
    txn: ReadTransaction, record: ObjectRecord, etags: Mapping[str, str | None], place: LocationRecord
) -> bool:
    same = policies.same_place(policies.location(txn, record.location_id), place)
    return record.foreign and same and record.name in etags and etags[record.name] == record.etag


def objects_of(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ObjectRecord]:
    """Yield the records of a ledger's objects that are there, in the order of their bytes."""
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        record = txn.get(OBJECTS, tables.u64(chunk.object_id))
        if record is not None:
            yield record
