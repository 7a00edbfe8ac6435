"""Checks the bucket's objects: one listing against the cold objects, and a stat of each object it does not show."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.errors import NotFound, PermissionDenied, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.object_names import is_about_job
from tierfs.base.words.types import LocationId, SegmentId, Tier
from tierfs.base.words.units import count
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import archive_place, tables
from tierfs.engine.metadata.message_rows import message, messages
from tierfs.engine.metadata.record_parts import may_have_length
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, INTENTS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.garbage.orphans import chunk_objects
from tierfs.tiering.ledgers.owners import companions, has_ledgers, is_of_ledger, ledger_objects, uuid_of
from tierfs.tiering.objects import JOBS_PREFIX
from tierfs.upkeep.check.changed_objects import Changed, ChangedObjects
from tierfs.upkeep.check.findings import UNREACHABLE, Finding, FindingPlace, Kind, Mend, Severity
from tierfs.upkeep.check.object_table import NamesIndex, ObjectTable
from tierfs.upkeep.check.places import Places
from tierfs.upkeep.check.repair.checksums import Located, locate
from tierfs.upkeep.check.scrub.copy_reader import Fault
from tierfs.upkeep.check.segments import segment_name
from tierfs.upkeep.check.unchunked import Defect, defect, unchunked

_T = TypeVar("_T")

# Objects compared in one short snapshot: a page of S3.
_BATCH = 1000

_LOOKS_IN_PARALLEL = 8

# An object younger than this may belong to a running upload, so it is not an orphan yet.
_YOUNG_MS = 3600 * 1000


@dataclass(slots=True)
class BucketTotals:
    """Counts of the listing."""

    listed: int = 0
    looked_at: int = 0
    unnamed: int = 0
    unnamed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Bad:
    """An object that differs from its record."""

    location_id: LocationId
    difference: str | None = None
    """None if it is missing."""


class BucketCheck:
    """Compares the objects of one snapshot with what their locations have now."""

    def __init__(
        self,
        metadata: MetadataStore,
        storage_of: Callable[[LocationId], ChunkStorage],
        location_id: LocationId | None,
        table: ObjectTable,
        changed: ChangedObjects | None = None,
        places: Places | None = None,
        report: OnProgress = unseen,
    ) -> None:
        """Prepare; `location_id`: the store's own location, None where it has none.

        `changed` judges objects with other etags; by default some blocks are read and nothing is adopted.
        """
        self._metadata = metadata
        self._storage_of = storage_of
        self._location_id = location_id
        self._table = table
        self._seen = bytearray(len(table.ids))
        self._places = places or Places(metadata, storage_of)
        self._bad: dict[int, _Bad] = {}
        self._silent: dict[LocationId, str] = {}
        self._away: dict[LocationId, str] = {}
        """Why the archive place is not looked at."""
        self._changed = changed or ChangedObjects(metadata, storage_of)
        self._report = report
        self._waiting: list[tuple[int, StoredObject]] = []
        """Ids of objects whose etag differs, not yet judged."""
        self._unchunked: dict[SegmentId, tuple[ObjectRecord, Defect]] = {}
        """Ledgers whose objects have no chunk, with what is wrong with these."""
        self.totals = BucketTotals()

    def run(self) -> Iterator[Finding]:
        """Yield everything that is wrong; an unreachable place is one finding. Raises what the storage raises."""
        beside = {} if self._location_id is None else self._look_at_listings(self._storage_of(self._location_id))
        self._look_at_archive()
        self._look_at_the_rest()
        self._look_at_unchunked()
        missing = {bad.location_id for bad in self._bad.values() if bad.difference is None}
        missing |= {record.location_id for record, _ in self._unchunked.values()}
        away = {place: why for place in missing if (why := self._places.away(place)) is not None} | self._away
        yield from (unreachable(place, why) for place, why in away.items())
        yield from self._located({number for number, bad in self._bad.items() if bad.location_id not in away})
        with self._metadata.read() as txn:
            yield from _without_chunks(txn, self._unchunked, away)
        if self._location_id not in away:
            yield from (_companion(name, record) for name, record in sorted(beside.items()))
        for location_id, error in self._silent.items():
            yield Finding(Kind.UNCHECKED, Severity.NOTE, f"location {location_id}", f"not responding: {error}")
        if self._changed.objects:
            yield Finding(Kind.ETAGS, Severity.NOTE, "bucket", self._changed.summary)
        if self.totals.unnamed:
            text = f"{count(self.totals.unnamed, 'unreferenced object')} of {self.totals.unnamed_bytes} bytes"
            yield Finding(Kind.OBJECT_ORPHANS, Severity.NOTE, "bucket", text, remedy="list them with: tierfs gc")

    def _look_at_listings(self, storage: ChunkStorage) -> dict[str, ObjectRecord]:
        """Compare the listings of the store's own place; return the objects beside those of ledgers that they lack."""
        known, beside = self._named_otherwise(), self._companions()
        with self._metadata.read() as txn:
            expected = has_ledgers(txn)
        listings = (chunk_objects(storage), ledger_objects(storage, expected=expected), storage.list(JOBS_PREFIX))
        meter = Meter(self._report, total_items=len(self._table.names[Tier.COLD]), noun="cold object")
        for batch in _batches(meter.each(chain.from_iterable(listings), lambda listed: listed.name)):
            for listed in batch:
                beside.pop(listed.name, None)
            self._compare(batch, known, self._location_id)
            self._judge_changed()
        return beside

    def _look_at_archive(self) -> None:
        """Compare the listing of the archive place, if it is proved; else its objects are not looked at."""
        with self._metadata.read() as txn:
            archive_id = archive_place.id_of(txn)
        if not archive_id:
            return
        why = self._places.away(archive_id)
        if why is not None:
            self._away[archive_id] = why
            return
        known, listed = self._named_otherwise(), chunk_objects(self._storage_of(archive_id))
        meter = Meter(self._report, noun="archived object")
        try:
            for batch in _batches(meter.each(listed, lambda stored: stored.name)):
                self._compare(batch, known, archive_id)
                self._judge_changed()
        except (Unavailable, PermissionDenied) as exc:
            self._silent[archive_id] = str(exc)

    def _look_at_unchunked(self) -> None:
        """Look for the objects that no chunk refers to."""
        with self._metadata.read() as txn:
            wanted = list(unchunked(txn))
        with Pool(_LOOKS_IN_PARALLEL, "tierfs-check") as pool:
            defects = pool.in_order(lambda each: defect(self._storage_of, each[1]), wanted)
            for (segment_id, record), wrong in zip(wanted, defects, strict=True):
                self.totals.looked_at += 1
                if wrong is not None and wrong.fault is Fault.AWAY:
                    self._silent[record.location_id] = wrong.why
                elif wrong is not None:
                    self._unchunked[segment_id] = record, wrong

    def _companions(self) -> dict[str, ObjectRecord]:
        """Return the names of our objects that must exist beside a ledger's data object, each with that data object."""
        with self._metadata.read() as txn:
            return companions(txn)

    def _named_otherwise(self) -> NamesIndex:
        names = NamesIndex()
        with self._metadata.read() as txn:
            for _, record in chain(messages(txn, INTENTS), messages(txn, GARBAGE)):
                if record is not None:
                    names.add(record.name, 0)
        return names

    def _compare(self, batch: Iterable[StoredObject], known: NamesIndex, location_id: LocationId | None) -> None:
        young_ms = self._metadata.clock.now_ms() - _YOUNG_MS
        with self._metadata.read() as txn:
            for listed in batch:
                self.totals.listed += 1
                numbers = list(self._table.names[Tier.COLD].find(listed.name))
                for number in numbers:
                    record = message(txn, OBJECTS, tables.u64(self._table.ids[number]))
                    if record is None or record.location_id != location_id:
                        continue
                    # Else it is looked at by itself, later: the store may have left the place that is listed.
                    if listed.length_bytes == (record.stored_length or record.length):
                        self._seen[number] = 1
                        self._judge(record, listed)
                if not numbers and not _is_known(listed.name, known) and listed.modified_ms < young_ms:
                    self.totals.unnamed += 1
                    self.totals.unnamed_bytes += listed.length_bytes

    def _judge(self, record: Any, stored: StoredObject | None) -> None:
        """Record an object that differs from its record."""
        location_id = LocationId(record.location_id)
        if stored is None:
            self._bad[record.id] = _Bad(location_id)
        elif not may_have_length(record, stored.length_bytes):
            text = f"it has {stored.length_bytes} bytes, its record says {record.stored_length or record.length}"
            self._bad[record.id] = _Bad(location_id, text)
        elif stored.etag != record.etag:
            self._waiting.append((record.id, stored))

    def _judge_changed(self) -> None:
        """Judge objects with another etag by their bytes: the etag alone proves nothing."""
        waiting, self._waiting = self._waiting, []
        with self._metadata.read() as txn:
            rows = [(txn.get(OBJECTS, tables.u64(number)), stored) for number, stored in waiting]
        changed = [Changed(record, stored) for record, stored in rows if record is not None]
        for record, why in self._changed.prove(changed):
            self._bad[record.id] = _Bad(record.location_id, why)

    def _look_at_the_rest(self) -> None:
        """Stat foreign objects and those the listing did not show: under other names, or gone."""
        left = [number for number in self._table.names[Tier.COLD].numbers() if not self._seen[number]]
        looked_at = Meter(self._report, total_items=len(left), noun="unlisted object")
        with Pool(_LOOKS_IN_PARALLEL, "tierfs-check") as pool:
            for batch in _batches(iter(left)):
                with self._metadata.read() as txn:
                    ids = (self._table.ids[number] for number in batch)
                    rows = (txn.get(OBJECTS, tables.u64(number)) for number in ids)
                    records = [each for each in rows if each is not None and each.location_id not in self._away]
                for record, stored in zip(records, pool.in_order(self._look, records), strict=True):
                    self.totals.looked_at += 1
                    looked_at(0, record.name, 1)
                    if isinstance(stored, TierfsError):
                        self._silent[record.location_id] = str(stored)
                    else:
                        self._judge(record, stored)
                self._judge_changed()

    def _look(self, record: ObjectRecord) -> StoredObject | TierfsError | None:
        """Return the object, None if it does not exist, or the error of an adopted place that does not answer."""
        try:
            return self._storage_of(record.location_id).stat(record.name)
        except NotFound:
            return None
        except (Unavailable, PermissionDenied) as exc:
            if record.location_id == self._location_id:
                raise
            return exc

    def _located(self, bad: set[int]) -> Iterator[Finding]:
        """Yield bad objects as bytes of segments, except lost extents and wrong objects already recorded as lost."""
        if not bad:
            return
        with self._metadata.read() as txn:
            lost = {located.object.id for located in locate(txn, Tier.COLD, bad) if located.chunk.lost}
            for located in locate(txn, Tier.COLD, bad):
                recorded = located.object.id in lost and self._bad[located.object.id].difference is not None
                saved = self._bad[located.object.id].difference is not None and self._changed.saves(located)
                if not recorded and not located.chunk.lost and not saved:
                    yield self._finding(located, has_other_copy=located.has_other_copy(txn))

    def _finding(self, located: Located, *, has_other_copy: bool) -> Finding:
        bad = self._bad[located.object.id]
        text = f"object {printable(located.object.name)}: {bad.difference or 'it is missing'}"
        return Finding(
            Kind.OBJECT_DIFFERS if bad.difference else Kind.OBJECT_MISSING,
            Severity.DAMAGE if has_other_copy else Severity.LOSS,
            located.segment,
            text if has_other_copy else f"{text}; no good local copy",
            range=located.range,
            mend=Mend.REPLACE_CHUNK,
            place=located.place,
            object_id=located.object.id,
        )


