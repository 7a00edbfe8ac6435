"""Planner: the background writer's next actions, kept current segment by segment (design §11).

Nothing here reads a clock, a disk or a database, and nothing iterates over all segments: a changed view costs
O(log n), and so does each action. `snapshot.py` makes the views, `holder/writer.py` carries the actions out; planning
an action twice is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import SegmentId
from tierfs.tiering.offload_queue import OffloadQueue
from tierfs.tiering.ordered import Ordered
from tierfs.tiering.policy import ColdCopy, DiskView, EvictAction, PendingObject, SegmentSummary
from tierfs.tiering.size_trigger import SizeTrigger

# Objects of one stream that are due by size at the same time; the next ones are due when these are cold.
_MOST_DUE = 64

# Segments that one plan evicts of: half a second of work, in which the disk may fill on. Another plan follows at once.
MOST_EVICTIONS = 5000

# Longer than any time.
_NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions due now, except offloads, which are taken one by one."""

    rolls: tuple[SegmentId, ...] = ()
    evictions: tuple[EvictAction, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """Bytes that are on the local disk alone."""

    pending_bytes: int
    """Bytes of complete chunks."""
    active_bytes: int
    """Bytes of chunks that are still appended to."""

    @property
    def bytes(self) -> int:
        """Sum of both."""
        return self.pending_bytes + self.active_bytes

    def plus(self, other: Backlog) -> Backlog:
        """Return the sum with another."""
        return Backlog(self.pending_bytes + other.pending_bytes, self.active_bytes + other.active_bytes)

    def minus(self, other: Backlog) -> Backlog:
        """Return what is left without another, at least nothing."""
        pending, active = self.pending_bytes - other.pending_bytes, self.active_bytes - other.active_bytes
        return Backlog(max(0, pending), max(0, active))


def _no_groups(_: PendingObject) -> bool:
    return False


class Planner:
    """Ordered queues over the views of all segments with local bytes. One thread at a time."""

    def __init__(self, is_small: Callable[[PendingObject], bool] = _no_groups) -> None:
        """Begin empty. Objects that `is_small` selects may be returned together by `take_offloads`."""
        self._views: dict[SegmentId, SegmentSummary] = {}
        self.offloads = OffloadQueue(is_small)
        self._began: Ordered[SegmentId] = Ordered()
        """Segments with an active chunk: here by its begin, then by the time it is due, and largest first."""
        self._roll_due: Ordered[SegmentId] = Ordered()
        self._active_size: Ordered[SegmentId] = Ordered()
        self._active_cold: Ordered[SegmentId] = Ordered()
        """Those whose active chunk is wholly cold, largest first."""
        self._evict_due: Ordered[SegmentId] = Ordered()
        """Segments with evictable copies: here by the end of the first copy's lag, in the next one by its age."""
        self._first_cold: Ordered[SegmentId] = Ordered()
        self._by_size = SizeTrigger()
        self._pressed = False
        self.local_bytes = 0
        self.active_bytes = 0
        self._staying_bytes = 0
        """Bytes of active chunks that may not end early."""
        self.kept = Backlog(0, 0)
        """Bytes that no policy makes cold."""

    def __contains__(self, segment_id: SegmentId) -> bool:
        return segment_id in self._views

    @property
    def views(self) -> list[SegmentSummary]:
        """All views; for tests."""
        return list(self._views.values())

    @property
    def active(self) -> Iterator[SegmentId]:
        """Segments with an active chunk."""
        return iter(self._began)

    @property
    def oldest_ms(self) -> int:
        """Time since which the oldest byte that a policy moves has been on the local disk alone; 0 for none."""
        began = self._began.first()
        times = [self.offloads.oldest_ms, None if began is None or began[0][0] == _NEVER_MS else began[0][0]]
        return min((since_ms for since_ms in times if since_ms is not None), default=0)

    def has_copies(self, segment_id: SegmentId) -> bool:
        """Return whether any local chunk of a segment may be evicted, now or later."""
        view = self.view_of(segment_id)
        return view is not None and bool(view.copies) and not view.keeps_local

    def view_of(self, segment_id: SegmentId) -> SegmentSummary | None:
        """Return the view of a segment, if there is one."""
        return self._views.get(segment_id)

    def put(self, view: SegmentSummary) -> None:
        """Add or replace the view of a segment."""
        old = self._views.get(view.id)
        self.local_bytes += view.local_bytes - (old.local_bytes if old else 0)
        self.active_bytes += view.active_bytes - (old.active_bytes if old else 0)
        self._staying_bytes += _staying_bytes(view) - (_staying_bytes(old) if old else 0)
        self._views[view.id] = view
        self.kept = self.kept.plus(_kept(view)).minus(_kept(old))
        waits = not view.policy.never_offloads
        self.offloads.replace(old.pending if old else (), view.pending, _wait_ms(view), ages=waits)
        due = (key for key in self._by_size.put(view) if self.offloads.hasten(key))
        for _ in islice(due, _MOST_DUE):
            pass
        self._rank_active(view)
        self._rank_copies(view)

    def drop(self, segment_id: SegmentId) -> None:
        """Remove the view of a segment; idempotent."""
        old = self._views.pop(segment_id, None)
        if old is None:
            return
        self.local_bytes -= old.local_bytes
        self.active_bytes -= old.active_bytes
        self._staying_bytes -= _staying_bytes(old)
        self.kept = self.kept.minus(_kept(old))
        self.offloads.replace(old.pending, (), 0)
        self._by_size.drop(segment_id)
        for queue in (*self._of_active, self._evict_due, self._first_cold):
            queue.remove(segment_id)

    @property
    def backlog(self) -> Backlog:
        """Backlog by the views: only the first objects of a long segment, and active chunks as last measured."""
        return Backlog(self.offloads.bytes, self.active_bytes)

    def next(
        self,
        disk: DiskView,
        now_ms: int,
        *,
        backlog: Backlog | None = None,
        lag_counts: bool = True,
        may_evict: Callable[[SegmentId], bool] = lambda _: True,
    ) -> Actions:
        """Return the actions due now, except offloads; `take_offloads` is current after this call.

        `backlog` replaces the estimate of the views by a better count. Without `lag_counts` the clock is not trusted:
        no chunk is evicted because its lag has passed. Segments that `may_evict` refuses make no room, so others are
        evicted in their place.
        """
        backlog = backlog or self.backlog
        self._pressed = backlog.bytes > disk.high_unoffloaded_bytes
        self.offloads.advance(now_ms)
        excess_bytes = backlog.active_bytes - self._staying_bytes - disk.high_unoffloaded_bytes
        rolls = dict.fromkeys(self._rolls(now_ms, excess_bytes))
        cutoffs, kept_bytes = self._evictions(disk.excess_bytes, now_ms if lag_counts else 0, may_evict)
        rolls |= dict.fromkeys(self._cold_rolls(kept_bytes))
        return Actions(tuple(rolls), tuple(EvictAction(*cutoff) for cutoff in cutoffs.items()))

    def take_offloads(self, group_bytes: int = 0, least_small: int = 0) -> tuple[PendingObject, ...]:
        """Take the next object to make, or a group of small ones; see OffloadQueue.take."""
        return self.offloads.take(pressed=self._pressed, group_bytes=group_bytes, least_small=least_small)

    def _rank_active(self, view: SegmentSummary) -> None:
        if not view.active_since_ms:
            for queue in self._of_active:
                queue.remove(view.id)
            return
        self._began.put(view.id, _NEVER_MS if view.policy.never_offloads else view.active_since_ms)
        if not view.may_roll:
            return
        self._roll_due.put(view.id, view.active_since_ms + view.policy.chunk_age_s * 1000)
        self._active_size.put(view.id, -view.active_bytes)
        if view.active_cold_bytes and not view.keeps_local:
            self._active_cold.put(view.id, -view.active_cold_bytes)
        else:
            self._active_cold.remove(view.id)

    @property
    def _of_active(self) -> tuple[Ordered[SegmentId], ...]:
        return self._began, self._roll_due, self._active_size, self._active_cold

    def _rank_copies(self, view: SegmentSummary) -> None:
        if view.keeps_local or not view.copies:
            self._evict_due.remove(view.id)
            self._first_cold.remove(view.id)
            return
        self._evict_due.put(view.id, view.copies[0].cold_since_ms + _lag_ms(view))
        self._first_cold.put(view.id, _rank_ms(view, view.copies[0]))

    def _rolls(self, now_ms: int, excess_bytes: int) -> Iterator[SegmentId]:
        """Yield the active chunks that are old enough; under pressure also the largest, until `excess_bytes` roll."""
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

    def _cold_rolls(self, excess_bytes: int) -> Iterator[SegmentId]:
        """Yield active chunks that are wholly cold, the largest first, until `excess_bytes` may be evicted."""
        for (negative_bytes,), segment_id in self._active_cold.ascending():
            if excess_bytes <= 0:
                return
            excess_bytes += negative_bytes
            yield segment_id

    def _evictions(
        self, excess_bytes: int, now_ms: int, may_evict: Callable[[SegmentId], bool]
    ) -> tuple[dict[SegmentId, int], int]:
        """Return the cutoff of each segment, and the bytes of the excess that stay all the same.

        Copies past their lag go; under pressure the oldest others too, those in the trash first, by the time of their
        removal.
        """
        cutoffs: dict[SegmentId, int] = {}
        for (due_ms,), segment_id in self._evict_due.ascending():
            if due_ms > now_ms or len(cutoffs) >= MOST_EVICTIONS:
                break
            if not may_evict(segment_id):
                continue
            view = self._views[segment_id]
            cutoffs[segment_id] = now_ms - _lag_ms(view)
            excess_bytes -= sum(copy.bytes for copy in _due(view, now_ms))
        if excess_bytes > 0 and len(cutoffs) < MOST_EVICTIONS:
            for cold_since_ms, segment_id, size in self._lagging(now_ms):
                if excess_bytes <= 0 or len(cutoffs) >= MOST_EVICTIONS:
                    break
                if may_evict(segment_id):
                    excess_bytes -= size
                    cutoffs[segment_id] = cold_since_ms
        return cutoffs, excess_bytes

    def _lagging(self, now_ms: int) -> Iterator[tuple[int, SegmentId, int]]:
        """Yield the copies within their lag, by the time they became cold; a merge of all segments' lists.

        Copies in the trash come before all others.
        """
        merged: Ordered[tuple[SegmentId, int]] = Ordered()
        coming = self._first_cold.ascending()
        following = next(coming, None)
        while True:
            first = merged.first()
            if following is not None and (first is None or following[0] <= first[0]):
                view = self._views[following[1]]
                skipped = sum(1 for _ in _due(view, now_ms))
                if skipped < len(view.copies):
                    merged.put((view.id, skipped), _rank_ms(view, view.copies[skipped]))
                following = next(coming, None)
                continue
            if first is None:
                return
            _, (segment_id, index) = first
            view = self._views[segment_id]
            yield view.copies[index].cold_since_ms, segment_id, view.copies[index].bytes
            merged.remove((segment_id, index))
            if index + 1 < len(view.copies):
                merged.put((segment_id, index + 1), _rank_ms(view, view.copies[index + 1]))


_NOTHING = Backlog(0, 0)


def _kept(view: SegmentSummary | None) -> Backlog:
    """Return the bytes of a segment that are on this disk alone and that no policy moves."""
    if view is None or not view.policy.never_offloads or view.removed_ms:
        return _NOTHING
    complete = view.place.bytes_here_alone if view.place is not None else 0
    return Backlog(complete - (view.active_bytes if view.ledger else 0), view.active_bytes)


def _staying_bytes(view: SegmentSummary) -> int:
    return 0 if view.may_roll else view.active_bytes


def _rank_ms(view: SegmentSummary, copy: ColdCopy) -> int:
    """Return a number by which copies within their lag are taken, the smallest first."""
    return view.removed_ms - _NEVER_MS if view.removed_ms else copy.cold_since_ms


def _lag_ms(view: SegmentSummary) -> int:
    lag_s = None if view.removed_ms else view.policy.deletion_lag_s
    return _NEVER_MS if lag_s is None else lag_s * 1000


def _wait_ms(view: SegmentSummary) -> int:
    after_s = view.policy.offload_after_s
    return _NEVER_MS if after_s is None else after_s * 1000


def _due(view: SegmentSummary, now_ms: int) -> Iterator[ColdCopy]:
    """Yield the copies whose lag has passed: the first ones, as copies are ordered by the time they became cold."""
    for copy in view.copies:
        if copy.cold_since_ms > now_ms - _lag_ms(view):
            return
        yield copy
