"""The state of objects that an archive has to bring back before they can be read, as the server reports it.

A recovery from objects and a move begin only once all can be read. A recovery that would leave some out would make gaps
of their bytes, and orphans of the objects, which `gc` deletes. It can request them back itself: without a store there
is no `tierfs thaw`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import units
from tierfs.base.words.errors import Archived, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject, Thaws, ThawSpeed


@dataclass(frozen=True, slots=True)
class Restoring:
    """An object that can only be read for some time, after it was requested back."""

    storage_class: str
    is_requested: bool = True
    was_requested: bool = False
    """Whether it was requested now, and never before."""
    until_ms: int = 0
    """Until then it can be read; 0: not yet."""


def state_of(
    storage: ChunkStorage, name: str, days: int = 0, speed: ThawSpeed = ThawSpeed.STANDARD
) -> Restoring | None:
    """Return the state of an object, None for one that can be read at any time; with `days` request it back.

    Raises NotFound, and what the storage raises.
    """
    stored = storage.stat(name)
    kept_as, thaw = stored.storage_class, stored.thaw
    if not is_restored_first(kept_as):
        return None
    if thaw is not None and not thaw.is_done:
        return Restoring(kept_as)
    if days and isinstance(storage, Thaws):
        if not storage.thaw(name, days, speed):
            return None  # this server's class of that name answers at once
        is_new = thaw is None
        thaw = storage.stat(name).thaw if is_new else thaw
        return Restoring(kept_as, was_requested=is_new, until_ms=0 if thaw is None else thaw.until_ms)
    if thaw is not None:
        return Restoring(kept_as, until_ms=thaw.until_ms)
    return None if _answers(storage, name) else Restoring(kept_as, is_requested=False)


def _answers(storage: ChunkStorage, name: str) -> bool:
    """Return whether an object can be read all the same, as its class is that of another kind of server."""
    try:
        storage.read_into(name, 0, memoryview(bytearray(1)))
    except Archived:
        return False
    return True


class Unrestored:
    """Counts the objects of places that cannot be read yet. Thread-safe; memory does not grow with them."""

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

    def holds(self, item: StoredObject, storage: ChunkStorage | None = None) -> bool:
        """Return whether a listed object must be restored before it can be read, and count it.

        `storage`: another place, which it was listed in.

        Costs nothing for most classes; one that is gone is none. Raises what the storage raises.
        """
        if not is_restored_first(item.storage_class):
            return False
        try:
            state = state_of(storage or self._storage, item.name, self._days)
        except NotFound:
            return False
        if state is None or state.until_ms:
            return False
        with self._lock:
            self._classes[state.storage_class] += 1
            self._bytes += item.length_bytes
            self._first = self._first or item.name
            self._requested += state.was_requested
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
