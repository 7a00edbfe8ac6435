"""The one write lock of an environment: its holder, and the threads that wait for it.

LMDB cannot wait for the lock with a time limit. So the pid of its holder is in a mapping that all processes of the
store share, and a watchdog thread names it to waiting writers.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import threading
import time
from pathlib import Path

from tierfs.base.system import os_errors
from tierfs.engine.metadata.host import no_room

# File with the number of the process that writes, which all processes of the store share.
WRITER = "writer"

log = logging.getLogger(__name__)

# Design §5: after this wait, a writer's log names the holder.
WARN_AFTER_S = 5.0

_PID = struct.Struct("<Q")
_POLL_S = 1.0


class WriteWatch:
    """The holder of the write lock and the threads that wait for it; one per environment."""

    def __init__(self, fd: int) -> None:
        """Map `fd`, a file that all processes of the store share; raise OSError for a full disk.

        The page is allocated first: writing to the mapping of an unallocated page would be SIGBUS.
        """
        os.posix_fallocate(fd, 0, _PID.size)
        self._map = mmap.mmap(fd, _PID.size)
        self._waiting: dict[int, float] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def close(self) -> None:
        """End the thread; idempotent. Otherwise a process that opens many stores would keep one thread of each."""
        self._closed.set()

    def waiting(self) -> None:
        """Note that the calling thread is about to request the write lock."""
        self._waiting[threading.get_ident()] = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="tierfs-write-watch", daemon=True)
            self._thread.start()

    def acquired(self) -> None:
        """Note that the calling thread got the lock."""
        self._waiting.pop(threading.get_ident(), None)
        _PID.pack_into(self._map, 0, os.getpid())

    def gave_up(self) -> None:
        """Note that the calling thread did not get the lock."""
        self._waiting.pop(threading.get_ident(), None)

    def released(self) -> None:
        """Note that the calling thread is about to release the lock; does nothing in a child of fork, whose parent
        holds it."""
        if _PID.unpack_from(self._map)[0] == os.getpid():
            _PID.pack_into(self._map, 0, 0)

    @property
    def holder_pid(self) -> int:
        """Process that holds the write lock; 0 when free. A hint, for messages."""
        return int(_PID.unpack_from(self._map)[0])

    def _watch(self) -> None:
        warned: dict[int, float] = {}  # here: a wait that is put back after its end would be warned of for ever
        while not self._closed.wait(_POLL_S):
            now = time.monotonic()
            for thread, since in list(self._waiting.items()):
                if now - max(since, warned.get(thread, since)) >= WARN_AFTER_S:
                    warned[thread] = now
                    log.warning(
                        "waiting for the metadata lock for %.0f s, owned by process %d", now - since, self.holder_pid
                    )


def write_watch(fd: int, path: Path) -> WriteWatch:
    """Return the watch over the file `fd`. Raises StorageFull."""
    try:
        return WriteWatch(fd)
    except OSError as exc:
        if exc.errno in os_errors.NO_ROOM:
            raise no_room(path) from exc
        raise
