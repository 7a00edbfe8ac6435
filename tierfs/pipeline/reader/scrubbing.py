"""Checks copies on an executor: every byte of each copy by itself, without another copy in its place.

Adjacent bytes of one object are one request; apparently bad bytes are read once more alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, PayloadEncoding, Tier
from tierfs.engine.chunkstore.link import Slots
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.pipeline.reader.buffers import BUFFERS
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.in_flight import AROUND_BYTES, StepOf
from tierfs.pipeline.reader.task_reader import TaskRows, WaitingReader, run_holding
from tierfs.upkeep.check.scrub.copy_reader import Checked, CopyReader, Fault
from tierfs.upkeep.check.scrub.pieces import ScrubPiece

# Requests of a task at once: 32 MiB of memory.
_LEAST_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class CopyPiece:
    """A piece of one copy, as a task checks it."""

    segment: str
    piece: ScrubPiece
    placed: PlacedChunk
    runs: tuple[EntryRun, ...] = ()
    """Rows of the entries in it, if frames lie between payloads in the object."""
    frames: tuple[FrameMap, ...] = ()
    """Of a compressed object: those with all bytes that checking it reads."""

    @property
    def blocks(self) -> ByteRange:
        """Return the bytes of the object read for it."""
        return self.piece.in_object if self.piece.grid is None else self.piece.grid.range

    @property
    def place(self) -> tuple[int, int]:
        """Return a key that sorts pieces by their place in objects."""
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
    """Result of a task."""

    local_bytes: int = 0
    """Read and compared, with any result."""
    cold_bytes: int = 0
    unseen_bytes: int = 0
    """Of copies in the store's directory that this executor does not see."""
    faults: tuple[CopyFault, ...] = ()


class CopyChecks:
    """Checks pieces of copies for one task."""

    def __init__(self, place: ScannedStore, connections: PlaceConnections, wanted: Sequence[CopyPiece]) -> None:
        self._place = place
        self._connections = connections
        self._wanted = sorted(wanted, key=lambda copy: copy.place)
        runs = _runs_by_segment(wanted)
        rows = TaskRows(lambda ledger, offset: run_holding(runs.get(ledger.segment_id, []), offset))
        for copy in wanted:
            rows.add(copy.placed.object, copy.frames)
        self._reader = WaitingReader(place, connections, rows)
        self._in_flight = self._reader.in_flight
        self._slots = Slots()
        self._sees_store = connections.sees(place) and connections.metadata(place) is not None
        self._copies = CopyReader(self._reader, self._away)

    def run(self) -> Iterator[tuple[CopyPiece, Checked]]:
        """Yield each piece with the result for its copy. Raises errors that the executor cannot handle."""
        with Pool(max(_LEAST_AT_ONCE, self._in_flight.threads), "tierfs-scrub") as pool:
            groups = _groups(self._wanted, self._in_flight.step_bytes)
            try:
                yield from chain.from_iterable(pool.in_order(self._check_in_slot, groups))
            finally:
                self._reader.patience.end()
                self._connections.adopt_etags(self._place)

    def _check_in_slot(self, group: list[CopyPiece]) -> list[tuple[CopyPiece, Checked]]:
        with self._slots.one_of(lambda: max(_LEAST_AT_ONCE, self._in_flight.ahead)):
            return self._check(group)

    def _check(self, group: list[CopyPiece]) -> list[tuple[CopyPiece, Checked]]:
        """Check a group in a thread: one request for all, then one for each piece that is not right."""
        good: set[int] = set()
        if len(group) > 1:
            buffer = BUFFERS.take(max(piece.blocks.end for piece in group) - group[0].blocks.start)
            try:
                good = self._good(group, memoryview(buffer))
            except TierfsError:
                good = set()
            finally:
                BUFFERS.give(buffer)
        return [
            (copy, Checked(copy.piece) if index in good else self._check_alone(copy))
            for index, copy in enumerate(group)
        ]

    def _good(self, group: list[CopyPiece], memory: memoryview) -> set[int]:
        """Return the pieces that are right, by one request for all."""
        start = group[0].blocks.start
        view = memory[: max(piece.blocks.end for piece in group) - start]
        record = group[0].placed.object
        etag = self._reader.fill(record, start, view)
        good = {index for index, piece in enumerate(group) if _is_right(piece, view, start)}
        if len(good) == len(group):
            self._reader.proved(record, etag)
        return good

    def _check_alone(self, copy: CopyPiece) -> Checked:
        """Check one piece. Bad bytes count if they appear twice: the transfer may have damaged them once."""
        if copy.placed.object.tier is Tier.LOCAL and not self._sees_store:
            why = f"{self._place.path} is not visible to this executor"
            return Checked(copy.piece, (copy.piece.range,), why, fault=Fault.UNSEEN)
        checked = self._copies.check(copy.piece, copy.placed)
        if not checked.bad or checked.fault is not Fault.DAMAGED:
            return checked
        place = self._reader.place(copy.placed.object)
        place.was_left()  # looks: both reads would be of a place that was left before them
        while (checked := self._copies.check(copy.piece, copy.placed)).bad and place.was_left():
            pass
        return checked

    def _away(self, placed: PlacedChunk) -> str | None:
        """Return "" for an adopted place, which the driver judges; the store's own place has to answer."""
        if placed.object.tier is Tier.COLD:
            return "" if placed.object.foreign else None
        files = self._connections.files(self._place)
        return None if files.is_mounted else f"{files.root} is not a reachable chunk directory"


