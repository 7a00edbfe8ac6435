"""Locks by which other processes know that a writer is alive.

A writer locks its byte of one file, one byte per segment and writer epoch. The lock dies with its process, so liveness
never depends on a pid, and a thousand open segments cost one descriptor.
"""

from __future__ import annotations

from pathlib import Path

from tierfs.base.system.locks import LockFile
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.types import SegmentId

# Epochs with a byte of their own; older ones were fenced long before.
_EPOCHS_PER_SEGMENT = 1 << 20

# Segments with bytes of their own: a file offset has 63 bits. The ids of 2048 store epochs differ in them.
_SEGMENTS = 1 << 43


class WriterLocks:
    """Holds the writer locks of one process; in a child of fork each call raises Closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with map_os_errors(str(path)):
            self._file = LockFile(path)
        self.require_process = self._file.require_process

    @property
    def is_inherited(self) -> bool:
        """Return whether this process is a child of the one that made this."""
        return self._file.is_inherited

    def try_lock(self, segment_id: SegmentId, epoch: int) -> bool:
        """Lock this epoch; False when another process holds it. Not exclusive within a process."""
        with map_os_errors(str(self._path)):
            return self._file.try_lock(start=_byte(segment_id, epoch), length=1)

    def unlock(self, segment_id: SegmentId, epoch: int) -> None:
        """Release the lock of this epoch."""
        with map_os_errors(str(self._path)):
            self._file.unlock(start=_byte(segment_id, epoch), length=1)

    def is_alive_elsewhere(self, segment_id: SegmentId, epoch: int) -> bool:
        """Return whether another process is the writer of this epoch."""
        with map_os_errors(str(self._path)):
            return self._file.is_locked(start=_byte(segment_id, epoch), length=1)

    def close(self) -> None:
        """Release all locks; idempotent."""
        self._file.close()


def _byte(segment_id: SegmentId, epoch: int) -> int:
    return segment_id % _SEGMENTS * _EPOCHS_PER_SEGMENT + epoch % _EPOCHS_PER_SEGMENT
