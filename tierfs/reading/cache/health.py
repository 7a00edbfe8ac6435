"""The state of a disk cache, the count of users of its files, and the log lines when its disk fails or fills."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.system.os_errors import NO_ROOM

log = logging.getLogger(__name__)

# The cache's name in metrics.
LABEL = "disk"


class CacheState(StrEnum):
    """The state of a cache."""

    ON = "on"
    FULL_DISK = "full disk"
    """It serves and replaces its blocks, and does not grow until the disk has room."""
    FAILED = "failed"
    """Its disk failed; off until the next start."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class CacheStats:
    """One look at a cache; hits and misses are blocks since it was opened."""

    used_bytes: int
    size_bytes: int
    hits: int
    misses: int
    state: CacheState


class CacheHealth:
    """The state, under the cache's lock. Call methods without the lock unless they say otherwise."""

    def __init__(self, directory: Path, lock: threading.Lock, metrics: MetricSink, close: Callable[[], None]) -> None:
        """`close` is called once, when the cache is closed and its files have no more users."""
        self.state = CacheState.ON
        self._directory = directory
        self._lock = lock
        self._metrics = metrics
        self._close = close
        self._users = 1  # the cache itself, until it is closed

    @property
    def usable(self) -> bool:
        """Whether the files may be used. With the lock."""
        return self.state in (CacheState.ON, CacheState.FULL_DISK)

    def enter(self) -> bool:
        """Keep the files open until `leave`; return False, with no `leave` due, if unusable. With the lock."""
        self._users += self.usable
        return self.usable

    def leave(self) -> None:
        """End one use of the files; the last one closes them."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self._close()

    def close(self) -> None:
        """Refuse all further use. Idempotent."""
        with self._lock:
            if self.state is CacheState.CLOSED:
                return
            self.state = CacheState.CLOSED
        self.leave()

    def failed(self, exc: OSError) -> None:
        """Record that the disk is full or failed; log the change once."""
        state = CacheState.FULL_DISK if exc.errno in NO_ROOM else CacheState.FAILED
        if not self._becomes(state):
            return
        if state is CacheState.FULL_DISK:
            log.warning("disk cache %s does not grow: the disk is full", self._directory)
            return
        log.error("disk cache %s failed and is disabled until the next start: %s", self._directory, exc)
        self._metrics.count(MetricName.CACHE_ERRORS, cache=LABEL)

    def stored(self) -> None:
        """Record that a store found room, which ends the state of a full disk."""
        if self.state is CacheState.FULL_DISK and self._becomes(CacheState.ON):
            log.info("disk cache %s has space again", self._directory)

    def _becomes(self, state: CacheState) -> bool:
        with self._lock:
            changes = self.usable and state is not self.state
            if changes:
                self.state = state
        return changes
