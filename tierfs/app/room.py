"""Room: repeat an append that found the local disk full, once cold bytes are evicted. Part of the composition root."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from tierfs.app.store import Store
from tierfs.base.system import deadlines
from tierfs.base.words.errors import Conflict, NoColdTier, QuotaReached, StorageFull, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

# Limit of an append's wait for a holder to make room: it ends, offloads and evicts a chunk within some seconds.
HOLDER_WAIT_S = 60.0

# Interval between two attempts: the holder checks for room as often.
_POLL_S = 1.0


class Tells(Protocol):
    """Tells the user of an append why it waits, and what was evicted for it."""

    def warn(self, text: str) -> None:
        """Tell something that the user should look at."""

    def note(self, text: str) -> None:
        """Tell something that was done."""


class InLog:
    """Tells, in the log."""

    def warn(self, text: str) -> None:
        log.warning("%s", text)

    def note(self, text: str) -> None:
        log.info("%s", text)


class Room:
    """Repeat work that found the disk full: after evicting cold bytes, then while waiting may help."""

    def __init__(
        self, store: Store, tells: Tells, *, wait_s: float | None = None, holder_wait_s: float = math.inf
    ) -> None:
        """Wait at most `wait_s`; None: `holder_wait_s` while a holder may make room, else not at all.

        A deadline in force ends the wait before.
        """
        self._store = store
        self._tells = tells
        self._wait_s = wait_s
        self._holder_wait_s = holder_wait_s
        self._warned = False
        self._lock = threading.Lock()
        self._evictions = 0

    def make(self, segment: str, work: Callable[[], T], stop: threading.Event | None = None) -> T:
        """Do `work`, which appends to `segment`. Raises the errors of `work`; StorageFull of a disk if nothing helped.

        Setting `stop` ends the wait, with StorageFull.
        """
        since_s: float | None = None
        while True:
            try:
                return work()
            except QuotaReached:
                raise  # no disk is full
            except StorageFull as exc:
                from tierfs.upkeep.holder import lock

                now_s = time.monotonic()
                since_s = now_s if since_s is None else since_s
                if lock.current(self._store.paths.holder) is None and self._evict(segment):
                    continue
                holder = lock.current(self._store.paths.holder)
                limit_s = 0 if holder is None else self._holder_wait_s
                remaining_s = since_s + (limit_s if self._wait_s is None else self._wait_s) - now_s
                remaining_s = deadlines.within(remaining_s)
                if remaining_s <= 0:
                    raise
                self._warn_once(f"{exc}; waiting for {'room' if holder is None else f'{holder} to make room'}")
                if (stop or threading.Event()).wait(min(_POLL_S, remaining_s)):
                    raise

    def _evict(self, segment: str) -> bool:
        """Evict cold bytes, as no holder does it; return whether any were evicted."""
        seen = self._evictions
        with self._lock:
            if self._evictions > seen:
                return True  # another thread did meanwhile
            from tierfs.app import verbs
            from tierfs.upkeep.holder.lock import HeldElsewhere

            try:
                freed = verbs.make_room(self._store, segment)
            except HeldElsewhere:
                return False
            except (Conflict, Unavailable, NoColdTier) as exc:
                self._warn_once(f"nothing can be evicted: {exc}")
                return False
            self._evictions += freed > 0
        if freed:
            self._tells.note(f"the local disk is full: evicted {freed >> 20} MiB of cold bytes")
        return freed > 0

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._tells.warn(text)
        self._warned = True
