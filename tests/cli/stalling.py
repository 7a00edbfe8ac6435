"""A warmup of `d` whose cold tier stops answering; prints `stalled` when the rest was stored.

python -m tests.cli.stalling STORE BYTES
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from tierfs.chunkstore.directory import DirectoryStorage
from tierfs.cli.main import cli
from tierfs.reading.disk_cache import DiskCache


class Stalling:
    """Stands between the storage and the cache, and counts."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = self._unstored_bytes = most_bytes
        self._lock = threading.Lock()
        self._read_into = DirectoryStorage.read_into
        self._store = DiskCache.store

    def read_into(self, storage: DirectoryStorage, name: str, offset: int, buffer: memoryview, **options: Any) -> None:
        """Read, or never return."""
        with self._lock:
            stalled = len(buffer) > self._left_bytes
            self._left_bytes -= 0 if stalled else len(buffer)
        if stalled:
            threading.Event().wait()
        self._read_into(storage, name, offset, buffer, **options)

    def store(self, cache: DiskCache, object_id: Any, start: int, view: memoryview) -> None:
        """Store, and say when no more will come."""
        self._store(cache, object_id, start, view)
        with self._lock:
            self._unstored_bytes -= len(view)
            if self._unstored_bytes == 0:
                print("stalled", flush=True)


def main() -> None:
    store, most_bytes = sys.argv[1:]
    stalling = Stalling(int(most_bytes))

    def read_into(storage: DirectoryStorage, *some: Any, **named: Any) -> None:
        stalling.read_into(storage, *some, **named)

    def store_blocks(cache: DiskCache, *some: Any) -> None:
        stalling.store(cache, *some)

    DirectoryStorage.read_into = read_into  # type: ignore[method-assign]
    DiskCache.store = store_blocks  # type: ignore[method-assign]
    cli.main(["--store", store, "warmup", "d"])


if __name__ == "__main__":
    main()
