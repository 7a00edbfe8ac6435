"""What the planner knows of the store, kept current by the database's own list of changes.

A look costs what changed since the last one, never the number of segments. Everything is looked at once by a new
holder and when a directory's policy changes; that, too, goes in slices, so that a mount's readers get their turn in
between.

Which segments changed since somebody looked last, from the database's own list of changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tierfs import names
from tierfs.metadata import chains, directories, tables
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.policies import Effective
from tierfs.metadata.records import ChunkRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS, TOUCHES
from tierfs.metadata.transaction import ReadTransaction
from tierfs.metadata.untrusted import message, messages
from tierfs.tiering.candidates import (
    OffloadAction,
    cold_copies,
    ended_ms,
    objects_to_make,
    placed_cold,
    sealed_local_chunks,
)
from tierfs.tiering.offload_queue import ObjectKey, Ordered
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import ColdCopy, LedgerPlace, PendingObject, SegmentSummary
from tierfs.types import SegmentId, SegmentKind, SegmentStatus, Tier


@dataclass(frozen=True, slots=True)
class Touched:
    """What changed between two looks."""

    segments: frozenset[SegmentId] = frozenset()
    """Those that the list names, also when everything has to be looked at."""
    own_policies: frozenset[SegmentId] = frozenset()
    """Those of them whose own settings changed."""
    everything: bool = False
    """Whether all segments have to be looked at: a directory's policy changed, or rows of the list are gone."""


