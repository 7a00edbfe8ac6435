"""Ordered: a heap whose keys may be removed or change their rank; the order of the planner's queues."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")

# Sort key of a queue; the smallest is first.
Rank = tuple[int, ...]

# A heap is rebuilt when its stale entries outnumber the valid ones by this many.
_SLACK = 64


class Ordered(Generic[K]):
    """A heap whose keys may be removed or change their rank. Keys of equal rank are ordered by the keys themselves."""

    def __init__(self) -> None:
        self._ranks: dict[K, Rank] = {}
        self._heap: list[tuple[Rank, K]] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: K) -> bool:
        return key in self._ranks

    def __iter__(self) -> Iterator[K]:
        """Return the keys, in no order."""
        return iter(self._ranks)

    def put(self, key: K, *rank: int) -> None:
        """Add a key, or change its rank."""
        if self._ranks.get(key) == rank:
            return
        self._ranks[key] = rank
        heappush(self._heap, (rank, key))
        if len(self._heap) > 2 * len(self._ranks) + _SLACK:
            self._heap = [(rank, key) for key, rank in self._ranks.items()]
            heapify(self._heap)

    def remove(self, key: K) -> bool:
        """Remove a key; return whether it was present."""
        return self._ranks.pop(key, None) is not None

    def first(self) -> tuple[Rank, K] | None:
        """Return the smallest rank and its key; None when empty."""
        while self._heap:
            rank, key = self._heap[0]
            if self._ranks.get(key) == rank:
                return rank, key
            heappop(self._heap)
        return None

    def pop_below(self, limit: int) -> Iterator[K]:
        """Remove and yield, in order, every key whose rank begins with at most `limit`."""
        while (first := self.first()) is not None and first[0][0] <= limit:
            del self._ranks[first[1]]
            heappop(self._heap)
            yield first[1]

    def ascending(self) -> Iterator[tuple[Rank, K]]:
        """Yield ranks and keys in order and remove none; costs O(log n) each. No changes are allowed meanwhile."""
        seen: list[tuple[Rank, K]] = []
        try:
            while (first := self.first()) is not None:
                heappop(self._heap)
                if seen and seen[-1] == first:
                    continue  # put, removed and put again with the same rank
                seen.append(first)
                yield first
        finally:
            for entry in seen:
                heappush(self._heap, entry)
