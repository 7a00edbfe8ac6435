"""The commit of an adopted ledger: its segment, its entries, its objects and its offload context, or nothing.

Rows of entries may be too many for one commit. They are written before, under the id reserved for the segment; an
error removes them, and a crash in between leaves rows without a ledger, which tierfs check drops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from operator import eq

from tierfs.base.bytes.checksum import Stretch, joined
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import Conflict
from tierfs.base.words.names import printable
from tierfs.base.words.types import AttemptId, ByteRange, LocationId, ObjectId, SegmentId, SegmentKind, Tier
from tierfs.engine.metadata import (
    chains,
    changes,
    checksums,
    directories,
    empty_ledgers,
    entries,
    entries_object,
    policies,
)
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.ledger_records import EntryRun, OffloadProgress
from tierfs.engine.metadata.records import IntentRecord, LocationRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import INTENTS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import create, seal, sealed_record
from tierfs.tiering import objects
from tierfs.tiering.adoption.grow import other_segment
from tierfs.tiering.adoption.ledger_grow import LedgerGrowth, growth_of, objects_of
from tierfs.tiering.adoption.ledger_read import FoundLedger, FoundPart
from tierfs.tiering.adoption.ledger_standing import Standing, lacks_rows, linked_first, standing
from tierfs.tiering.adoption.plan import LedgerPlan
from tierfs.tiering.ledgers import copies
from tierfs.tiering.objects import ColdTier

# Name of the offload driver, if the objects do not name it.
DRIVER = "pulsar"

# Rows in one commit, and kept in memory: up to 262,144 entries, some 10 ms.
_RUNS_AT_ONCE = 64


@dataclass(slots=True)
class Rows:
    """The rows of one ledger while they are written to the store."""

    metadata: MetadataStore
    segment_id: SegmentId | None = None
    """None for a new ledger before its first rows are written."""
    wanted: bool = True
    """Whether the store lacks rows of it."""
    together: bool = False
    """Whether they are written in the commit of their bytes alone: readers count the rows of a ledger that exists."""
    pending: list[EntryRun] = field(default_factory=list)
    written: bool = False
    new: bool = field(init=False)
    """Whether the ledger does not exist yet."""

    def __post_init__(self) -> None:
        self.new = self.segment_id is None

    def take(self, run: EntryRun) -> None:
        """Take the next row."""
        if not self.wanted:
            return
        self.pending.append(run)
        if len(self.pending) == _RUNS_AT_ONCE and not self.together:
            with self.metadata.write() as txn:
                self.put(txn)

    def put(self, txn: WriteTransaction) -> SegmentId:
        """Write the pending rows; return the id of the ledger's segment."""
        if self.segment_id is None:
            self.segment_id = SegmentId(txn.allocate_id())
        if self.wanted and not self.written and not self.together:
            entries.remove(txn, self.segment_id)  # those of a ledger that lacks some
            self.written = True
        for run in self.pending:
            entries.put(txn, self.segment_id, run)
        self.pending.clear()
        return self.segment_id

    def take_back(self) -> None:
        """Remove the written rows of a ledger that will not be made."""
        if self.written and self.new and self.segment_id is not None:
            with self.metadata.write() as txn:
                if directories.segment(txn, self.segment_id) is None:
                    entries.remove(txn, self.segment_id)


