"""Plan of an adoption: the segments to make from foreign objects, and the objects that cannot become one. Pure.

Extents are sorted by offset and cut into runs that touch: each run is a segment. Numbers in foreign names and headers
are decimal, bounded and ASCII (`offset`). `plan_objects` makes a segment of every object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar
from uuid import UUID

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words import names, units
from tierfs.base.words.errors import InvalidRequest, NotDirectory, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.chunkstore.validate import check_name

# Most objects below one URL: each takes about 0.5 KiB of memory while the plan is made.
MAX_OBJECTS = 1_000_000

# Largest object: its checksums, 4 MiB, fit into one journal object with everything else.
MAX_OBJECT_BYTES = 128 * 1024**3

# Largest offset of a segment's byte: that of a file.
MAX_OFFSET = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ForeignExtent:
    """A run of a segment's bytes: the first `length` bytes of one foreign object."""

    start_offset: int
    length: int
    object: StoredObject

    @property
    def end_offset(self) -> int:
        """Offset just past the last byte."""
        return self.start_offset + self.length

    @property
    def range(self) -> ByteRange:
        """The bytes of the segment."""
        return ByteRange(self.start_offset, self.end_offset)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """One segment to be: its extents touch each other and none is empty."""

    name: str
    start_offset: int = 0
    extents: tuple[ForeignExtent, ...] = ()
    modified_ms: int = 0
    """Time of an empty segment; otherwise the newest object's is used."""
    stem: str = ""
    """Name of the first run, if the segment is one of several runs that holes may part; "" for others."""
    unfinished: bool = False
    """Whether a later object may still cut the last one, or its writer write it over."""

    @property
    def end_offset(self) -> int:
        """The length of the segment."""
        return self.extents[-1].end_offset if self.extents else self.start_offset

    @property
    def objects(self) -> int:
        """Number of its objects."""
        return len(self.extents)

    @property
    def object_bytes(self) -> int:
        """Bytes to read for its checksums: whole objects."""
        return sum(extent.object.length_bytes for extent in self.extents)

    def check(self) -> None:
        """Raise InvalidRequest unless its name and its extents can be those of a segment."""
        if not names.split(self.name):
            raise InvalidRequest("a segment needs a name")
        at = self.start_offset
        for extent in self.extents:
            what = f"{names.printable(extent.object.name)}"
            if extent.start_offset != at or not 0 < extent.length <= extent.object.length_bytes:
                raise InvalidRequest(f"{what}: it does not continue the segment at byte {at}")
            if extent.object.length_bytes > MAX_OBJECT_BYTES:
                raise InvalidRequest(f"{what}: an adopted object has at most {MAX_OBJECT_BYTES >> 30} GiB")
            at = extent.end_offset
        if not 0 <= self.start_offset <= at <= MAX_OFFSET:
            raise InvalidRequest(f"{names.printable(self.name)}: its offsets are out of range")


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """One data object of a ledger, or the ledger's part of it, with its index object."""

    data: StoredObject
    index: StoredObject | None
    """None if the index is in front of the data, as in the first PIP's form."""
    uuid: UUID
    first_entry_id: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerPlan:
    """One ledger to be: a segment that is made of the entries in its parts, in the order of their entries."""

    name: str
    ledger_id: int
    parts: tuple[LedgerPart, ...]
    entries: int | None
    """Number of entries by its indexes; None while it is open."""
    payload_bytes: int
    """Bytes by its indexes; 0 if unknown."""
    others: tuple[LedgerPlan, ...] = ()
    """The same ledger in the objects of other offload attempts, best first: each is whole by its indexes."""

    start_offset = 0

    @property
    def grows(self) -> bool:
        """Whether more may come: Pulsar writes how many entries a ledger has once it closes it."""
        return self.entries is None

    @property
    def end_offset(self) -> int:
        """The length of the segment, by the index."""
        return self.payload_bytes

    @property
    def objects(self) -> int:
        """Number of its data objects."""
        return len(self.parts)

    @property
    def object_bytes(self) -> int:
        """Bytes to read."""
        return sum(part.read_bytes for part in self.parts)

    @property
    def attempts(self) -> tuple[LedgerPlan, ...]:
        """This plan and the others, each alone."""
        return (replace(self, others=()), *self.others)

    @property
    def uuid(self) -> UUID:
        """The offload attempt that made it; of several the last."""
        return self.parts[-1].uuid

    @property
    def modified_ms(self) -> int:
        """Time at which its newest object was written."""
        return max(part.index.modified_ms if part.index else part.data.modified_ms for part in self.parts)

    def check(self) -> None:
        """Raise InvalidRequest unless its name can be a segment's, and its objects are not too large."""
        names.split(self.name)
        for part in self.parts:
            if part.data.length_bytes > MAX_OBJECT_BYTES:
                what = names.printable(part.data.name)
                raise InvalidRequest(f"{what}: an adopted object has at most {MAX_OBJECT_BYTES >> 30} GiB")


