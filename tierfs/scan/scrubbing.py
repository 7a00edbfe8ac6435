"""Checking copies on an executor: every byte of each copy by itself, no other one takes its place.

Neighbouring bytes of one object are one request; what looks bad there is read once more alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from tierfs import ranges
from tierfs.chunkstore.protocol import ChunkStorage, EtagDiffers
from tierfs.errors import TierfsError
from tierfs.fsck.copy_reader import Checked, CopyReader, Fault, bad_ranges
from tierfs.fsck.pieces import Piece
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.ledger_records import EntryRun
from tierfs.metadata.records import ObjectRecord
from tierfs.parallel import Pool
from tierfs.reading.payloads import Payloads
from tierfs.scan.buffers import BUFFERS, REQUEST_BYTES
from tierfs.scan.places import Connections, Place
from tierfs.types import CRC_BLOCK_BYTES, ByteRange, LocationId, PayloadEncoding, Tier

_THREADS = 4
"""Requests of a task at the same time: 32 MiB of memory."""


@dataclass(frozen=True, slots=True)
class CopyPiece:
    """A piece of one copy, as a task checks it."""

    segment: str
    piece: Piece
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

    def __init__(self, place: Place, connections: Connections, wanted: Sequence[CopyPiece]) -> None:
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
        return None if files.is_mounted else f"{files.root} is not reachable: it is no chunk directory"

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
