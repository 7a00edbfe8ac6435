"""Whether a segment's writer is alive: one locked byte per segment and writer epoch, in one file.

The lock dies with its process, so liveness never depends on a pid, and a thousand open segments cost
one descriptor.
"""

from __future__ import annotations

from pathlib import Path

from tierfs.locks import LockFile
from tierfs.types import SegmentId

_EPOCHS_PER_SEGMENT = 1 << 20
"""Epochs that are told apart; older ones have long been fenced."""

_SEGMENTS = 1 << 43
"""Segments that are told apart: an offset in a file has 63 bits. The ids of 2048 store epochs differ in them."""


class WriterLocks:
    """Holds the writer locks of one process; in a child of fork each call raises Closed."""

    def __init__(self, path: Path) -> None:
        self._file = LockFile(path)

    @property
    def is_inherited(self) -> bool:
        """Whether this is a child of the process that made this."""
        return self._file.is_inherited

    def require_process(self) -> None:
        """Raise Closed in a child of the process that made this."""
        self._file.require_process()

    def try_lock(self, segment_id: SegmentId, epoch: int) -> bool:
        """Become the writer of this epoch; False when another process is. Not exclusive within a process."""
        return self._file.try_lock(start=_byte(segment_id, epoch), length=1)

    def unlock(self, segment_id: SegmentId, epoch: int) -> None:
        """Stop being the writer of this epoch."""
        self._file.unlock(start=_byte(segment_id, epoch), length=1)

    def is_alive_elsewhere(self, segment_id: SegmentId, epoch: int) -> bool:
        """Whether another process is the writer of this epoch."""
        return self._file.is_locked(start=_byte(segment_id, epoch), length=1)

    def close(self) -> None:
        """Release all locks; idempotent."""
        self._file.close()


def _byte(segment_id: SegmentId, epoch: int) -> int:
    return segment_id % _SEGMENTS * _EPOCHS_PER_SEGMENT + epoch % _EPOCHS_PER_SEGMENT