class LedgerLinker:
    """Maker of ledgers from their content. Thread-safe."""

    def __init__(
        self, metadata: MetadataStore, place: LocationRecord, cold: ColdTier | None, *, owned: bool = False
    ) -> None:
        """Prepare for ledgers of one place.

        `cold`: our own tier, which gets a copy of the rows of entries; the journal does not carry them.

        `owned`: `place` is our own tier, and the objects are this store's.
        """
        self._owned = owned
        self._metadata = metadata
        self._place = place
        self._cold = cold

    def standing(self, plan: LedgerPlan) -> Standing:
        """See `standing`."""
        with self._metadata.read() as txn:
            return standing(txn, plan, self._place)

    @contextmanager
    def rows(self, plan: LedgerPlan) -> Iterator[Rows]:
        """Yield the writer of a ledger's rows while it is read; an error in the block removes the rows."""
        with self._metadata.read() as txn:
            entry = directories.find(txn, plan.name)
            rows = Rows(self._metadata)
            if entry is not None:  # rows in use by readers stay until they are known to be wrong
                segment = directories.segment_by_name(txn, plan.name)
                rows = Rows(self._metadata, segment.id, wanted=lacks_rows(txn, segment))
        try:
            yield rows
        except BaseException:
            rows.take_back()
            raise

    def link(self, plan: LedgerPlan, ledger: FoundLedger, rows: Rows) -> Standing:
        """Make the closed ledger, or take back its lost bytes; return its standing before.

        Raises as `standing`, Conflict if another process interfered, and errors of our cold tier.
        """
        with self._copied(plan, ledger, rows) as copy, self._metadata.write() as txn:
            before = standing(txn, plan, self._place)
            if before is Standing.ADOPTED:
                raise Conflict(f"{printable(plan.name)} was adopted meanwhile", remedy="adopt it again")
            segment_id = rows.put(txn)
            self._forget_intent(txn, plan, copy)
            if before is Standing.NEW:
                self._make(txn, plan, ledger, segment_id, "" if copy is None else copy.name)
            elif before is Standing.IN_DOUBT:
                _take_back(txn, plan, ledger)
                if not ledger.payload_bytes:
                    known = entries.find(txn, segment_id)
                    offload = self._completed(txn, segment_id, plan, ledger)
                    entries.put_ledger(txn, replace(known, offload=offload))
            else:
                raise Conflict(f"{printable(plan.name)} was changed meanwhile", remedy="adopt it again")
            return before

    def relink(self, plan: LedgerPlan, ledger: FoundLedger, rows: Rows) -> None:
        """Link a ledger to the objects of another attempt, which hold the same entries. One commit.

        Raises AlreadyExists for other entries, Conflict if another process interfered, and errors of our cold tier.
        """
        with self._copied(plan, ledger, rows) as copy, self._metadata.write() as txn:
            if standing(txn, plan, self._place) is not Standing.MOVED:
                raise Conflict(f"{printable(plan.name)} was changed meanwhile", remedy="adopt it again")
            segment = directories.segment_by_name(txn, plan.name)
            _require_same(txn, plan, segment, ledger, rows.pending)
            self._forget_intent(txn, plan, copy)
            # Their places in the objects of this attempt, whose blocks may be others.
            entries.remove(txn, segment.id)
            rows.put(txn)
            editor = Editor(txn, segment)
            # Not journaled: the links below cover them, and a replay puts a link in place of what it covers.
            editor.remove(Tier.COLD, list(chains.chunks(txn, segment.id, Tier.COLD)), due_ms=txn.now_ms)
            self._link_parts(txn, editor.segment, ledger, "" if copy is None else copy.name, grows=False)
            known = entries.find(txn, segment.id)
            entries.put_ledger(txn, replace(known, offload=self._completed(txn, segment.id, plan, ledger)))

    def rows_of(self, segment: SegmentRecord) -> Rows:
        """Return the writer of rows for what a ledger gained, or for the objects of another attempt."""
        return Rows(self._metadata, segment.id, together=True)

    def segment(self, plan: LedgerPlan) -> SegmentRecord:
        """Return the ledger as it is. Raises NotFound."""
        with self._metadata.read() as txn:
            return directories.segment_by_name(txn, plan.name)

    def linked_first(self, plan: LedgerPlan) -> LedgerPlan:
        """See `linked_first`."""
        with self._metadata.read() as txn:
            return linked_first(txn, plan)

    def growth(self, plan: LedgerPlan) -> LedgerGrowth | None:
        """See `growth_of`."""
        with self._metadata.read() as txn:
            return growth_of(txn, plan, self._place)

    def grow(self, growth: LedgerGrowth, ledger: FoundLedger, rows: Rows) -> None:
        """Link the new objects of a ledger with their rows, and close it if an index counts its entries. One commit.

        Raises as `growth_of`, Conflict if another process interfered, and errors of our cold tier.
        """
        plan = growth.plan
        with self._copied(plan, ledger, rows) as copy, self._metadata.write() as txn:
            whole = replace(plan, parts=(*growth.known, *plan.parts))
            if growth_of(txn, whole, self._place) != growth:
                raise Conflict(f"{printable(plan.name)} was changed meanwhile", remedy="adopt it again")
            rows.put(txn)
            self._forget_intent(txn, plan, copy)
            before = seal.opened(txn, growth.segment) if growth.segment.sealed else growth.segment
            newest_ms = max(before.modified_ms, plan.modified_ms)
            segment = replace(before, length=ledger.payload_bytes, modified_ms=newest_ms)
            self._link_parts(txn, segment, ledger, "" if copy is None else copy.name, grows=plan.grows)
            known = entries.find(txn, segment.id)
            entries.put_ledger(txn, replace(known, offload=_offload(plan, self._place, txn.now_ms)))

    def _forget_intent(self, txn: WriteTransaction, plan: LedgerPlan, copy: IntentRecord | None) -> None:
        if copy is not None and not txn.delete(INTENTS.name, copy.attempt.encode()):
            raise Conflict(f"{printable(plan.name)}: another process discarded its upload as that of an exited process")

    def _link_parts(
        self, txn: WriteTransaction, segment: SegmentRecord, ledger: FoundLedger, copy_name: str, *, grows: bool
    ) -> SegmentRecord:
        """Link objects to a ledger, and write it: open if it grows, else closed."""
        location = self._place if self._owned else policies.register_foreign(txn, self._place)
        editor = Editor(txn, replace(segment, grows_from=location.id if grows else 0))
        for number, part in enumerate(part for part in ledger.parts if part.length):
            record = _new_object(txn, segment.id, location.id, part, copy_name, foreign=not self._owned)
            editor.link_objects(
                [(ByteRange(part.payload_start, part.payload_start + part.length), record)],
                segment_first=bool(segment.cold.count) and not number,
            )
        if not grows:
            return sealed_record.write(txn, editor.segment)
        editor.put(journaled=True)
        return editor.segment

    @contextmanager
    def _copied(self, plan: LedgerPlan, ledger: FoundLedger, rows: Rows) -> Iterator[IntentRecord | None]:
        """Put a copy of the rows into our cold tier, if there is one; an error in the block makes the copy garbage."""
        if self._cold is None or not ledger.payload_bytes or not (rows.new or (rows.together and rows.pending)):
            yield None
            return
        self._cold.require_ours()
        with self._metadata.write() as txn:
            self._cold.require_place(txn)
            segment_id = rows.segment_id if rows.together and rows.segment_id else rows.put(txn)
            attempt = AttemptId(new_id())
            name = entries_object.object_name(segment_id, txn.store.store_epoch, attempt)
            intent = objects.intend(txn, attempt, self._cold.location_id, name, segment_id)
        try:
            runs = rows.pending if rows.together else None
            storage = self._cold.storage
            copies.put_copy(self._metadata, storage, segment_id, intent.name, plan.uuid, owned=False, runs=runs)
            yield intent
        except BaseException:
            objects.abandon_intent(self._metadata, intent)
            raise

    def _make(
        self, txn: WriteTransaction, plan: LedgerPlan, ledger: FoundLedger, segment_id: SegmentId, copy_name: str
    ) -> None:
        # The id was reserved for the first rows of entries.
        new = create.create(txn, plan.name, SegmentKind.LEDGER, segment_id)
        new = replace(new, length=ledger.payload_bytes, modified_ms=plan.modified_ms or txn.now_ms)
        segment = self._link_parts(txn, new, ledger, copy_name, grows=plan.grows)
        known = entries.find(txn, segment.id)
        entries.put_ledger(
            txn, replace(known, ledger_id=plan.ledger_id, offload=self._completed(txn, segment.id, plan, ledger))
        )

    def _completed(
        self, txn: WriteTransaction, segment_id: SegmentId, plan: LedgerPlan, ledger: FoundLedger
    ) -> OffloadProgress:
        """Return the context of an adopted ledger; it has the object of one to whose object no chunk refers."""
        offload = _offload(plan, self._place, txn.now_ms)
        if ledger.payload_bytes or len(ledger.parts) != 1:
            return offload
        if self._owned:
            stored_bytes = ledger.parts[0].part.data.length_bytes
            return replace(offload, driver_properties=empty_ledgers.own_properties(stored_bytes))
        place = policies.register_foreign(txn, self._place)
        empty = _described(segment_id, place.id, ledger.parts[0], "", foreign=True)
        return replace(offload, driver_properties={**offload.driver_properties, **empty_ledgers.properties(empty)})


