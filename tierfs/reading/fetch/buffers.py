"""Memory for bytes on their way: page-aligned buffers in power-of-two classes, under one budget.

Page alignment saves a fifth of a reply's cost, and reuse saves the first touch of fresh memory, the most expensive
part of a read on a virtual machine. On the trio loop only.
"""

from __future__ import annotations

import mmap
from collections import defaultdict

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB

SMALLEST_BYTES = CRC_BLOCK_BYTES
# The blocks that a random read touches; larger buffers take as long as the server does.
_PREPARED_BYTES = 2 * SMALLEST_BYTES

_HUGE_PAGE_FROM_BYTES = 2 * MIB


@dataclass(frozen=True, slots=True, eq=False)
class PooledBuffer:
    """A buffer of one class; `view` is all of it."""

    class_bytes: int
    view: memoryview


class BufferPool:
    """Hands out buffers and takes them back; used and idle bytes together stay within the budget."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._idle: dict[int, list[PooledBuffer]] = defaultdict(list)
        self._idle_bytes = 0

    def take(self, length_bytes: int) -> PooledBuffer | None:
        """Return a buffer of at least this length, or None when the budget has no room: nothing ever exceeds it."""
        size = _class_of(length_bytes)
        if self.used_bytes + size > self.budget_bytes:
            return None
        self.used_bytes += size
        if self._idle[size]:
            self._idle_bytes -= size
            return self._idle[size].pop()
        self._trim(self.budget_bytes - self.used_bytes)
        return _new(size)

    def prepare(self, length_bytes: int) -> None:
        """Have a small buffer of this length ready, so that the next read need not wait for fresh memory."""
        size = _class_of(length_bytes)
        has_room = self.used_bytes + self._idle_bytes + size <= self.budget_bytes
        if size <= _PREPARED_BYTES and has_room and not self._idle[size]:
            self._idle[size].append(_new(size))
            self._idle_bytes += size

    def give_back(self, buffer: PooledBuffer) -> None:
        """Take back a buffer with no references left."""
        self.used_bytes -= buffer.class_bytes
        self._idle_bytes += buffer.class_bytes
        self._idle[buffer.class_bytes].append(buffer)

    def _trim(self, idle_limit_bytes: int) -> None:
        """Free idle buffers, largest first, so that used and idle ones together fit."""
        while self._idle_bytes > idle_limit_bytes:
            size = max(size for size, buffers in self._idle.items() if buffers)
            self._idle[size].pop()
            self._idle_bytes -= size


def _class_of(length_bytes: int) -> int:
    return max(SMALLEST_BYTES, 1 << (length_bytes - 1).bit_length())


def _new(size: int) -> PooledBuffer:
    # Private: huge pages are for anonymous memory, and Python maps shared memory unless told otherwise.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if size < _HUGE_PAGE_FROM_BYTES:
        # All pages in one call: 0.07 ms for 256 KiB, against 0.11 touched one by one.
        return PooledBuffer(size, memoryview(mmap.mmap(-1, size, flags=flags | mmap.MAP_POPULATE)))
    memory = mmap.mmap(-1, size, flags=flags)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return PooledBuffer(size, memoryview(memory))
