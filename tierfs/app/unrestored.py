"""Objects that an archive has to bring back before all objects of a place can be read: for a recovery, or a move.

Both begin only once all can be read. A recovery from objects that would leave some out would make gaps of their bytes,
and orphans of the objects, which `gc` deletes. It can request them back itself: without a store there is no
`tierfs thaw`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from tierfs.base.words import units
from tierfs.base.words.errors import Archived, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject, Thaws, ThawSpeed


class Unrestored:
    """Counts the objects of a place that cannot be read yet. Thread-safe; memory does not grow with them."""

    def __init__(self, storage: ChunkStorage, days: int = 0) -> None:
        """`days`: request them back, to be readable for so long; 0: only count them."""
        self._storage = storage
        self._days = days
        self._lock = threading.Lock()
        self._classes: Counter[str] = Counter()
        """Number of these objects by class."""
        self._bytes = 0
        self._first = ""
        """The name of one of them."""
        self._requested = 0

    def holds(self, item: StoredObject) -> bool:
        """Return whether a listed object must be restored before it can be read, and count it.

        Costs nothing for most classes; one that is gone is none. Raises what the storage raises.
        """
        if not is_restored_first(item.storage_class):
            return False
        try:
            return self._holds(item)
        except NotFound:
            return False

    def _holds(self, item: StoredObject) -> bool:
        stored = self._storage.stat(item.name)
        is_new = stored.thaw is None and self._days > 0
        if is_new and isinstance(self._storage, Thaws):
            if not self._storage.thaw(item.name, self._days, ThawSpeed.STANDARD):
                return False  # this server's class of that name answers at once
            stored = self._storage.stat(item.name)
        if stored.thaw is not None and stored.thaw.is_done:
            return False
        if stored.thaw is None and self._answers(item.name):
            return False
        with self._lock:
            self._classes[item.storage_class] += 1
            self._bytes += item.length_bytes
            self._first = self._first or item.name
            self._requested += is_new
        return True

    def passing(self, items: Iterable[StoredObject]) -> Iterator[StoredObject]:
        """Yield listed objects, and count those among them."""
        for item in items:
            self.holds(item)
            yield item

    def require_none(self, done: str, remedy: str) -> None:
        """Raise Archived unless each object that was looked at can be read; `done`: what is not done then."""
        if not self._classes:
            return
        kinds = " and ".join(f"{number} as {printable(name)}" for name, number in sorted(self._classes.items()))
        count = units.count(sum(self._classes.values()), "object")
        asked = f"; {self._requested} requested back now" if self._days else ""
        raise Archived(
            f"nothing is {done}: {count} of {self._bytes:,} bytes must be restored first ({kinds}), such as "
            f"{printable(self._first)}{asked}",
            remedy=remedy,
        )

    def _answers(self, name: str) -> bool:
        """Return whether an object can be read all the same, as its class is that of another kind of server."""
        try:
            self._storage.read_into(name, 0, memoryview(bytearray(1)))
        except Archived:
            return False
        return True