class TouchedSegments:
    """One look after another. One thread at a time."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next_touch: int | None = None

    def since_last(self) -> Touched:
        """What changed since the last call; everything at the first one."""
        with self._metadata.read() as txn:
            newest = txn.store.next_change
            touched = Touched(everything=True) if self._next_touch is None else _between(txn, self._next_touch, newest)
        self._next_touch = newest
        return touched


def _between(txn: ReadTransaction, since: int, newest: int) -> Touched:
    segments: set[SegmentId] = set()
    own_policies: set[SegmentId] = set()
    everything, expected = False, since
    for key, touch in messages(txn, TOUCHES, tables.u64(since)):
        everything |= tables.read_u64(key) != expected or touch is None
        expected = tables.read_u64(key) + 1
        if touch is None:  # damaged: it could have named any segment
            continue
        everything |= touch.policies and not touch.segment_id
        if touch.segment_id:
            segments.add(SegmentId(touch.segment_id))
        if touch.segment_id and touch.policies:
            own_policies.add(SegmentId(touch.segment_id))
    return Touched(frozenset(segments), frozenset(own_policies), everything or expected != newest)


SLICE_S = 0.01
"""How long one slice of a look takes, but for its last segment: half of what a tick may cost."""

_STEP = 20
"""Segments looked at between two looks at the time: some 5 ms."""

_MOST_OBJECTS = 32
_MOST_COPIES = 64
"""Objects to make and copies to evict that a view shows of one segment, from its beginning on: some 5 ms for both.
The next ones show once these are made and gone."""

_MOST_STUCK = 256
"""Objects that cannot be made, as of missing files, that a view shows besides: some 20 ms (guess)."""

_MOST_ACTIVE = 2000
"""Growing chunks measured at once: some 10 ms."""

_SCAN_ROWS = 500
"""Rows of a pass over all that are read at once, to find segments with local bytes: some 2 ms."""


def _never(_: ObjectKey) -> bool:
    return False


class Snapshots:
    """Tells the planner of one store's segments. One thread at a time."""

    def __init__(
        self, metadata: MetadataStore, planner: Planner, is_stuck: Callable[[ObjectKey], bool] = _never
    ) -> None:
        """`is_stuck` tells of objects whose upload fails for a reason of their own: they hide no others."""
        self._metadata = metadata
        self._planner = planner
        self._is_stuck = is_stuck
        self._touched = TouchedSegments(metadata)
        self._first: dict[SegmentId, None] = {}
        self._queue: dict[SegmentId, None] = {}
        """To be looked at, in this order, after those that come first."""
        self._waits: Ordered[SegmentId] = Ordered()
        """Segments of which the journal does not name all cold bytes, by the next sequence that matters."""
        self._scan_from: bytes | None = None
        """Key of the next segment of a pass over all; None when there is no such pass."""
        self._again = False
        """Whether another pass follows: one that began anew with each change would never reach the newest segments."""
        self._growing: list[SegmentId] = []
        """Segments whose growth is to be measured before all are in turn again."""
        self._unseen: set[SegmentId] = set()
        """Segments that were known before the pass and that it did not meet yet."""
        self.failed: dict[SegmentId, Exception] = {}
        """Segments that the last look at them could not read; the planner knows nothing of them."""

    def refresh(self, first: Iterable[SegmentId] = (), *, slice_s: float | None = None) -> bool:
        """Look at what changed, at `first` before all else, for about `slice_s`; False when more is left to look at."""
        started_s = self._metadata.clock.monotonic_s()
        self._note_changes()
        self._first.update(dict.fromkeys(first))
        for step in self._steps():
            self._look_at(step)
            if slice_s is not None and self._metadata.clock.monotonic_s() - started_s >= slice_s:
                break
        return not self._first and not self._queue and self._scan_from is None

    def is_awaited(self, segment_id: SegmentId) -> bool:
        """Whether a segment that was to come first was not looked at yet."""
        return segment_id in self._first

    def try_again(self, may_try: Callable[[SegmentId], bool]) -> None:
        """Queue the segments that failed and that `may_try` allows."""
        for segment_id in [found for found in self.failed if may_try(found)]:
            del self.failed[segment_id]
            self._queue[segment_id] = None

    def _note_changes(self) -> None:
        touched = self._touched.since_last()
        self._queue.update(dict.fromkeys(sorted(touched.segments)))
        if touched.everything and self._scan_from is not None:
            self._again = True
        elif touched.everything:
            self._begin_pass()
        with self._metadata.read() as txn:
            self._queue.update(dict.fromkeys(self._waits.pop_below(txn.store.journal.published_sequence)))

    def _begin_pass(self) -> None:
        self._scan_from, self._again = b"", False
        self._unseen = {view.id for view in self._planner.views}

    def _steps(self) -> Iterator[list[SegmentId]]:
        """A few segments at a time until none is left: what comes first, what changed, then what a pass over all meets.

        A look takes them out of the queue, so that none is lost to an error.
        """
        while self._first or self._queue or self._scan_from is not None:
            if not self._first and not self._queue and self._scan_from is not None:
                self._queue.update(dict.fromkeys(self._scan_step(self._scan_from)))
            yield list(itertools.islice(self._first or self._queue, _STEP))

    def _scan_step(self, start: bytes) -> Iterable[SegmentId]:
        """The next segments of the pass over all that have local bytes; at its end those that it did not meet."""
        with self._metadata.read() as txn:
            rows = list(itertools.islice(messages(txn, SEGMENTS, start), _SCAN_ROWS))
        found = [SegmentId(tables.read_u64(key)) for key, row in rows if row is None or row.local.count]
        self._unseen.difference_update(found)
        if len(rows) == _SCAN_ROWS:
            self._scan_from = rows[-1][0] + b"\0"
            return found
        found += self._unseen
        self._scan_from = None
        if self._again:
            self._begin_pass()
        return found

    def refresh_active(self) -> None:
        """Measure chunks that are appended to, which grow without a word: all in turn, some thousands at once."""
        if not self._growing:
            self._growing = list(self._planner.active)
        turn, self._growing = self._growing[:_MOST_ACTIVE], self._growing[_MOST_ACTIVE:]
        with self._metadata.read() as txn:
            for segment_id in turn:
                view, row = self._planner.view_of(segment_id), message(txn, SEGMENTS, tables.u64(segment_id))
                if view is not None and row is not None and row.active:
                    size = row.length - row.local.last_chunk
                    self._planner.put(replace(view, local_bytes=row.local.bytes, active_bytes=size))

    def _look_at(self, segment_ids: Iterable[SegmentId]) -> None:
        with self._metadata.read() as txn:
            effective = Effective(txn)
            for segment_id in segment_ids:
                self.failed.pop(segment_id, None)
                try:
                    waits_for = self._look_at_one(txn, segment_id, effective)
                except Exception as exc:  # whatever it is, the other segments go on
                    self.failed[segment_id] = exc
                    self._planner.drop(segment_id)
                    waits_for = 0
                if waits_for:
                    self._waits.put(segment_id, waits_for)
                else:
                    self._waits.remove(segment_id)
                self._first.pop(segment_id, None)
                self._queue.pop(segment_id, None)

    def _look_at_one(self, txn: ReadTransaction, segment_id: SegmentId, effective: Effective) -> int:
        """Tell the planner of a segment; returns the next sequence of the journal that matters, or 0."""
        segment = directories.segment(txn, segment_id)
        if segment is None or not segment.local.count or segment.status is SegmentStatus.DELETED:
            self._planner.drop(segment_id)
            return 0
        view, waits_for = view_of(txn, segment, effective, self._is_stuck)
        self._planner.put(view)
        return waits_for


