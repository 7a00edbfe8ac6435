"""Notice adopted segments whose objects their system deleted, and keep a row about them for `status`.

RocketMQ and Pravega delete the oldest objects of a file first, which is a truncation of its segment (grow.py). What is
noticed here is a segment that its place has no plan for any more: a ledger that Pulsar deleted, a topic that is gone.
Its bytes cannot be read, and only a person knows whether that is right, so nothing is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import SegmentKind, Tier
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.metadata import chains, directories, empty_ledgers, entries, policies, tables
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.adoption.plan import AdoptionPlan, SegmentPlan

VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class Vanished:
    """An adopted segment of which objects are missing, though its place was listed."""

    name: str
    bytes: int
    """Readable ones, as far as they are not in other tiers: those of the missing objects."""
    missing: int
    """Number of missing objects."""
    first: str
    """One of them."""


@dataclass(frozen=True, slots=True)
class _AdoptedSegment:
    segment: SegmentRecord
    objects: dict[str, int]
    """Adopted objects by name, with the bytes of the segment in each."""


class Absent:
    """The adopted segments below a directory, compared with a listing of the place they were adopted from."""

    def __init__(self, txn: ReadTransaction, into: str, place: LocationRecord) -> None:
        self._held: dict[str, _AdoptedSegment] = {}
        known = policies.foreign_at(txn, place)
        entry = directories.find(txn, into)
        if known is not None and entry is not None:
            for name, segment in directories.segments_below(txn, entry, into):
                objects: dict[str, int] = {}
                for chunk in chains.chunks(txn, segment.id, Tier.COLD, segment.start_offset):
                    record = chains.object_of(txn, chunk) if chunk.object_id else None
                    if record is not None and record.location_id == known.id:
                        objects[record.name] = objects.get(record.name, 0) + chunk.length
                empty = None
                if not objects and segment.kind is SegmentKind.LEDGER:
                    empty = empty_ledgers.find(txn, entries.find(txn, segment.id))
                if empty is not None and empty.location_id == known.id:
                    objects[empty.name] = 0
                if objects:
                    self._held[name] = _AdoptedSegment(segment, objects)
        self._missing = {name for held in self._held.values() for name in held.objects}

    @property
    def any(self) -> bool:
        """Whether any segment was adopted from the place."""
        return bool(self._held)

    def seen(self, listed: Iterable[StoredObject]) -> Iterator[StoredObject]:
        """Yield the objects of the listing, all of it."""
        for stored in listed:
            self._missing.discard(stored.name)
            yield stored

    def vanished(self, plan: AdoptionPlan) -> list[Vanished]:
        """Return the segments that miss objects and are not in the plan, after the listing was used up."""
        planned = {each.name for each in plan.segments} | {name for name, _ in plan.refused}
        return [
            Vanished(name, sum(gone.values()), len(gone), next(iter(gone)))
            for name, held in self._held.items()
            if name not in planned
            and (gone := {key: held.objects[key] for key in held.objects if key in self._missing})
        ]

    def emptied(self, plan: AdoptionPlan) -> Iterator[SegmentPlan]:
        """Yield plans that end runs of which every object is gone, while a later run of the same file is there.

        Their system deleted the head of the file as far as it was adopted, and more.
        """
        later = {each.stem: each.start_offset for each in plan.segments if isinstance(each, SegmentPlan) and each.stem}
        planned = {each.name for each in plan.segments}
        for name, held in self._held.items():
            stem = next((stem for stem in (name, name.rpartition(".")[0]) if stem in later), "")
            gone = held.objects.keys() <= self._missing and held.segment.kind is SegmentKind.BYTES
            if stem and gone and name not in planned and held.segment.length <= later[stem]:
                yield SegmentPlan(name, held.segment.length, stem=stem)


def note(metadata: MetadataStore, place: LocationRecord, into: str, vanished: Collection[Vanished]) -> None:
    """Write the row of a place's vanished segments below a directory, or remove it if there are none."""
    with metadata.read() as txn:
        known, entry = policies.foreign_at(txn, place), directories.find(txn, into)
        if known is None or entry is None:
            return
        what = f"{VANISHED} {known.id}/{entry.id}"
        key = what.encode()
        row = txn.get(tables.FAILURES, key)
    if row is None and not vanished:
        return
    with metadata.write_notes() as writer:
        if not vanished:
            writer.delete(tables.FAILURES.name, key)
            return
        kept = row or FailureRecord(what=what, since_ms=writer.now_ms)
        size = sum(each.bytes for each in vanished)
        error = described(vanished, place)
        writer.put(
            tables.FAILURES, key, replace(kept, name=into, bytes=size, error_kind=NotFound.__name__, error=error)
        )


def described(vanished: Collection[Vanished], place: LocationRecord) -> str:
    """Return the line for people about segments that vanished, with what to do; there is at least one."""
    first = min(vanished, key=lambda each: each.name)
    count = f"{len(vanished):,} segments are" if len(vanished) > 1 else "1 segment is"
    return (
        f"{count} missing in {printable(place.url)}, so bytes cannot be read; the first: {printable(first.name)}, "
        f"previously in {printable(first.first)}; if this is intended: tierfs rm {printable(first.name)}"
    )
