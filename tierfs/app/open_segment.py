"""A segment open for reading from Python: the handle that readers share, and the unbuffered file over it."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tierfs.app.connection import CONNECTIONS, Connection
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, ReadPriority
from tierfs.engine.metadata.records import SegmentRecord

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# Bytes fetched at a time by small reads once they prove sequential.
BUFFER_BYTES = MIB

# Bytes fetched by the first read at a new place: a block is fetched and checked anyway.
_FIRST_BYTES = CRC_BLOCK_BYTES


class SegmentHandle:
    """A segment open for reading; reads are of the bytes it had when it was opened."""

    def __init__(self, connection: Connection, segment: SegmentRecord, priority: ReadPriority | None) -> None:
        self._connection = connection
        self.segment_id = segment.id
        self._priority = priority
        self._range = segment.range
        self._open()

    def _open(self) -> None:
        self._loop = self._connection.loop
        self._handle = self._loop.open(self.segment_id, self._priority)

    @property
    def size(self) -> int:
        """Number of readable bytes."""
        return self._range.length_bytes

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill `view` from `position` on, as far as there are bytes; return their number."""
        view = view[: max(0, self.size - position)]
        if not view:
            return 0
        self._follow_fork()
        read = self._loop.read_into(self._handle, self._range.start + position, view)
        if read < len(view):
            raise OSError(errno.EIO, f"a read at {position} of a segment ended {len(view) - read} bytes early")
        return read

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Return the bytes of several ranges of the file, fetched at once."""
        self._follow_fork()
        buffers = [memoryview(bytearray(wanted.length_bytes)) for wanted in ranges]
        starts = [self._range.start + wanted.start for wanted in ranges]
        self._loop.read_all(self._handle, list(zip(starts, buffers, strict=True)))
        return buffers

    def close(self) -> None:
        """Release it; in a child of fork the parent's stays open."""
        if not self._connection.is_inherited:
            self._loop.release(self._handle)

    def _follow_fork(self) -> None:
        """In a child of fork, open it again, because the thread that reads is the parent's."""
        if self._connection.is_inherited:
            self._connection = CONNECTIONS.get(self._connection.place)
            self._open()


class RawSegment(io.RawIOBase):
    """The unbuffered file: a position in an open segment.

    It fills a buffer of `buffer_bytes` as far as needed, to the end of a block, and further as reads continue.
    """

    errors: Callable[[], AbstractContextManager[None]] = nullcontext
    """Turns the errors of reads into those of the caller."""

    def __init__(self, opened: SegmentHandle, buffer_bytes: int = BUFFER_BYTES) -> None:
        super().__init__()
        self.opened = opened
        self._position = 0
        self._buffer_bytes = buffer_bytes
        self._expected = 0
        self._last_step = _FIRST_BYTES // 2
        self.needed = 0
        """Bytes the current read needs, as a hint: a second request to S3 costs more than bytes do."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        self._require_open()
        view = memoryview(buffer).cast("B")
        if len(view) <= self._buffer_bytes:
            view = view[: self._step()]
        with self.errors():
            read = self.opened.read_into(self._position, view)
        self._position += read
        self._expected = self._position
        return read

    def _step(self) -> int:
        """Return the bytes to fetch into a buffer: whole blocks at a new place, more each time that reads continue."""
        if self._position == self._expected:
            step = max(2 * self._last_step, self.needed)
        else:
            block_bytes = min(_FIRST_BYTES, self._buffer_bytes)
            end = self._position + max(1, self.needed)
            step = -(-end // block_bytes) * block_bytes - self._position
        self._last_step = min(step, self._buffer_bytes)
        return self._last_step

    def readall(self) -> bytes:
        """Return everything at once, in memory of the right size."""
        data = bytearray(max(0, self.opened.size - self._position))
        with self.errors():
            self._position += self.opened.read_into(self._position, memoryview(data))
        return bytes(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._require_open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.opened.size}
        if whence not in base:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if base[whence] + offset < 0:
            raise OSError(errno.EINVAL, f"cannot seek to {base[whence] + offset}")
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        self._require_open()
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.opened.close()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