def report_of(results: Iterable[tuple[CopyPiece, Checked]]) -> CopyReport:
    """Return the sums of a task, and its faults with neighbours joined."""
    report = CopyReport()
    faults: list[CopyFault] = []
    for copy, checked in results:
        size_bytes = copy.piece.range.length_bytes
        if checked.fault is Fault.UNSEEN:
            report.unseen_bytes += size_bytes
        elif copy.placed.object.tier is Tier.LOCAL:
            report.local_bytes += size_bytes
        else:
            report.cold_bytes += size_bytes
        record = copy.placed.object
        for bad in checked.bad:
            faults.append(CopyFault(copy.segment, record.tier, record, bad, checked.fault, checked.why))
    report.faults = tuple(joined(faults))
    return report


def joined(faults: Iterable[CopyFault]) -> Iterator[CopyFault]:
    """Return faults in order, with adjacent ones of the same kind in one object joined."""
    ordered = sorted(faults, key=lambda fault: (fault.segment, fault.tier, fault.object.id, fault.range))
    for run in ranges.runs(ordered, _continues):
        yield replace(run[0], range=ByteRange(run[0].range.start, run[-1].range.end))


def _continues(run: Sequence[CopyFault], fault: CopyFault) -> bool:
    last = run[-1]
    same = (last.segment, last.object.id, last.fault) == (fault.segment, fault.object.id, fault.fault)
    return same and last.range.end == fault.range.start


def _groups(wanted: Iterable[CopyPiece], step_of: StepOf) -> Iterator[list[CopyPiece]]:
    """Yield the pieces of one request."""
    return ranges.runs(wanted, partial(_goes_with, step_of))


def _goes_with(step_of: StepOf, group: Sequence[CopyPiece], piece: CopyPiece) -> bool:
    first, last, record = group[0], group[-1], piece.placed.object
    if record.id != last.placed.object.id or record.tier is Tier.LOCAL or record.encoding.is_ledger:
        return False
    # The task does not know the frames of a block that none of its pieces touches.
    gap_bytes = CRC_BLOCK_BYTES if record.encoding is PayloadEncoding.RAW else 0
    near = piece.blocks.start <= last.blocks.end + gap_bytes
    return near and piece.blocks.end - first.blocks.start <= step_of(record.tier) + AROUND_BYTES


def _is_right(copy: CopyPiece, view: memoryview, origin: int) -> bool:
    grid = copy.piece.grid
    if grid is None:
        return False
    return next(grid.bad_blocks(view, origin), None) is None


def _runs_by_segment(wanted: Iterable[CopyPiece]) -> dict[int, list[EntryRun]]:
    """Return each row once, in order."""
    by_start: dict[int, dict[int, EntryRun]] = defaultdict(dict)
    for copy in wanted:
        for run in copy.runs:
            by_start[copy.placed.object.segment_id][run.payload_start] = run
    return {segment: [runs[start] for start in sorted(runs)] for segment, runs in by_start.items()}
