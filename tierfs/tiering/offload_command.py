"""The uploads of one `offload` command: a bounded number in parallel, all attempted, the first error kept."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tierfs import names
from tierfs.config import OffloadSettings
from tierfs.errors import Conflict, DataLoss, TierfsError
from tierfs.metadata import directories
from tierfs.metadata.policies import PolicyCache
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction
from tierfs.parallel import Meter, OnProgress, Pool, caught
from tierfs.tiering.candidates import (
    OffloadAction,
    PackAction,
    cold_copies,
    objects_to_make,
    packed,
    placed_cold,
    sealed_local_chunks,
)
from tierfs.tiering.objects import ChunksMoved
from tierfs.tiering.packs.packing import Packed, PackOffload
from tierfs.tiering.part import Ends
from tierfs.types import ChunkState, SegmentId

# Plans made again because chunks moved meanwhile; another process made progress each time.
_REPLANS = 3

# Segments planned in one transaction: some 20 ms.
_PLANNED_TOGETHER = 200

# Segments with their full names.
Named = list[tuple[str, SegmentId]]


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


class Upload:
    """One run of the command; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        offload: Callable[[OffloadAction], int],
        packs: PackOffload,
        settings: OffloadSettings,
        report: OnProgress,
        total_bytes: int,
        ends: Ends | None = None,
    ) -> None:
        """Prepare a run. `offload` makes one object and returns the bytes that became cold; raises as Offload.run.

        `ends`: chunks after these offsets stay, and so do segments that are not in it.
        """
        self._ends = ends
        self._metadata = metadata
        self._offload = offload
        self._packs = packs
        self._pack_below_bytes = settings.pack_below_bytes
        self._in_parallel = settings.objects_in_parallel
        self._meter = Meter(report, total_bytes)
        self._total = total_bytes
        self._names: dict[SegmentId, str] = {}
        """Names of planned segments."""
        self._waiting = Counter[SegmentId]()
        """Actions of planned segments that are left to do."""
        self._counting = threading.Lock()
        self._moved: dict[SegmentId, str] = {}
        self._uploaded: set[SegmentId] = set()
        self._error: TierfsError | None = None
        self.done = OffloadReport()

    def run(self, segments: Named, list_segments: Callable[[], Named]) -> OffloadReport:
        """Upload all bytes that are not cold; plan segments again whose chunks moved meanwhile.

        A concat may have moved the chunks to another segment, so `list_segments` is then called. Raises the first
        error after all uploads were attempted, Conflict if segments keep changing.
        """
        self._meter.total_items = len(segments)
        with Pool(self._in_parallel, "tierfs-offload") as pool:
            for _ in range(_REPLANS):
                actions = self._actions(segments)
                for action, outcome in pool.as_completed(caught(self._carry_out), actions, ahead=self._in_parallel):
                    self._note(action, outcome)
                segments = self._moved_meanwhile(list_segments)
                if not segments:
                    break
        if segments and self._error is None:
            self._error = Conflict(f"{names.printable(segments[0][0])} keeps changing", remedy="run the command again")
        if self._error is not None:
            raise self._error
        cold = max(0, self._total - self.done.bytes)
        return replace(self.done, segments=len(self._uploaded), already_cold_bytes=cold)

    def _moved_meanwhile(self, list_segments: Callable[[], Named]) -> Named:
        """Return the segments to plan again."""
        moved, self._moved = self._moved, {}
        with self._metadata.read() as txn:
            segments = (directories.segment(txn, segment_id) for segment_id in moved)
            gone = any(segment is None or directories.is_going(txn, segment) for segment in segments)
        return list_segments() if gone else [(name, segment_id) for segment_id, name in moved.items()]

    def _actions(self, segments: Named) -> Iterator[OffloadAction | PackAction]:
        """Yield the objects to make, planned on demand; small ones are packed."""
        parts = (segments[first : first + _PLANNED_TOGETHER] for first in range(0, len(segments), _PLANNED_TOGETHER))
        return packed((action for part in parts for action in self._plan(part)), self._pack_below_bytes)

    def _carry_out(self, action: OffloadAction | PackAction) -> Packed:
        if isinstance(action, PackAction):
            return self._packs.run(action, self._linked)
        outcome = Packed(self._offload(action), (action.segment_id,))
        self._linked(outcome)
        return outcome

    def _plan(self, segments: Named) -> list[OffloadAction]:
        actions: list[OffloadAction] = []
        with self._metadata.read() as txn:
            cache = PolicyCache()
            for name, segment_id in segments:
                planned: list[OffloadAction] = []
                segment = directories.segment(txn, segment_id)
                try:
                    if segment is not None:
                        end = None if self._ends is None else self._ends.get(segment_id, 0)
                        planned += objects_to_make(txn, segment, cache.of(txn, segment).values.object_bytes, end)
                        self._refuse_suspect(txn, name, segment)
                except DataLoss as exc:  # the other segments are still uploaded
                    self._error = self._error or exc
                actions += planned
                if segment_id not in self._names and segment is not None:
                    left_bytes = sum(action.range.length_bytes for action in planned)
                    self._meter(max(0, segment.local.bytes - left_bytes), name, not planned)
                self._names[segment_id] = name
                self._waiting[segment_id] = len(planned)
        return actions

    def _refuse_suspect(self, txn: ReadTransaction, name: str, segment: SegmentRecord) -> None:
        """Record an error for damaged chunks without a cold copy: they are not uploaded, so the command must fail."""
        if txn.sums is not None and not txn.sums.suspect_local_bytes:
            return
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
        actions = action.actions if isinstance(action, PackAction) else (action,)
        named = {part.segment_id: self._names[part.segment_id] for part in actions}
        if isinstance(outcome, ChunksMoved):
            self._moved.update(named)
            return
        if isinstance(outcome, TierfsError):
            self._error = self._error or outcome
            return
        self._uploaded.update(outcome.segments)
        self._moved.update((segment_id, named[segment_id]) for segment_id in outcome.moved)
        for _, error in outcome.failed:
            self._error = self._error or error
        if outcome.segments:
            self.done = replace(self.done, objects=self.done.objects + 1, bytes=self.done.bytes + outcome.bytes)

    def _linked(self, outcome: Packed) -> None:
        """Count what became cold; a segment once none of its actions is left. Any thread calls it."""
        if outcome.segments:
            with self._counting:
                self._waiting.subtract(outcome.segments)
                whole = sum(not self._waiting[segment_id] for segment_id in set(outcome.segments))
            self._meter(outcome.bytes, self._names[outcome.segments[-1]], whole)