def _require_same(
    txn: ReadTransaction, plan: LedgerPlan, segment: SegmentRecord, ledger: FoundLedger, rows: Sequence[EntryRun]
) -> None:
    """Raise AlreadyExists unless the objects of another attempt hold the entries that were adopted."""
    old, new = (chain.from_iterable(run.lengths for run in runs) for runs in (entries.runs(txn, segment.id), rows))
    same = (ledger.entries, ledger.payload_bytes) == (entries.find(txn, segment.id).entries, segment.length)
    held = sorted(objects_of(txn, segment), key=lambda record: record.payload_start)
    before = joined(Stretch(record.length, record.crc32c or 0) for record in held)
    after = joined(Stretch(part.length, part.crc32c) for part in ledger.parts)
    if not (same and all(map(eq, old, new)) and before == after):
        names = " and ".join(printable(part.data.name) for part in plan.parts)
        raise other_segment(plan.name, f"a ledger of other entries than those in {names}")


def _take_back(txn: WriteTransaction, plan: LedgerPlan, ledger: FoundLedger) -> None:
    """Mark all bytes good again after all were read. Raises AlreadyExists if any differ from the adopted ones."""
    segment = directories.segment_by_name(txn, plan.name)
    known = entries.find(txn, segment.id)
    records = {record.name: record for record in objects_of(txn, segment)}
    parts = {part.part.data.name: part for part in ledger.parts if part.length}
    if (ledger.entries, ledger.payload_bytes) != (known.entries, segment.length) or records.keys() != parts.keys():
        raise other_segment(plan.name, "a ledger of other entries")
    for name, record in records.items():
        if record.crc32c != parts[name].crc32c:
            raise other_segment(plan.name, f"a ledger of other bytes: {printable(name)} has changed")
        if record.etag != parts[name].part.data.etag:
            changes.put(txn, OBJECTS, replace(record, etag=parts[name].part.data.etag))
    Editor(txn, segment).restore_cold(ByteRange(0, segment.length)).put(journaled=True)


