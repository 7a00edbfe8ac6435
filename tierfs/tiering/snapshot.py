"""The planner's view of the store, kept current from the database's own list of changes.

A refresh costs the changes since the last one, never the number of segments. A new holder, or a change of a
directory's policy, reads every segment once; that too is done in slices, so that a mount's readers run in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from tierfs.base.words import names
from tierfs.base.words.types import SegmentId, SegmentKind, SegmentStatus, Tier
from tierfs.engine.metadata import chains, directories, empty_ledgers, sums, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.message_rows import message
from tierfs.engine.metadata.policies import PolicyCache
from tierfs.engine.metadata.record_parts import NOT_REMOVED
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.candidates import (
    OffloadAction,
    action_ended_ms,
    active_since_ms,
    cold_copies,
    objects_to_make,
    placed_cold,
    sealed_local_chunks,
)
from tierfs.tiering.changed_segments import ChangedSegments
from tierfs.tiering.offload_queue import ObjectKey
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import ColdCopy, PendingObject, SegmentSummary, StreamPlace

# Length of one slice of a refresh, apart from its last segment: half of a tick's budget.
SLICE_S = 0.01

# Segments read between two checks of the time: some 5 ms.
_STEP = 20

_MOST_OBJECTS = 32
# Objects to make and copies to evict that a view shows of one segment, from its beginning: some 5 ms for both. The next
# ones appear once these are made and evicted.
_MOST_COPIES = 64

# Objects that cannot be made, as of missing files, that a view shows in addition: some 20 ms (a guess).
_MOST_STUCK = 256

# Growing chunks measured at once: some 10 ms.
_MOST_ACTIVE = 2000


def _never(_: ObjectKey) -> bool:
    return False


class Snapshots:
    """Feeder of the planner with views of one store's segments. One thread at a time."""

    def __init__(
        self, metadata: MetadataStore, planner: Planner, is_stuck: Callable[[ObjectKey], bool] = _never
    ) -> None:
        """Begin with nothing read. Objects that `is_stuck` names fail for a reason of their own and hide no others."""
        self._metadata = metadata
        self._planner = planner
        self._is_stuck = is_stuck
        # A damaged row is looked at, to be listed as failed.
        self._changed = ChangedSegments(
            metadata, lambda row: row is None or _may_act(row), lambda: [view.id for view in planner.views]
        )
        self._first: dict[SegmentId, None] = {}
        """Segments to read before those that changed."""
        self._growing: list[SegmentId] = []
        """Segments still to be measured in the current round."""
        self.failed: dict[SegmentId, Exception] = {}
        """Segments that could not be read last time; the planner has no view of them."""

    def refresh(self, first: Iterable[SegmentId] = (), *, slice_s: float | None = None) -> bool:
        """Read the changed segments, `first` before all others, for about `slice_s`; return whether all were read."""
        started_s = self._metadata.clock.monotonic_s()
        self._changed.refresh()
        self._first.update(dict.fromkeys(first))
        for step in self._steps():
            self._look_at(step)
            if slice_s is not None and self._metadata.clock.monotonic_s() - started_s >= slice_s:
                break
        return not self._first and not self._changed.queue and not self._changed.passes

    def is_awaited(self, segment_id: SegmentId) -> bool:
        """Return whether a segment passed as `first` has not been read yet."""
        return segment_id in self._first

    def try_again(self, may_try: Callable[[SegmentId], bool]) -> None:
        """Queue the failed segments that `may_try` allows."""
        for segment_id in [failed for failed in self.failed if may_try(failed)]:
            del self.failed[segment_id]
            self._changed.queue[segment_id] = None

    def _steps(self) -> Iterator[list[SegmentId]]:
        """Yield a few segments at a time until none is left: those of `_first`, changed ones, then those of a pass.

        `_look_at` takes them out of the queue, so that none is lost to an error.
        """
        queue = self._changed.queue
        while self._first or queue or self._changed.passes:
            if not self._first and not queue:
                self._changed.scan()
            yield list(itertools.islice(self._first or queue, _STEP))

    def refresh_active(self) -> None:
        """Measure active chunks, whose growth is not in the list of changes: in turn, some thousands per call."""
        if not self._growing:
            self._growing = list(self._planner.active)
        turn, self._growing = self._growing[:_MOST_ACTIVE], self._growing[_MOST_ACTIVE:]
        with self._metadata.read() as txn:
            for segment_id in turn:
                view, row = self._planner.view_of(segment_id), message(txn, SEGMENTS, tables.u64(segment_id))
                if view is not None and row is not None and row.active:
                    alone, size = sums.here_alone(row)
                    cold = 0 if alone else row.length - row.local.last_chunk
                    local = row.local.bytes
                    self._planner.put(replace(view, local_bytes=local, active_bytes=size, active_cold_bytes=cold))

    def _look_at(self, segment_ids: Iterable[SegmentId]) -> None:
        with self._metadata.read() as txn:
            cache = PolicyCache()
            for segment_id in segment_ids:
                self.failed.pop(segment_id, None)
                try:
                    waits_for = self._look_at_one(txn, segment_id, cache)
                except Exception as exc:  # any error: one segment must not stop the others
                    self.failed[segment_id] = exc
                    self._planner.drop(segment_id)
                    waits_for = 0
                self._changed.wait_for(segment_id, waits_for)
                self._first.pop(segment_id, None)
                self._changed.queue.pop(segment_id, None)

    def _look_at_one(self, txn: ReadTransaction, segment_id: SegmentId, cache: PolicyCache) -> int:
        """Give the planner a segment's view; return the next journal sequence that changes it, or 0."""
        row = txn.message(SEGMENTS, tables.u64(segment_id))  # thousands of evicted ones need no more
        segment = directories.segment(txn, segment_id) if row is not None and _may_act(row) else None
        if segment is not None and not segment.local.count and not empty_ledgers.is_due(txn, segment):
            segment = None
        removal = NOT_REMOVED if segment is None else directories.top(txn, segment).removal
        is_deleted = segment is None or (not removal.due_ms and directories.is_going(txn, segment))
        if segment is None or is_deleted:
            self._planner.drop(segment_id)
            return 0
        view, waits_for = view_of(txn, segment, cache, self._is_stuck)
        if removal.due_ms:
            idle = replace(view, ledger=False, place=None, pending=(), active_since_ms=0, active_bytes=0)
            view = replace(idle, removed_ms=removal.removed_ms)
        self._planner.put(view)
        return waits_for


