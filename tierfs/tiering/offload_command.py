"""The uploads of one `offload` command: a bounded number in parallel, all attempted, the first error kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Attempts, Pool, caught
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, DataLoss, TierfsError
from tierfs.base.words.types import ChunkState, SegmentId, SegmentKind, SegmentStatus
from tierfs.engine.metadata import directories, empty_ledgers, sums, tables
from tierfs.engine.metadata.message_rows import message
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.candidates import (
    OffloadAction,
    PackAction,
    cold_copies,
    objects_to_make,
    packed,
    placed_cold,
    sealed_local_chunks,
)
from tierfs.tiering.extra_metadata import NO_EXTRA
from tierfs.tiering.objects import ChunksMoved
from tierfs.tiering.packs.packing import Packed, PackOffload
from tierfs.tiering.part import MovedPart, PartEnds

# Plans made again because chunks moved meanwhile; another process made progress each time.
_REPLANS = 3

# Segments planned in one transaction: some 20 ms.
_PLANNED_TOGETHER = 200

# Segments with their full names.
Named = list[directories.Named]


@dataclass(frozen=True, slots=True)
class OffloadReport:
    """Result of an offload."""

    segments: int = 0
    objects: int = 0
    bytes: int = 0
    already_cold_bytes: int = 0
    ledger_bytes: int = 0
    """Of open ledgers, which stay on this disk."""
    journal_entries: int = 0


@dataclass(frozen=True, slots=True)
class LocalBytes:
    """Sums over the segments of a command before it begins."""

    segments: int = 0
    """Without open ledgers, which stay."""
    bytes: int = 0
    ledger_bytes: int = 0
    """Of open ledgers."""

    @classmethod
    def end_active(
        cls,
        metadata: MetadataStore,
        roll: Callable[[SegmentId], object],
        path: str,
        report: OnProgress,
        attempts: Attempts,
        part: MovedPart | None,
    ) -> LocalBytes:
        """Count the segments at or below a path, and end their active chunks that hold bytes of the `part` to move."""
        segments = size = ledger_bytes = 0
        listed, ended = Meter(report, noun="listed segment"), Meter(report, noun="active chunk")
        for page in directories.pages(metadata.read, path):
            active: Named = []
            with metadata.read() as txn:
                for name, segment_id in page:
                    row = message(txn, SEGMENTS, tables.u64(segment_id))
                    if row is None:  # gone, or damaged, which its plan meets
                        continue
                    if row.kind == SegmentKind.LEDGER and row.status == SegmentStatus.OPEN:
                        ledger_bytes += row.local.bytes
                        continue
                    segments, size = segments + 1, size + row.local.bytes
                    if sums.here_alone(row)[0] and (row.active if part is None else part.takes_active(row)):
                        active.append((name, segment_id))
            for name, segment_id in active:
                with attempts.step():
                    roll(segment_id)
                ended(0, name, 1)
            listed(0, page[-1][0] if page else path, len(page))
        return cls(segments, size, ledger_bytes)


@dataclass(frozen=True, slots=True)
class NotCold:
    """Bytes below a path that an offload would copy."""

    segments: int = 0
    bytes: int = 0
    ledger_bytes: int = 0
    """Of open ledgers, which would stay on this disk."""


def not_cold(metadata: MetadataStore, path: str, report: OnProgress = unseen) -> NotCold:
    """Count the bytes at or below a path that have no cold copy; changes nothing. Raises what must_find raises."""
    segments = size = ledger_bytes = 0
    listed = Meter(report, noun="listed segment")
    for page in directories.pages(metadata.read, path):
        with metadata.read() as txn:
            rows = [message(txn, SEGMENTS, tables.u64(segment_id)) for _, segment_id in page]
            empty = sum(row is not None and not row.length and _is_empty_ledger(txn, row.id) for row in rows)
        segments += empty
        for row in rows:
            if row is None:  # gone meanwhile
                continue
            alone_bytes, _ = sums.here_alone(row)
            if row.kind == SegmentKind.LEDGER and row.status == SegmentStatus.OPEN:
                ledger_bytes += alone_bytes
            elif alone_bytes:
                segments, size = segments + 1, size + alone_bytes
        listed(0, page[-1][0] if page else path, len(page))
    return NotCold(segments, size, ledger_bytes)


def _is_empty_ledger(txn: ReadTransaction, segment_id: int) -> bool:
    """Return whether a segment is a ledger of empty entries that is to be offloaded."""
    segment = directories.segment(txn, SegmentId(segment_id))
    return segment is not None and empty_ledgers.is_due(txn, segment)


@dataclass(slots=True)
class _Planned:
    """A segment of which objects are being made."""

    name: str
    actions: int = 0
    """Whose outcome is not known yet."""
    unlinked: int = 0
    """Whose bytes are not cold yet."""
    uploaded: bool = False


class Upload:
    """One run of the command; used once. It remembers the segments in work, not all."""

    def __init__(
        self,
        metadata: MetadataStore,
        offload: Callable[[OffloadAction], int],
        packs: PackOffload,
        settings: OffloadSettings,
        meter: Meter,
        ends: PartEnds | None = None,
        extra: Mapping[str, str] = NO_EXTRA,
    ) -> None:
        """Prepare a run. `offload` makes one object and returns the bytes that became cold; raises as Offload.run.

        `extra`: checked extra metadata of packs; `offload` knows those of other objects.

        `meter`: of all local bytes and segments. `ends`: chunks after these offsets stay, and so do segments that are
        not in it.
        """
        self._ends = ends
        self._metadata = metadata
        self._offload = offload
        self._packs = packs
        self._extra = extra
        self._pack_below_bytes = settings.pack_below_bytes
        self._in_parallel = settings.objects_in_parallel
        self._meter = meter
        self._total = meter.total_bytes
        self._planned: dict[SegmentId, _Planned] = {}
        self._first_round = True
        self._counting = threading.Lock()
        self._moved: dict[SegmentId, str] = {}
        self._counted: set[SegmentId] = set()
        """Of those that are planned again: whether they count as uploaded."""
        self._error: TierfsError | None = None
        self.done = OffloadReport()

    def run(self, list_segments: Callable[[], Iterable[Named]]) -> OffloadReport:
        """Upload all bytes that are not cold, of segments in pages; plan those again whose chunks moved meanwhile.

        A concat may have moved the chunks to another segment, so `list_segments` is then called again. Raises the first
        error after all uploads were attempted, Conflict if segments keep changing.
        """
        pages = list_segments()
        with Pool(self._in_parallel, "tierfs-offload") as pool:
            for _ in range(_REPLANS):
                actions = self._actions(pages)
                for action, outcome in pool.as_completed(caught(self._carry_out), actions, ahead=self._in_parallel):
                    self._note(action, outcome)
                moved, gone = self._moved_meanwhile()
                if not moved:
                    break
                pages, self._first_round = list_segments() if gone else [moved], False
        if moved and self._error is None:
            self._error = Conflict(f"{names.printable(moved[0][0])} keeps changing", remedy="run the command again")
        if self._error is not None:
            raise self._error
        cold = max(0, self._total - self.done.bytes)
        return replace(self.done, already_cold_bytes=cold)

    def _moved_meanwhile(self) -> tuple[Named, bool]:
        """Return the segments to plan again, and whether any is gone, so that its bytes may be another's."""
        moved, self._moved = self._moved, {}
        with self._metadata.read() as txn:
            segments = (directories.segment(txn, segment_id) for segment_id in moved)
            gone = any(segment is None or directories.is_going(txn, segment) for segment in segments)
        return [(name, segment_id) for segment_id, name in moved.items()], gone

    def _actions(self, pages: Iterable[Named]) -> Iterator[OffloadAction | PackAction]:
        """Yield the objects to make, planned on demand; small ones are packed."""
        parts = (
            page[first : first + _PLANNED_TOGETHER]
            for page in pages
            for first in range(0, len(page), _PLANNED_TOGETHER)
        )
        return packed((action for part in parts for action in self._plan(part)), self._pack_below_bytes)

    def _carry_out(self, action: OffloadAction | PackAction) -> Packed:
        if isinstance(action, PackAction):
            return self._packs.run(action, self._linked, self._extra)
        outcome = Packed(self._offload(action), (action.segment_id,))
        self._linked(outcome)
        return outcome

    def _plan(self, segments: Named) -> list[OffloadAction]:
        actions: list[OffloadAction] = []
        with self._metadata.read() as txn:
            cache, sums = PolicyCache(), txn.sums
            has_suspects = sums is None or sums.suspect_local_bytes > 0
            for name, segment_id in segments:
                try:
                    segment = directories.segment(txn, segment_id)
                    if segment is not None and not _is_open_ledger(segment):
                        actions += self._plan_one(txn, cache, name, segment, has_suspects=has_suspects)
                except DataLoss as exc:  # the other segments are still uploaded
                    self._error = self._error or exc
        return actions

    def _plan_one(
        self, txn: ReadTransaction, cache: PolicyCache, name: str, segment: SegmentRecord, *, has_suspects: bool
    ) -> list[OffloadAction]:
        end = None if self._ends is None else self._ends.of(segment)
        planned: list[OffloadAction] = []
        try:
            if segment.local.count or segment.kind is SegmentKind.LEDGER:  # of a ledger without bytes its record is
                planned += objects_to_make(txn, segment, cache.of(txn, segment).values, end)
            if has_suspects:
                self._refuse_suspect(txn, name, segment)
        except DataLoss as exc:  # what was planned of it before is uploaded
            self._error = self._error or exc
        if self._first_round:
            left_bytes = sum(action.range.length_bytes for action in planned)
            self._meter(max(0, segment.local.bytes - left_bytes), name, not planned)
        if planned:
            self._expect(segment.id, name, len(planned))
        return planned

    def _expect(self, segment_id: SegmentId, name: str, actions: int) -> None:
        with self._counting:
            planned = self._planned.setdefault(segment_id, _Planned(name))
            planned.actions += actions
            planned.unlinked += actions

    def _refuse_suspect(self, txn: ReadTransaction, name: str, segment: SegmentRecord) -> None:
        """Record an error for damaged chunks without a cold copy: they are not uploaded, so the command must fail."""
        suspect = [chunk for chunk in sealed_local_chunks(txn, segment) if chunk.state is ChunkState.SUSPECT]
        cold = cold_copies(
            suspect,
            placed_cold(txn, segment),
            published_sequence=txn.store.next_outbox,
            start_offset=segment.start_offset,
        )
        uncopied = {chunk.start_offset for chunk in suspect} - {chunk.start_offset for chunk, _ in cold}
        if uncopied:
            self._error = self._error or DataLoss(
                f"{names.printable(name)}: the chunk at {min(uncopied)} is damaged and has no other copy",
                remedy="rescue its readable bytes: tierfs check --read --repair",
            )

    def _note(self, action: OffloadAction | PackAction, outcome: Packed | TierfsError) -> None:
        parts = action.actions if isinstance(action, PackAction) else (action,)
        cold: Sequence[SegmentId] = ()
        if isinstance(outcome, ChunksMoved):
            self._moved.update((part.segment_id, self._planned[part.segment_id].name) for part in parts)
        elif isinstance(outcome, TierfsError):
            self._error = self._error or outcome
        else:
            cold = outcome.segments
            self._moved.update((segment_id, self._planned[segment_id].name) for segment_id in outcome.moved)
            for _, error in outcome.failed:
                self._error = self._error or error
        if cold and isinstance(outcome, Packed):
            self.done = replace(self.done, objects=self.done.objects + 1, bytes=self.done.bytes + outcome.bytes)
        self._forget(parts, set(cold))

    def _forget(self, parts: Sequence[OffloadAction], cold: Collection[SegmentId]) -> None:
        """Count the segments whose last action this was."""
        with self._counting:
            for part in parts:
                segment_id = part.segment_id
                planned = self._planned[segment_id]
                planned.actions -= 1
                planned.uploaded |= segment_id in cold
                if planned.actions:
                    continue
                del self._planned[segment_id]
                if planned.uploaded and segment_id not in self._counted:
                    self.done = replace(self.done, segments=self.done.segments + 1)
                    if segment_id in self._moved:
                        self._counted.add(segment_id)

    def _linked(self, outcome: Packed) -> None:
        """Count what became cold; a segment once none of its actions is left. Any thread calls it."""
        if outcome.segments:
            with self._counting:
                for segment_id in outcome.segments:
                    self._planned[segment_id].unlinked -= 1
                whole = sum(not self._planned[segment_id].unlinked for segment_id in set(outcome.segments))
                name = self._planned[outcome.segments[-1]].name
            self._meter(outcome.bytes, name, whole)


def _is_open_ledger(segment: SegmentRecord) -> bool:
    """Return whether a segment cannot be made cold yet."""
    return segment.kind is SegmentKind.LEDGER and not segment.sealed
