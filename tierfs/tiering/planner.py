"""Planner: what the background writer does next, kept current segment by segment (design §11).

Nothing here reads a clock, a disk or a database, and nothing looks at all segments: a view that changed costs
O(log n), and so does each action. `snapshot.py` makes the views, `holder/writer.py` carries the actions out; an action
that is planned twice is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tierfs.tiering.offload_queue import ObjectKey, OffloadQueue, Ordered, SizeTrigger
from tierfs.tiering.policy import ColdCopy, DiskView, EvictAction, PendingObject, SegmentSummary
from tierfs.types import SegmentId

_NEVER_MS = 1 << 62
"""Longer than any time."""


@dataclass(frozen=True, slots=True)
class Actions:
    """What to do now besides offloads, which are taken one by one."""

    rolls: tuple[SegmentId, ...] = ()
    evictions: tuple[EvictAction, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """Bytes that are on the local disk alone."""

    pending_bytes: int
    """Of complete chunks."""
    active_bytes: int
    """Of chunks that are still appended to."""

    @property
    def bytes(self) -> int:
        """Both."""
        return self.pending_bytes + self.active_bytes


def _no_groups(_: PendingObject) -> bool:
    return False


class Planner:
    """Ordered queues over the views of all segments with local bytes. One thread at a time."""

    def __init__(self, is_small: Callable[[PendingObject], bool] = _no_groups) -> None:
        """`is_small` tells which objects `take_offloads` may hand out together."""
        self._views: dict[SegmentId, SegmentSummary] = {}
        self.offloads = OffloadQueue(is_small)
        self._began: Ordered[SegmentId] = Ordered()
        """Segments with an active chunk, by its begin; then when it is old enough; then the largest first."""
        self._roll_due: Ordered[SegmentId] = Ordered()
        self._active_size: Ordered[SegmentId] = Ordered()
        self._evict_due: Ordered[SegmentId] = Ordered()
        """Segments with copies that may go, by the time at which the first one's lag has passed; then by its age."""
        self._first_cold: Ordered[SegmentId] = Ordered()
        self._by_size = SizeTrigger()
        self._pressed = False
        self.local_bytes = 0
        self.active_bytes = 0
        self._staying_bytes = 0
        """Of active chunks that may not end early."""

    def __contains__(self, segment_id: SegmentId) -> bool:
        return segment_id in self._views

    @property
    def views(self) -> list[SegmentSummary]:
        """All views; for tests."""
        return list(self._views.values())

    @property
    def active(self) -> Iterator[SegmentId]:
        """Segments that are being appended to."""
        return iter(self._began)

    @property
    def oldest_ms(self) -> int:
        """Since when the oldest byte has been on the local disk alone; 0 when there is none."""
        began = self._began.first()
        found = [self.offloads.oldest_ms, None if began is None else began[0][0]]
        return min((since_ms for since_ms in found if since_ms is not None), default=0)

    def has_copies(self, segment_id: SegmentId) -> bool:
        """Whether anything of a segment may be evicted, now or later."""
        view = self.view_of(segment_id)
        return view is not None and bool(view.copies) and not view.keeps_local

    def view_of(self, segment_id: SegmentId) -> SegmentSummary | None:
        """What is known of a segment."""
        return self._views.get(segment_id)

    def put(self, view: SegmentSummary) -> None:
        """A segment is new, or changed."""
        old = self._views.get(view.id)
        self.local_bytes += view.local_bytes - (old.local_bytes if old else 0)
        self.active_bytes += view.active_bytes - (old.active_bytes if old else 0)
        self._staying_bytes += _staying_bytes(view) - (_staying_bytes(old) if old else 0)
        self._views[view.id] = view
        self.offloads.replace(old.pending if old else (), view.pending, _wait_ms(view))
        for key in self._by_size.put(view):
            self.offloads.hasten(key)
        self._rank_active(view)
        self._rank_copies(view)

    def drop(self, segment_id: SegmentId) -> None:
        """A segment has no local bytes any more."""
        old = self._views.pop(segment_id, None)
        if old is None:
            return
        self.local_bytes -= old.local_bytes
        self.active_bytes -= old.active_bytes
        self._staying_bytes -= _staying_bytes(old)
        self.offloads.replace(old.pending, (), 0)
        self._by_size.drop(segment_id)
        for queue in (self._began, self._roll_due, self._active_size, self._evict_due, self._first_cold):
            queue.remove(segment_id)

    @property
    def backlog(self) -> Backlog:
        """What the views tell of it: the first objects of a long segment only, and active chunks as they were seen."""
        return Backlog(self.offloads.bytes, self.active_bytes)

    def next(
        self,
        disk: DiskView,
        now_ms: int,
        *,
        backlog: Backlog | None = None,
        lag_counts: bool = True,
        most_evictions: int = 1000,
        may_evict: Callable[[SegmentId], bool] = lambda _: True,
    ) -> Actions:
        """What is due now, but for offloads: those of `take_offloads` are current after this.

        `backlog`, where somebody counts better. Without `lag_counts` the clock is not trusted: nothing is evicted
        because its lag has passed. Segments that `may_evict` refuses make no room, so others are taken for them.
        """
        backlog = backlog or self.backlog
        self._pressed = backlog.bytes > disk.high_unoffloaded_bytes
        self.offloads.advance(now_ms)
        excess_bytes = backlog.active_bytes - self._staying_bytes - disk.high_unoffloaded_bytes
        rolls = tuple(self._rolls(now_ms, excess_bytes))
        cutoffs = self._evictions(disk.excess_bytes, now_ms if lag_counts else 0, most_evictions, may_evict)
        return Actions(rolls, tuple(EvictAction(*cutoff) for cutoff in cutoffs.items()))

    def take_offloads(self, group_bytes: int = 0, least_small: int = 0) -> tuple[PendingObject, ...]:
        """The next object to make, or small ones that go together; see OffloadQueue.take."""
        return self.offloads.take(pressed=self._pressed, group_bytes=group_bytes, least_small=least_small)

    def release(self, key: ObjectKey) -> None:
        """See OffloadQueue.release."""
        self.offloads.release(key)

    def _rank_active(self, view: SegmentSummary) -> None:
        if not view.active_since_ms:
            for queue in (self._began, self._roll_due, self._active_size):
                queue.remove(view.id)
            return
        self._began.put(view.id, view.active_since_ms)
        if not view.may_roll:
            return
        self._roll_due.put(view.id, view.active_since_ms + view.policy.chunk_age_s * 1000)
        self._active_size.put(view.id, -view.active_bytes)

    def _rank_copies(self, view: SegmentSummary) -> None:
        if view.keeps_local or not view.copies:
            self._evict_due.remove(view.id)
            self._first_cold.remove(view.id)
            return
        first = view.copies[0].cold_since_ms
        self._evict_due.put(view.id, first + _lag_ms(view))
        self._first_cold.put(view.id, first)

    def _rolls(self, now_ms: int, excess_bytes: int) -> Iterator[SegmentId]:
        """Active chunks whose age has passed; under pressure also the largest, until what is complete suffices."""
        aged: set[SegmentId] = set()
        for (due_ms,), segment_id in self._roll_due.ascending():
            if due_ms > now_ms:
                break
            aged.add(segment_id)
            excess_bytes -= self._views[segment_id].active_bytes
            yield segment_id
        if excess_bytes <= 0:
            return
        for (negative_bytes,), segment_id in self._active_size.ascending():
            if segment_id not in aged:
                excess_bytes += negative_bytes
                yield segment_id
            if excess_bytes <= 0:
                return

    def _evictions(
        self, excess_bytes: int, now_ms: int, most: int, may_evict: Callable[[SegmentId], bool]
    ) -> dict[SegmentId, int]:
        """Segment -> how far back its copies go: those whose lag has passed; under pressure the oldest besides."""
        cutoffs: dict[SegmentId, int] = {}
        for (due_ms,), segment_id in self._evict_due.ascending():
            if due_ms > now_ms or len(cutoffs) >= most:
                break
            if not may_evict(segment_id):
                continue
            view = self._views[segment_id]
            cutoffs[segment_id] = now_ms - _lag_ms(view)
            excess_bytes -= sum(copy.bytes for copy in _due(view, now_ms))
        if excess_bytes > 0 and len(cutoffs) < most:
            for cold_since_ms, segment_id, size in self._lagging(now_ms):
                if excess_bytes <= 0 or len(cutoffs) >= most:
                    break
                if may_evict(segment_id):
                    excess_bytes -= size
                    cutoffs[segment_id] = cold_since_ms
        return cutoffs

    def _lagging(self, now_ms: int) -> Iterator[tuple[int, SegmentId, int]]:
        """Copies whose lag has not passed, those that were cold first before others; a merge of all segments' lists."""
        merged: Ordered[tuple[SegmentId, int]] = Ordered()
        coming = self._first_cold.ascending()
        following = next(coming, None)
        while True:
            first = merged.first()
            if following is not None and (first is None or following[0] <= first[0]):
                view = self._views[following[1]]
                skipped = sum(1 for _ in _due(view, now_ms))
                if skipped < len(view.copies):
                    merged.put((view.id, skipped), view.copies[skipped].cold_since_ms)
                following = next(coming, None)
                continue
            if first is None:
                return
            (cold_since_ms,), (segment_id, index) = first
            view = self._views[segment_id]
            yield cold_since_ms, segment_id, view.copies[index].bytes
            merged.remove((segment_id, index))
            if index + 1 < len(view.copies):
                merged.put((segment_id, index + 1), view.copies[index + 1].cold_since_ms)


def _staying_bytes(view: SegmentSummary) -> int:
    return 0 if view.may_roll else view.active_bytes


def _lag_ms(view: SegmentSummary) -> int:
    lag_s = view.policy.deletion_lag_s
    return _NEVER_MS if lag_s is None else lag_s * 1000


def _wait_ms(view: SegmentSummary) -> int:
    after_s = view.policy.offload_after_s
    return _NEVER_MS if after_s is None else after_s * 1000


def _due(view: SegmentSummary, now_ms: int) -> Iterator[ColdCopy]:
    """Copies whose lag has passed: the first ones, as they are in order of the time since when they are cold."""
    for copy in view.copies:
        if copy.cold_since_ms > now_ms - _lag_ms(view):
            return
        yield copy
