"""Checking copies on an executor: every byte of each copy by itself, no other one takes its place.

Neighbouring bytes of one object are one request; what looks bad there is read once more alone.

What there is to check of a store, cut into tasks, a wave of tasks at a time.

The checksums of all copies do not fit into memory (32 MiB of them for a terabyte), so a wave is planned when the one
before it is done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from tierfs import ranges
from tierfs.chunkstore.protocol import ChunkStorage, EtagDiffers
from tierfs.errors import DataLoss, TierfsError
from tierfs.fsck.scrub.copy_reader import Checked, CopyReader, Fault, bad_ranges
from tierfs.fsck.scrub.pieces import ScrubPiece, pieces
from tierfs.metadata import entries
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.ledger_and_batch_records import EntryRun
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.store import MetadataStore
from tierfs.parallel import Pool
from tierfs.reading.payloads import Payloads
from tierfs.scan.extents import Place, PlaceConnections
from tierfs.scan.fetching import BUFFERS, REQUEST_BYTES
from tierfs.scan.selection import Selection, select
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId, ObjectId, PayloadEncoding, SegmentId, Tier

_THREADS = 4
"""Requests of a task at the same time: 32 MiB of memory."""


@dataclass(frozen=True, slots=True)
class CopyPiece:
    """A piece of one copy, as a task checks it."""

    segment: str
    piece: ScrubPiece
    placed: PlacedChunk
    runs: tuple[EntryRun, ...] = ()
    """Rows of the entries in it, where frames lie between payloads in the object."""

    @property
    def blocks(self) -> ByteRange:
        """What of the object is read for it."""
        return self.piece.in_object if self.piece.grid is None else self.piece.grid.range

    @property
    def place(self) -> tuple[int, int]:
        """Sorts pieces as they lie in objects."""
        return int(self.placed.object.id), self.blocks.start


@dataclass(frozen=True, slots=True)
class CopyFault:
    """Bytes of a copy that are wrong, missing or out of reach."""

    segment: str
    tier: Tier
    object: ObjectRecord
    range: ByteRange
    """Of the segment."""
    fault: Fault
    why: str


@dataclass(slots=True)
class CopyReport:
    """What a task found."""

    local_bytes: int = 0
    """Read and compared, whatever came of it."""
    cold_bytes: int = 0
    unseen_bytes: int = 0
    """Of copies in the store's directory, which this executor does not see."""
    faults: tuple[CopyFault, ...] = ()


class CopyChecks:
    """Checks pieces of copies for one task."""

    def __init__(self, place: Place, connections: PlaceConnections, wanted: Sequence[CopyPiece]) -> None:
        self._place = place
        self._connections = connections
        self._wanted = sorted(wanted, key=lambda one: one.place)
        self._runs = _runs_by_segment(wanted)
        self._payloads = Payloads(self._run)
        self._sees_store = connections.sees(place) and connections.metadata(place) is not None
        self._reader = CopyReader(
            partial(connections.files, place), self._storage_of, self._read_into, self._away, lambda _, __: None
        )

    def run(self) -> Iterator[tuple[CopyPiece, Checked]]:
        """Each piece with what its copy showed. Raises what an executor cannot do anything about."""
        with Pool(_THREADS, "tierfs-scrub") as pool:
            yield from chain.from_iterable(pool.in_order(self._check, _groups(self._wanted)))

    def _check(self, group: list[CopyPiece]) -> list[tuple[CopyPiece, Checked]]:
        """In a thread: one request for all; alone what is not right then."""
        good: set[int] = set()
        if len(group) > 1:
            buffer = BUFFERS.take()
            try:
                good = self._good(group, memoryview(buffer))
            except TierfsError:
                good = set()
            finally:
                BUFFERS.give(buffer)
        return [
            (one, Checked(one.piece) if index in good else self._check_alone(one)) for index, one in enumerate(group)
        ]

    def _good(self, group: list[CopyPiece], memory: memoryview) -> set[int]:
        """Which of the pieces are right, by one request for all."""
        start = group[0].blocks.start
        view = memory[: max(one.blocks.end for one in group) - start]
        holder = group[0].placed.object
        self._read_into(self._storage_of(holder.location_id), holder, start, view)
        return {index for index, one in enumerate(group) if _is_right(one, view, start)}

    def _check_alone(self, one: CopyPiece) -> Checked:
        """Bad bytes count when they come twice: the way may have damaged them once."""
        if one.placed.object.tier is Tier.LOCAL and not self._sees_store:
            why = f"this executor does not see {self._place.path}"
            return Checked(one.piece, (one.piece.range,), why, fault=Fault.UNSEEN)
        found = self._reader.check(one.piece, one.placed)
        return self._reader.check(one.piece, one.placed) if found.fault is Fault.DAMAGED and found.bad else found

    def _storage_of(self, location_id: LocationId) -> ChunkStorage:
        return self._connections.storage(self._place, location_id)

    def _read_into(self, storage: ChunkStorage, holder: ObjectRecord, offset: int, view: memoryview) -> str | None:
        try:
            self._payloads.read_into(storage, holder, offset, view, holder.etag, None)
        except EtagDiffers:  # a copied bucket has other etags; the checksums tell whether the bytes are the same
            self._payloads.read_into(storage, holder, offset, view, None, None)
            return None
        return holder.etag

    def _away(self, placed: PlacedChunk) -> str | None:
        """The driver finds out whether a place of others is away; the store's own one has to answer."""
        if placed.object.tier is Tier.COLD:
            return "" if placed.object.foreign else None
        files = self._connections.files(self._place)
        return None if files.is_mounted else f"{files.root} is not reachable: it is not a chunk directory"

    def _run(self, holder: ObjectRecord, offset: int) -> EntryRun | None:
        runs = self._runs.get(holder.segment_id, [])
        index = bisect_right(runs, offset, key=lambda run: run.payload_start) - 1
        return runs[index] if index >= 0 and offset < runs[index].payload_end else None


