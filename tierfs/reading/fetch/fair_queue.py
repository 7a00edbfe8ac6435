"""Fetches that wait for a limit: those that a reader waits for first, and fairly among readers. Pure.

Start-time fair queueing (Goyal, Vin, Cheng, 1996): each reader has a tag that grows by the bytes it is granted, and
the reader with the least tag is next. A reader that returns begins at the tag of those that are served now, so that it
neither makes up for its pause nor loses by having many small reads.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.types import Payer

T = TypeVar("T")

# Tags of readers without a waiting fetch that are remembered: more read at once than this only in error (a guess).
_REMEMBERED = 1024


@dataclass(slots=True)
class _Waiting(Generic[T]):
    """The fetches of one class, by reader, each reader's in the order of their priorities."""

    readers: dict[Payer, list[tuple[int, int, T]]] = field(default_factory=dict)

    def first(self, tags: dict[Payer, float], may: Callable[[Payer], bool]) -> Payer | None:
        """Return the reader with the least tag of those that may be granted bytes."""
        return min(filter(may, self.readers), key=lambda payer: (tags.get(payer, 0.0), payer.handle), default=None)


class FairQueue(Generic[T]):
    """Items that wait for their turn."""

    def __init__(self) -> None:
        self._urgent, self._ahead = _Waiting[T](), _Waiting[T]()
        self._tags: dict[Payer, float] = {}
        self._now = 0.0
        """The tag of the reader that was served last."""
        self._numbers = itertools.count()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def remembered(self) -> int:
        """Readers whose share is remembered."""
        return len(self._tags)

    @property
    def urgent(self) -> bool:
        """Whether a reader waits for an item."""
        return bool(self._urgent.readers)

    @property
    def payers(self) -> set[Payer]:
        """The readers of all items."""
        return {*self._urgent.readers, *self._ahead.readers}

    def put(self, item: T, payer: Payer, priority: int, *, urgent: bool) -> None:
        """Add an item; of one reader's in a class, the one with the least `priority` is next."""
        readers = (self._urgent if urgent else self._ahead).readers
        if payer not in self.payers:
            self._tags[payer] = max(self._tags.get(payer, 0.0), self._now)
        heapq.heappush(readers.setdefault(payer, []), (priority, next(self._numbers), item))
        self._length += 1

    def take(self, may: Callable[[Payer], bool]) -> tuple[T, Payer] | None:
        """Return the next item of a reader that may be granted bytes, and the reader; None without one."""
        for waiting in (self._urgent, self._ahead):
            payer = waiting.first(self._tags, may)
            if payer is not None:
                return self._pop(waiting, payer), payer
        return None

    def granted(self, payer: Payer, length_bytes: int) -> None:
        """Count the bytes of an item that was taken."""
        if not self._length:  # nobody competes any more
            self._tags.clear()
            self._now = 0.0
            return
        self._now = self._tags.setdefault(payer, self._now)
        self._tags[payer] += length_bytes
        if len(self._tags) > _REMEMBERED:
            self._forget()

    def keep(self, holds: Callable[[T], bool]) -> None:
        """Drop all items for which `holds` is false."""
        for waiting in (self._urgent, self._ahead):
            kept = {payer: [row for row in rows if holds(row[2])] for payer, rows in waiting.readers.items()}
            waiting.readers = {payer: rows for payer, rows in kept.items() if rows}
            for rows in waiting.readers.values():
                heapq.heapify(rows)
        self._length = sum(len(rows) for each in (self._urgent, self._ahead) for rows in each.readers.values())

    def _pop(self, waiting: _Waiting[T], payer: Payer) -> T:
        rows = waiting.readers[payer]
        item = heapq.heappop(rows)[2]
        if not rows:
            del waiting.readers[payer]
        self._length -= 1
        return item

    def _forget(self) -> None:
        """Forget readers without items: they begin at the tag of those that are served."""
        waiting = self.payers
        self._tags = {payer: tag for payer, tag in self._tags.items() if payer in waiting}