AnyPlan = SegmentPlan | LedgerPlan


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An object that is not adopted, and why."""

    what: str
    why: str


@dataclass(slots=True)
class AdoptionPlan:
    """Everything found in one place."""

    segments: list[AnyPlan] = field(default_factory=list)
    refused: list[tuple[str, TierfsError]] = field(default_factory=list)
    """Segments that cannot be made, with the error."""
    left_out: list[LeftOut] = field(default_factory=list)
    """Objects that are not part of any segment."""
    warnings: list[str] = field(default_factory=list)

    def add(self, segment: AnyPlan, what: str) -> None:
        """Add a segment, or record `what` as refused if it cannot be one."""
        try:
            segment.check()
        except InvalidRequest as exc:
            self.refused.append((what, exc))
            return
        self.segments.append(replace(segment, name=names.join(names.split(segment.name))))

    def check_names(self) -> None:
        """Refuse segments whose names are taken by others of this plan, or run through one; sort by name."""
        taken: dict[str, AnyPlan] = {}
        for segment in sorted(self.segments, key=lambda planned: planned.name.split("/")):
            parts = segment.name.split("/")
            above = next((path for path in _parents(parts) if path in taken), None)
            shown = names.printable(segment.name)
            if segment.name in taken:
                error: TierfsError = InvalidRequest(f"two sources map to {shown}", remedy="adopt them separately")
                self.refused.append((segment.name, error))
            elif above is not None:
                why = f"{shown}: {names.printable(above)} is a segment, so it cannot contain other segments"
                self.refused.append((segment.name, NotDirectory(why, remedy="adopt it into another directory")))
            else:
                taken[segment.name] = segment
        self.segments = list(taken.values())


def _parents(parts: Sequence[str]) -> Iterator[str]:
    for depth in range(1, len(parts)):
        yield "/".join(parts[:depth])


def bounded(items: Iterable[T], what: str) -> Iterator[T]:
    """Yield all items; raise InvalidRequest beyond MAX_OBJECTS."""
    rest = iter(items)
    yield from islice(rest, MAX_OBJECTS)
    if next(rest, None) is not None:
        raise InvalidRequest(f"{what} has more than {MAX_OBJECTS:,} objects", remedy="adopt its parts one by one")


def readable(plan: AdoptionPlan, listed: Iterable[StoredObject]) -> Iterator[StoredObject]:
    """Yield the objects that can be read by name; skip directory markers and refuse the others."""
    for stored in listed:
        if stored.name.endswith("/") or not stored.name:
            continue
        try:
            check_name(stored.name)
        except InvalidRequest as exc:
            plan.refused.append((stored.name, exc))
            continue
        yield stored


@dataclass(frozen=True, slots=True)
class Run:
    """Extents without a hole between them; empty if there are only empty objects."""

    start_offset: int
    extents: tuple[ForeignExtent, ...]

    @property
    def end_offset(self) -> int:
        """Offset just past the last byte."""
        return self.extents[-1].end_offset if self.extents else self.start_offset


def extent_of(start_offset: int, held: StoredObject, end_offset: int | None = None) -> ForeignExtent:
    """Return the extent of an object's bytes up to `end_offset`, or to its end.

    Bytes after that belong to nothing, and its writer may change them: neither is their checksum recorded, nor do they
    matter to a later comparison.
    """
    length = held.length_bytes if end_offset is None else min(held.length_bytes, end_offset - start_offset)
    return ForeignExtent(start_offset, length, replace(held, length_bytes=length))


def add_runs(
    plan: AdoptionPlan, name: str, extents: Iterable[ForeignExtent], into: str, *, unfinished: bool = False
) -> None:
    """Add INTO/name to the plan, and after each hole INTO/name.<offset>, with a warning.

    `unfinished`: of the last run. Refuses all of it when two objects hold the same byte.
    """
    try:
        joined = runs(extents)
    except InvalidRequest as exc:
        plan.refused.append((f"{into}/{name}", exc))
        return
    for index, run in enumerate(joined):
        if index:
            hole = f"bytes {joined[index - 1].end_offset} to {run.start_offset} are missing"
            plan.warnings.append(f"{name}: {hole}; the following bytes become a separate segment")
        segment = f"{into}/{name}.{run.start_offset}" if index else f"{into}/{name}"
        planned = SegmentPlan(segment, run.start_offset, run.extents, stem=f"{into}/{name}")
        plan.add(replace(planned, unfinished=unfinished and run is joined[-1]), segment)


def runs(extents: Iterable[ForeignExtent]) -> list[Run]:
    """Return the runs of extents, given in any order; empty ones hold no bytes and end no run.

    Raises InvalidRequest, naming two objects that hold the same byte.
    """
    placed = sorted(extents, key=lambda extent: (extent.start_offset, extent.length))
    joined = ranges.runs(filter(_has_bytes, placed), _touches)
    return [Run(run[0].start_offset, tuple(run)) for run in joined] or [
        Run(extent.start_offset, ()) for extent in placed[:1]
    ]


def _has_bytes(extent: ForeignExtent) -> bool:
    return extent.length > 0


def _touches(run: Sequence[ForeignExtent], extent: ForeignExtent) -> bool:
    last = run[-1]
    if extent.start_offset < last.end_offset:
        first, second = printable(last.object.name), printable(extent.object.name)
        raise InvalidRequest(f"{first} and {second} both contain byte {extent.start_offset}")
    return extent.start_offset == last.end_offset


def offset(text: str) -> int | None:
    """Parse an offset; None if `text` is not a number, or one that no segment can have."""
    return units.decimal(text, MAX_OFFSET)


def plan_objects(plan: AdoptionPlan, listed: Iterable[StoredObject], into: str) -> None:
    """Plan the segment INTO/a/b for each object `a/b`; an empty one becomes an empty segment."""
    for stored in readable(plan, listed):
        extents = (ForeignExtent(0, stored.length_bytes, stored),) if stored.length_bytes else ()
        plan.add(SegmentPlan(f"{into}/{stored.name}", 0, extents, stored.modified_ms), stored.name)