def _without_chunks(
    txn: ReadTransaction,
    unchunked: Mapping[SegmentId, tuple[ObjectRecord, Defect]],
    away: Container[LocationId],
) -> Iterator[Finding]:
    """Yield the ledgers whose objects, which no chunk refers to, are missing or others; no byte is lost with them."""
    for segment_id, (record, wrong) in unchunked.items():
        segment = message(txn, SEGMENTS, tables.u64(segment_id))
        if segment is None or record.location_id in away:
            continue
        kind = Kind.OBJECT_MISSING if wrong.fault is Fault.MISSING else Kind.OBJECT_DIFFERS
        name = segment_name(txn, segment)
        finding = Finding(kind, Severity.DAMAGE, name, wrong.why, place=FindingPlace(segment_id))
        if record.foreign:
            remedy = "all its entries are empty, and the store has them; adopt it again, or: tierfs rm"
            yield replace(finding, remedy=remedy)
        else:
            yield replace(finding, mend=Mend.OFFLOAD_AGAIN)


def _is_known(name: str, known: NamesIndex) -> bool:
    """Return whether an unrecorded object is not an orphan; `known` includes jobs, which may still be committed."""
    return name in known or f"{name.rpartition('/')[0]}/" in known or is_of_ledger(name) or is_about_job(name)


def unreachable(location_id: LocationId, why: str) -> Finding:
    """Return the one finding for a place where nothing can be reached."""
    return Finding(Kind.UNREACHABLE, Severity.DAMAGE, f"location {location_id}", why, remedy=UNREACHABLE)


def _companion(name: str, record: ObjectRecord) -> Finding:
    text = "Pulsar cannot read the ledger without it" if uuid_of(name) else "a recovery needs it to read the ledger"
    subject = f"object {printable(name)}"
    mend = Mend.WRITE_AGAIN
    message = f"it is missing: {text}"
    return Finding(Kind.COMPANION, Severity.DAMAGE, subject, message, mend=mend, object_id=record.id)


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    while batch := list(islice(items, _BATCH)):
        yield batch