def report_of(found: Iterable[tuple[CopyPiece, Checked]]) -> CopyReport:
    """The sums of a task, and its faults with neighbours joined."""
    report = CopyReport()
    faults: list[CopyFault] = []
    for one, checked in found:
        size_bytes = one.piece.range.length_bytes
        if checked.fault is Fault.UNSEEN:
            report.unseen_bytes += size_bytes
        elif one.placed.object.tier is Tier.LOCAL:
            report.local_bytes += size_bytes
        else:
            report.cold_bytes += size_bytes
        holder = one.placed.object
        for bad in checked.bad:
            faults.append(CopyFault(one.segment, holder.tier, holder, bad, checked.fault, checked.why))
    report.faults = tuple(joined(faults))
    return report


def joined(faults: Iterable[CopyFault]) -> Iterator[CopyFault]:
    """Faults in order, those of the same kind that follow each other in one object as one."""
    last: CopyFault | None = None
    for one in sorted(faults, key=lambda fault: (fault.segment, fault.tier, fault.object.id, fault.range)):
        if last is not None and _continues(last, one):
            last = CopyFault(
                last.segment, last.tier, last.object, ByteRange(last.range.start, one.range.end), last.fault, last.why
            )
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _continues(last: CopyFault, one: CopyFault) -> bool:
    same = (last.segment, last.object.id, last.fault) == (one.segment, one.object.id, one.fault)
    return same and last.range.end == one.range.start


def _groups(wanted: Iterable[CopyPiece]) -> Iterator[list[CopyPiece]]:
    """What one request reads."""
    return ranges.runs(wanted, _goes_with)


def _goes_with(group: Sequence[CopyPiece], one: CopyPiece) -> bool:
    first, last, holder = group[0], group[-1], one.placed.object
    if holder.id != last.placed.object.id or holder.tier is Tier.LOCAL or holder.encoding is not PayloadEncoding.RAW:
        return False
    near = one.blocks.start <= last.blocks.end + CRC_BLOCK_BYTES
    return near and one.blocks.end - first.blocks.start <= REQUEST_BYTES


def _is_right(one: CopyPiece, view: memoryview, origin: int) -> bool:
    grid = one.piece.grid
    if grid is None:
        return False
    blocks = view[grid.range.start - origin : grid.range.end - origin]
    return next(bad_ranges(one.piece, blocks), None) is None


def _runs_by_segment(wanted: Iterable[CopyPiece]) -> dict[int, list[EntryRun]]:
    """Each row once, in order."""
    by_start: dict[int, dict[int, EntryRun]] = defaultdict(dict)
    for one in wanted:
        for run in one.runs:
            by_start[one.placed.object.segment_id][run.payload_start] = run
    return {segment: [runs[start] for start in sorted(runs)] for segment, runs in by_start.items()}


PARTITION_BYTES = 128 * MIB
WAVE_PARTITIONS = 256
"""32 GiB and a MiB of checksums (a guess)."""

_OPEN_COST_BYTES = MIB // 4
"""What a piece costs beside its bytes: a wave has at most 131,072 of them, 200 MB of memory (a guess)."""

