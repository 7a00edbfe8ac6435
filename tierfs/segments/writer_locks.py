"""Whether a segment's writer is alive: one locked byte per segment and writer epoch, in one file.

The lock dies with its process, so liveness never depends on a pid, and a thousand open segments cost
one descriptor.
"""

from __future__ import annotations

import os
from pathlib import Path

from tierfs import locks
from tierfs.types import SegmentId

_EPOCHS_PER_SEGMENT = 1 << 20
"""Epochs that are told apart; older ones have long been fenced."""

_SEGMENTS = 1 << 43
"""Segments that are told apart: an offset in a file has 63 bits. The ids of 2048 store epochs differ in them."""

_FILE_MODE = 0o600


class WriterLocks:
    """Holds the writer locks of one process."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)

    def try_lock(self, segment_id: SegmentId, epoch: int) -> bool:
        """Become the writer of this epoch; False when another process is. Not exclusive within a process."""
        return locks.try_lock(self._fd, start=_byte(segment_id, epoch), length=1)

    def unlock(self, segment_id: SegmentId, epoch: int) -> None:
        """Stop being the writer of this epoch."""
        locks.unlock(self._fd, start=_byte(segment_id, epoch), length=1)

    def is_alive_elsewhere(self, segment_id: SegmentId, epoch: int) -> bool:
        """Whether another process is the writer of this epoch."""
        return locks.is_locked(self._fd, start=_byte(segment_id, epoch), length=1)

    def close(self) -> None:
        """Release all locks; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _byte(segment_id: SegmentId, epoch: int) -> int:
    return segment_id % _SEGMENTS * _EPOCHS_PER_SEGMENT + epoch % _EPOCHS_PER_SEGMENT
