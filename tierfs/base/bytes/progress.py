"""Progress of long work, for people: how much of it is done, and how it is counted and shown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tierfs.base.bytes.frozen import dataclass

T = TypeVar("T")

# Rows and listed names take some microseconds each, and to count and show one takes 1.5.
_COUNTED_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a long command, or of one stage of it. A total of 0 is not known."""

    done_bytes: int
    total_bytes: int
    item: str
    """The item in work; the work itself where nothing is counted."""
    done_items: int = 0
    total_items: int = 0
    noun: str = "segment"
    """The kind of the items. Another one begins a stage."""


# Shows progress to people; any thread may call it.
OnProgress = Callable[[Progress], None]


def unseen(_progress: Progress) -> None:
    """Show nothing."""


def doing(work: str) -> Progress:
    """Return the progress of work in which nothing is counted."""
    return Progress(0, 0, work, noun="")


class Meter:
    """Adds up the bytes and items that are done, and shows the sums each time. Thread-safe."""

    def __init__(
        self, show: OnProgress = unseen, total_bytes: int = 0, total_items: int = 0, noun: str = "segment"
    ) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._noun = noun
        self.total_bytes = total_bytes
        """May grow during the work, as `total_items`; shown as no less than what is done."""
        self.total_items = total_items
        self.done_bytes = 0
        self._done_items = 0

    def __call__(self, done_bytes: int, item: str, items: int = 0) -> None:
        """Add bytes, and perhaps items, that were just done."""
        with self._lock:
            self.done_bytes += done_bytes
            self._done_items += items
            self._tell(item)

    def each(self, things: Iterable[T], name: Callable[[T], str] | str = str) -> Iterator[T]:
        """Yield things, and count them as items once the next ones are asked for, some at a time."""
        passed = 0
        for passed, thing in enumerate(things, 1):
            yield thing
            if passed % _COUNTED_TOGETHER == 0:
                self(0, name if isinstance(name, str) else name(thing), _COUNTED_TOGETHER)
        if passed % _COUNTED_TOGETHER:
            self(0, name if isinstance(name, str) else name(thing), passed % _COUNTED_TOGETHER)

    def _tell(self, item: str) -> None:
        total_bytes = max(self.total_bytes, self.done_bytes) if self.total_bytes else 0
        total_items = max(self.total_items, self._done_items) if self.total_items else 0
        self._show(Progress(self.done_bytes, total_bytes, item, self._done_items, total_items, self._noun))