_NO_OBJECT = ObjectRecord(id=ObjectId(0), tier=Tier.COLD, name="", length=0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A segment that is to be checked."""

    id: SegmentId
    name: str


@dataclass(frozen=True, slots=True)
class Wave:
    """Tasks that run together."""

    partitions: list[tuple[CopyPiece, ...]]
    faults: tuple[CopyFault, ...]
    """What the metadata tell without any reading."""


def wanted_segments(metadata: MetadataStore, paths: Sequence[str]) -> tuple[list[Wanted], int]:
    """The segments at and below paths, and the bytes of all their copies. Raises NotFound for a path."""
    with metadata.read() as txn:
        found: list[Wanted] = []
        size_bytes = 0
        for name, segment in select(txn, Selection(tuple(paths) or ("",), recursive=True)):
            found.append(Wanted(segment.id, name))
            size_bytes += segment.readable_bytes(Tier.LOCAL) + segment.readable_bytes(Tier.COLD)
    return found, size_bytes


def waves(
    metadata: MetadataStore,
    segments: Iterable[Wanted],
    partition_bytes: int = PARTITION_BYTES,
    partitions: int = WAVE_PARTITIONS,
) -> Iterator[Wave]:
    """All copies of all bytes of the segments. Extents that are recorded as lost are left out."""
    waiting: list[CopyPiece] = []
    faults: list[CopyFault] = []
    size_bytes = 0
    for found in _found(metadata, segments):
        if isinstance(found, CopyFault):
            faults.append(found)
            continue
        waiting.append(found)
        size_bytes += _cost(found)
        if size_bytes >= partition_bytes * partitions:
            yield Wave(list(_packed(waiting, partition_bytes)), tuple(faults))
            waiting, faults, size_bytes = [], [], 0
    if waiting or faults:
        yield Wave(list(_packed(waiting, partition_bytes)), tuple(faults))


def _found(metadata: MetadataStore, segments: Iterable[Wanted]) -> Iterator[CopyPiece | CopyFault]:
    for segment in segments:
        lean = _Lean()
        try:
            for piece in pieces(metadata, segment.id):
                if piece.placed is None:
                    yield _fault(segment, piece.range, Fault.MISSING, "no tier holds these bytes")
                elif not piece.placed.chunk.lost:
                    yield _copy(metadata, segment, piece, lean.of(piece.placed))
        except DataLoss as exc:
            yield _fault(segment, ByteRange(0, 0), Fault.DAMAGED, f"{exc}; run: tierfs fsck")


def _copy(metadata: MetadataStore, segment: Wanted, piece: ScrubPiece, placed: PlacedChunk) -> CopyPiece:
    framed = placed.object.encoding is not PayloadEncoding.RAW
    runs = tuple(_runs(metadata, placed.object, piece)) if framed else ()
    return CopyPiece(segment.name, replace(piece, placed=placed), placed, runs)


def _runs(metadata: MetadataStore, holder: ObjectRecord, piece: ScrubPiece) -> Iterator[EntryRun]:
    """The rows of entries that touch the blocks of a piece in a ledger's object."""
    blocks = piece.in_object if piece.grid is None else piece.grid.range
    at, end = holder.payload_start + blocks.start, holder.payload_start + blocks.end
    with metadata.read() as txn:
        while at < end:
            run = entries.run_holding(txn, SegmentId(holder.segment_id), at)
            if run is None:
                return  # reading tells that nobody knows where the payload lies
            yield replace(run, stored=b"")
            at = run.payload_end


class _Lean:
    """Records without the bytes that they were read from, one for all pieces of a chunk: pickle keeps it once."""

    def __init__(self) -> None:
        self._last: dict[Tier, tuple[PlacedChunk, PlacedChunk]] = {}

    def of(self, placed: PlacedChunk) -> PlacedChunk:
        known = self._last.get(placed.object.tier)
        if known is not None and known[0] == placed:
            return known[1]
        lean = PlacedChunk(replace(placed.chunk, stored=b""), replace(placed.object, stored=b""))
        self._last[placed.object.tier] = (placed, lean)
        return lean


def _packed(waiting: list[CopyPiece], partition_bytes: int) -> Iterator[tuple[CopyPiece, ...]]:
    """Tasks of about so many bytes, which read each object from one end to the other."""
    task: list[CopyPiece] = []
    size_bytes = 0
    for one in sorted(waiting, key=lambda one: one.place):
        if task and size_bytes + _cost(one) > partition_bytes:
            yield tuple(task)
            task, size_bytes = [], 0
        task.append(one)
        size_bytes += _cost(one)
    if task:
        yield tuple(task)


def _cost(one: CopyPiece) -> int:
    return one.piece.range.length_bytes + _OPEN_COST_BYTES


def _fault(segment: Wanted, span: ByteRange, fault: Fault, why: str) -> CopyFault:
    return CopyFault(segment.name, Tier.COLD, _NO_OBJECT, span, fault, why)