def _new_object(
    txn: WriteTransaction,
    segment_id: SegmentId,
    location_id: LocationId,
    part: FoundPart,
    copy_name: str,
    *,
    foreign: bool,
) -> ObjectRecord:
    described = _described(segment_id, location_id, part, copy_name, foreign=foreign)
    record = replace(
        described,
        id=ObjectId(txn.allocate_id()),
        store_epoch=txn.store.store_epoch,
        created_ms=txn.now_ms,
    )
    checksums.put_grid(txn, record.id, part.grid)
    return record


def _described(
    segment_id: SegmentId, location_id: LocationId, part: FoundPart, copy_name: str, *, foreign: bool
) -> ObjectRecord:
    data, index = part.part.data, part.part.index
    return ObjectRecord(
        id=ObjectId(0),
        tier=Tier.COLD,
        location_id=location_id,
        name=data.name,
        length=part.length,
        etag=data.etag,
        foreign=foreign,
        crc32c=part.crc32c,
        modified_ms=data.modified_ms if foreign else 0,
        encoding=part.encoding,
        stored_length=data.length_bytes,
        segment_id=segment_id,
        payload_start=part.payload_start,
        index_name="" if index is None else index.name,
        entries_name=copy_name,
    )


def _offload(plan: LedgerPlan, place: LocationRecord, now_ms: int) -> OffloadProgress:
    """Return the offload context as Pulsar would record it: complete, by its offloader, and without another copy."""
    scheme, _, path = place.url.partition("://")
    bucket, _, prefix = path.partition("/")
    properties = {"bucket": bucket, "prefix": prefix} if path else {"storageBasePath": scheme.partition(":")[2]}
    begun = OffloadProgress.begun(plan.uuid, DRIVER, {key: value for key, value in properties.items() if value})
    return replace(begun, complete=True, local_deleted=True, timestamp_ms=plan.modified_ms or now_ms)
