"""CacheWriter: a thread that stores fetched bytes in the disk cache, so that a slow cache disk slows no reader."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tierfs.base.words.types import MIB
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.fetch.span import Transfer

# Limit of fetched bytes that wait for the cache's disk; more are not stored.
MAX_PENDING_BYTES = 64 * MIB


class CacheWriter:
    """One thread that stores the transfers offered to it. Thread-safe."""

    def __init__(self, cache: DiskCache, max_pending_bytes: int) -> None:
        self._cache = cache
        self._max_pending_bytes = min(MAX_PENDING_BYTES, max_pending_bytes)
        self._changed = threading.Condition()
        self._pending: deque[tuple[Transfer, int, Callable[[], None]]] = deque()
        self._pending_bytes = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for the disk."""
        return self._pending_bytes

    def offer(self, transfer: Transfer, start: int, stored: Callable[[], None]) -> bool:
        """Store a complete transfer's bytes from `start` on, and call `stored` in the writer's thread.

        The buffer must stay unchanged until then. Return False, and never call `stored`, when too many bytes wait; a
        transfer larger than the limit is taken when nothing waits.
        """
        length_bytes = len(transfer.view) - start
        with self._changed:
            much = self._pending_bytes > 0 and self._pending_bytes + length_bytes > self._max_pending_bytes
            if self._closed or much:
                return False
            self._pending_bytes += length_bytes
            self._pending.append((transfer, start, stored))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tierfs-cache", daemon=True)
                self._thread.start()
            self._changed.notify()
            return True

    def close(self) -> None:
        """Take nothing more, and drop waiting transfers."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                transfer, start, stored = self._pending.popleft()
            view = transfer.view[start:]
            self._cache.store(transfer.span.record.id, transfer.span.start + start, view)
            with self._changed:
                self._pending_bytes -= len(view)
            stored()
