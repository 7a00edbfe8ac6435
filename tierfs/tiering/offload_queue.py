"""Offload queue: the objects to make, in the order of their uploads, without ever sorting them all.

An object waits until `offload_after` has passed, is ready, is taken by an upload, or rests because its upload
failed. Each change costs O(log n); so does each object taken. The oldest are due also once their stream or managed
ledger has too many bytes that are not offloaded (PIP-17).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import MAX_PACK_ENTRIES, SegmentId
from tierfs.tiering.ordered import Ordered
from tierfs.tiering.policy import PendingObject

# Segment and start offset of an object to make.
ObjectKey = tuple[SegmentId, int]

_FOREVER_MS = 2**63


def key_of(pending: PendingObject) -> ObjectKey:
    """Return the key of an object to make; it stays the same while the object's first chunk waits."""
    return pending.action.segment_id, pending.action.range.start


@dataclass(frozen=True, slots=True)
class _Ready:
    """Objects that may be taken: by age once their wait is over, by size under pressure."""

    oldest: Ordered[ObjectKey]
    largest: Ordered[ObjectKey]

    def remove(self, key: ObjectKey) -> None:
        self.oldest.remove(key)
        self.largest.remove(key)


class _Kind(enum.Enum):
    """Which objects may be taken together: none of the large ones, and of the small ones those that agree."""

    LARGE = enum.auto()
    SMALL = enum.auto()
    SMALL_COMPRESSED = enum.auto()


