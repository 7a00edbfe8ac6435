"""OffloadRuns serializes the runs on a managed ledger: one by hand at a time, and none beside offloads by policy."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tierfs.base.words.errors import Conflict
from tierfs.base.words.names import printable
from tierfs.base.words.types import DirectoryId


class OffloadRuns:
    """The runs of the process that holds the store. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._by_hand: set[DirectoryId] = set()
        self._by_itself: Counter[DirectoryId] = Counter()

    @contextmanager
    def by_hand(self, managed_ledger: DirectoryId, name: str) -> Iterator[None]:
        """Reserve a managed ledger for an offload of a prefix. Raises Conflict during another offload of it."""
        with self._changed:
            if managed_ledger in self._by_hand or self._by_itself[managed_ledger]:
                raise Conflict(
                    f"an offload of {printable(name)} is in progress", remedy="wait for it: tierfs ledger status"
                )
            self._by_hand.add(managed_ledger)
        try:
            yield
        finally:
            with self._changed:
                self._by_hand.discard(managed_ledger)
                self._changed.notify_all()

    @contextmanager
    def by_itself(self, managed_ledger: DirectoryId) -> Iterator[None]:
        """Mark the offload of one ledger by policy; wait for the end of a run by hand."""
        with self._changed:
            self._changed.wait_for(lambda: managed_ledger not in self._by_hand)
            self._by_itself[managed_ledger] += 1
        try:
            yield
        finally:
            with self._changed:
                self._by_itself[managed_ledger] -= 1
                if not self._by_itself[managed_ledger]:
                    del self._by_itself[managed_ledger]
