"""Buffers of requests, which stay with the process from task to task.

The first touch of fresh memory is expensive: measured on a virtual machine, 8 MiB of fresh memory cost as much as a
third of their GET.
"""

from __future__ import annotations

import threading
from collections import deque

from tierfs.engine.chunkstore.link import RANGE_BYTES
from tierfs.pipeline.reader.in_flight import AROUND_BYTES, NEAR_STEP_BYTES

# Size of the larger buffers.
REQUEST_BYTES = NEAR_STEP_BYTES + AROUND_BYTES

_SIZES = (RANGE_BYTES + AROUND_BYTES, REQUEST_BYTES)

# In buffers that no task holds: 66 MiB per process.
_MOST_KEPT_BYTES = 8 * REQUEST_BYTES


class Buffers:
    """Buffers of two sizes; larger ones are made when they are needed and not kept. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, deque[bytearray]] = {size_bytes: deque() for size_bytes in _SIZES}
        self.kept_bytes = 0
        """In buffers that no task holds."""

    def take(self, size_bytes: int = REQUEST_BYTES) -> bytearray:
        """Return a buffer of at least this size with arbitrary content; the caller's until it is given back."""
        fitting = [each for each in _SIZES if each >= size_bytes]
        with self._lock:
            for each in fitting:
                if self._free[each]:
                    self.kept_bytes -= each
                    return self._free[each].pop()
        return bytearray(fitting[0] if fitting else size_bytes)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer to which no reference is left."""
        with self._lock:
            free = self._free.get(len(buffer))
            if free is not None and self.kept_bytes + len(buffer) <= _MOST_KEPT_BYTES:
                free.append(buffer)
                self.kept_bytes += len(buffer)


# Of this process; a child of fork has copies of its own.
BUFFERS = Buffers()