class OffloadQueue:
    """The objects to make of all segments. One thread at a time."""

    def __init__(self, is_small: Callable[[PendingObject], bool]) -> None:
        """Begin empty. Objects that `is_small` selects may be taken together."""
        self._is_small = is_small
        self._pending: dict[ObjectKey, tuple[PendingObject, int]] = {}
        """Each object with the time at which it is ready."""
        self._taken: set[ObjectKey] = set()
        self._waiting: Ordered[ObjectKey] = Ordered()
        self._resting: Ordered[ObjectKey] = Ordered()
        self._ended: Ordered[ObjectKey] = Ordered()
        self._ready = {kind: _Ready(Ordered(), Ordered()) for kind in _Kind}
        self.bytes = 0
        """Bytes of all objects to make."""

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def oldest_ms(self) -> int | None:
        """Time at which the object that waits longest was complete; None when there is none."""
        first = self._ended.first()
        return None if first is None else first[0][0]

    def replace(
        self, old: Iterable[PendingObject], new: Iterable[PendingObject], wait_ms: int, *, ages: bool = True
    ) -> None:
        """Replace the objects of a segment; the new ones are ready `wait_ms` after they were complete.

        Without `ages` they stay where they are, and are not among those of which the oldest is told.
        """
        following = {key_of(pending): (pending, pending.ended_ms + wait_ms) for pending in new}
        for pending in old:
            key = key_of(pending)
            if self._pending.get(key) != following.get(key):
                self._drop(key)
        for key, entry in following.items():
            if key not in self._pending:
                self._add(key, *entry)
            if ages:
                self._ended.put(key, entry[0].ended_ms)
            else:
                self._ended.remove(key)

    def advance(self, now_ms: int) -> None:
        """Make the objects ready whose wait or rest is over."""
        for key in self._resting.pop_below(now_ms):
            self._offer(key)
        for key in self._waiting.pop_below(now_ms):
            pending, _ = self._pending[key]
            self._ready_of(key).oldest.put(key, pending.ended_ms, -pending.bytes)

    def take(self, *, pressed: bool, group_bytes: int = 0, least_small: int = 0) -> tuple[PendingObject, ...]:
        """Take the next object, or the next small ones of at most `group_bytes` together; none when none is ready.

        A group never exceeds one object of any of its policies, or the entries of a pack, and is compressed as a whole
        or not. Order: oldest first, small ones only if there are at least `least_small` of their kind; when `pressed`,
        the largest first, of any age and size. Call `release` or `rest` for each taken object.
        """
        kinds = [
            kind
            for kind, ready in self._ready.items()
            if kind is _Kind.LARGE or pressed or len(ready.oldest) >= least_small
        ]
        first = self._first(pressed, kinds)
        if first is None:
            return ()
        taken = [self._take(first)]
        kind = self._kind(first)
        if kind is not _Kind.LARGE:
            size, limit = taken[0].bytes, min(group_bytes, taken[0].action.object_bytes or group_bytes)
            while len(taken) < MAX_PACK_ENTRIES and (key := self._first(pressed, (kind,))) is not None:
                following = self._pending[key][0]
                size, limit = size + following.bytes, min(limit, following.action.object_bytes or limit)
                if size > limit:
                    break
                taken.append(self._take(key))
        return tuple(taken)

    def hasten(self, key: ObjectKey) -> bool:
        """Make an object ready at once, without its wait, until it is replaced by another one.

        Return False for one that rests, so that it hides no other.
        """
        entry = self._pending.get(key)
        if entry is not None and entry[1]:
            self._pending[key] = entry[0], 0
            if key in self._waiting:
                self._waiting.put(key, 0)
        return key not in self._resting

    def release(self, key: ObjectKey) -> None:
        """End an upload, successful or not: an object that is still to be made may be taken again."""
        self._taken.discard(key)
        if key in self._pending:
            self._offer(key)

    def rest(self, key: ObjectKey, until_ms: int) -> None:
        """Let a failed object rest until a time."""
        self._taken.discard(key)
        if key in self._pending:
            self._ready_of(key).remove(key)
            self._waiting.remove(key)
            self._resting.put(key, until_ms)

    def wake(self) -> None:
        """End all rests, as uploads work again."""
        for key in self._resting.pop_below(_FOREVER_MS):
            self._offer(key)

    def in_order(self, *, pressed: bool) -> list[PendingObject]:
        """Return all objects that could be taken now, in order. Costs O(n log n); for tests."""
        queues = [ready.largest if pressed else ready.oldest for ready in self._ready.values()]
        ordered = sorted(entry for queue in queues for entry in queue.ascending())
        return [self._pending[key][0] for _, key in ordered]

    def _add(self, key: ObjectKey, pending: PendingObject, ready_ms: int) -> None:
        self._pending[key] = pending, ready_ms
        self.bytes += pending.bytes
        if key not in self._taken:
            self._offer(key)

    def _drop(self, key: ObjectKey) -> None:
        """Forget an object; one whose upload is in progress stays taken."""
        if key not in self._pending:
            return
        self._ready_of(key).remove(key)
        self._waiting.remove(key)
        self._resting.remove(key)
        self._ended.remove(key)
        self.bytes -= self._pending.pop(key)[0].bytes

    def _offer(self, key: ObjectKey) -> None:
        """Offer an object: at once under pressure, else when its wait is over."""
        pending, ready_ms = self._pending[key]
        self._waiting.put(key, ready_ms)
        self._ready_of(key).largest.put(key, -pending.bytes, pending.ended_ms)

    def _first(self, pressed: bool, kinds: Iterable[_Kind]) -> ObjectKey | None:
        queues = (self._ready[kind].largest if pressed else self._ready[kind].oldest for kind in kinds)
        firsts = [first for queue in queues if (first := queue.first()) is not None]
        return min(firsts)[1] if firsts else None

    def _take(self, key: ObjectKey) -> PendingObject:
        self._ready_of(key).remove(key)
        self._waiting.remove(key)
        self._taken.add(key)
        return self._pending[key][0]

    def _ready_of(self, key: ObjectKey) -> _Ready:
        return self._ready[self._kind(key)]

    def _kind(self, key: ObjectKey) -> _Kind:
        pending = self._pending[key][0]
        if not self._is_small(pending):
            return _Kind.LARGE
        return _Kind.SMALL_COMPRESSED if pending.action.compresses else _Kind.SMALL