def view_of(
    txn: ReadTransaction, segment: SegmentRecord, effective: Effective, is_stuck: Callable[[ObjectKey], bool]
) -> tuple[SegmentSummary, int]:
    """What the planner has to know of a segment with local bytes, and the next sequence of the journal that matters.

    That is 0 when the journal names all cold bytes there are.
    """
    active = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.local.last_chunk) if segment.active else None
    policy = effective.of(segment)
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
    some = [ColdCopy(since_ms, chunk.length) for chunk, since_ms in itertools.islice(copies, _MOST_COPIES)]
    objects = _first_objects(objects_to_make(txn, segment, policy.object_bytes), is_stuck)
    view = SegmentSummary(
        id=segment.id,
        policy=policy,
        local_bytes=segment.local.bytes,
        active_since_ms=_active_since_ms(txn, segment, active),
        active_bytes=active.length if active is not None else 0,
        ledger=_ledger_place(segment) if segment.kind is SegmentKind.LEDGER else None,
        pending=tuple(PendingObject(action, _ended_ms(txn, segment, action)) for action in objects),
        copies=tuple(sorted(some, key=lambda copy: copy.cold_since_ms)),
    )
    return view, min(unpublished, default=0)


def _ledger_place(segment: SegmentRecord) -> LedgerPlace:
    ledger_id = names.ledger_id(segment.name)
    here_alone = 0 if segment.cold.count else segment.length
    return LedgerPlace(segment.parent_id, segment.id if ledger_id is None else ledger_id, here_alone)


def _active_since_ms(txn: ReadTransaction, segment: SegmentRecord, active: ChunkRecord | None) -> int:
    if segment.kind is SegmentKind.LEDGER:
        return 0 if segment.sealed else segment.began_ms
    return 0 if active is None else chains.object_of(txn, active).created_ms


def _ended_ms(txn: ReadTransaction, segment: SegmentRecord, action: OffloadAction) -> int:
    return segment.sealed_ms if action.ledger else ended_ms(txn, segment, action.chunks[0])


def _first_objects(actions: Iterable[OffloadAction], is_stuck: Callable[[ObjectKey], bool]) -> Iterator[OffloadAction]:
    """The first objects to make, as many as a view shows; stuck ones come along and do not count."""
    left = _MOST_OBJECTS
    for action in itertools.islice(actions, _MOST_OBJECTS + _MOST_STUCK):
        yield action
        left -= not is_stuck((action.segment_id, action.range.start))
        if not left:
            return