def _may_act(row: Any) -> bool:
    """Return whether a segment may have something to do, by its row: local bytes, or entries that are all empty."""
    is_closed_ledger = row.kind == SegmentKind.LEDGER and row.status != SegmentStatus.OPEN
    return bool(row.local.count or (is_closed_ledger and not row.length))


def view_of(
    txn: ReadTransaction, segment: SegmentRecord, cache: PolicyCache, is_stuck: Callable[[ObjectKey], bool]
) -> tuple[SegmentSummary, int]:
    """Return the planner's view of a segment with local bytes, and the next journal sequence that changes it.

    The sequence is 0 when the journal names all its cold bytes.
    """
    active = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.local.last_chunk) if segment.active else None
    policy = cache.of(txn, segment).values
    published = txn.store.journal.published_sequence
    unpublished: set[int] = set()

    def cold() -> Iterator[PlacedChunk]:
        for placed in placed_cold(txn, segment):
            if placed.object.linked_sequence > published:
                unpublished.add(placed.object.linked_sequence)
            yield placed

    copies = cold_copies(
        sealed_local_chunks(txn, segment), cold(), published_sequence=published, start_offset=segment.start_offset
    )
    first = [ColdCopy(since_ms, chunk.length) for chunk, since_ms in itertools.islice(copies, _MOST_COPIES)]
    objects = _first_objects(objects_to_make(txn, segment, policy), is_stuck)
    view = SegmentSummary(
        id=segment.id,
        policy=policy,
        local_bytes=segment.local.bytes,
        active_since_ms=active_since_ms(txn, segment, active),
        active_bytes=segment.growing_bytes,
        active_cold_bytes=0 if active is None or segment.uncovered_bytes else active.length,
        ledger=segment.kind is SegmentKind.LEDGER,
        place=_place(segment),
        pending=tuple(PendingObject(action, action_ended_ms(txn, segment, action)) for action in objects),
        copies=tuple(sorted(first, key=lambda copy: copy.cold_since_ms)),
    )
    return view, min(unpublished, default=0)


def _place(segment: SegmentRecord) -> StreamPlace | None:
    if segment.kind is SegmentKind.LEDGER:
        ledger_id = names.ledger_id(segment.name)
        number = segment.id if ledger_id is None else ledger_id
        here_alone = 0 if segment.cold.count else segment.length
        stream = (segment.parent_id, "")
    else:
        number, stream = segment.first_offset, (segment.parent_id, segment.stream)
        # What grows cannot be offloaded before its chunk ends.
        here_alone = segment.uncovered_bytes - segment.growing_bytes
    return StreamPlace(stream, number, here_alone) if here_alone > 0 else None


def _first_objects(actions: Iterable[OffloadAction], is_stuck: Callable[[ObjectKey], bool]) -> Iterator[OffloadAction]:
    """Yield the first objects to make, as many as a view shows; stuck ones are included and do not count."""
    room = _MOST_OBJECTS
    for action in itertools.islice(actions, _MOST_OBJECTS + _MOST_STUCK):
        yield action
        room -= not is_stuck((action.segment_id, action.range.start))
        if not room:
            return
