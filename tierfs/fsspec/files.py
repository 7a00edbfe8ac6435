"""The files that the filesystem opens: SegmentFile reads, AppendFile writes. Both are files of Python's io.

Length and start are fixed when a file is opened, so that seeks from the end see one file, however the segment grows.
Ranges that are close together are joined, so that one read serves several of them.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tierfs.errors import TierfsError
from tierfs.fsspec.connection import CONNECTIONS, Connection, as_os_errors
from tierfs.metadata.records import SegmentRecord
from tierfs.segments.writer import SegmentWriter
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, ReadPriority

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


A = TypeVar("A")
T = TypeVar("T")

# Bytes fetched at a time by small reads once they prove sequential.
_BUFFER_BYTES = MIB

# Bytes fetched by the first read at a new place: a block is fetched and checked anyway.
_FIRST_BYTES = CRC_BLOCK_BYTES

# One append: large enough that its sync and commit are a small part of it.
APPEND_BYTES = 4 * MIB


class SegmentHandle:
    """A segment open for reading; reads are of the bytes it had when it was opened."""

    def __init__(self, connection: Connection, segment: SegmentRecord, priority: ReadPriority | None) -> None:
        self._connection = connection
        self._segment_id = segment.id
        self._priority = priority
        self._range = segment.range
        self._open()

    def _open(self) -> None:
        self._loop = self._connection.loop
        self._handle = self._loop.open(self._segment_id, self._priority)

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


class _RawSegment(io.RawIOBase):
    """The unbuffered file: a position in an open segment.

    It fills a buffer of `buffer_bytes` as far as needed, to the end of a block, and further as reads continue.
    """

    def __init__(self, opened: SegmentHandle, buffer_bytes: int) -> None:
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
        with as_os_errors():
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
        with as_os_errors():
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


class SegmentFile(io.BufferedReader):
    """A segment open for reading, as fsspec's files are: with a path, a size and the details of its listing.

    DuckDB 2 shares one file among threads that each seek and then read, with nothing to hold the two together: another
    thread may seek in between, and rows would be wrong without an error. A thread that runs no Python therefore reads
    where it sought itself. Other threads share the position, as with every file of Python.
    """

    def __init__(
        self, opened: SegmentHandle, path: str, details: dict[str, Any], block_size: int | None = None
    ) -> None:
        buffer_bytes = block_size or _BUFFER_BYTES
        self._raw_segment = _RawSegment(opened, buffer_bytes)
        super().__init__(self._raw_segment, buffer_bytes)
        self.path = self.full_name = path
        self.size = opened.size
        self.details = details
        self._sought: dict[int, int] = {}
        """Offsets to which threads that run no Python moved, until they read."""
        self._pairing = threading.Lock()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if not _runs_no_python():
            return super().seek(offset, whence)
        with self._pairing:
            position = self._sought[threading.get_ident()] = super().seek(offset, whence)
            return position

    def read(self, size: int | None = -1, /) -> bytes:
        self._raw_segment.needed = size or 0
        return self._paired(super().read, size)

    def read1(self, size: int = -1, /) -> bytes:
        return self._paired(super().read1, size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        self._raw_segment.needed = len(memoryview(buffer).cast("B"))
        return self._paired(super().readinto, buffer)

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        return self._paired(super().readinto1, buffer)

    def readline(self, size: int | None = -1, /) -> bytes:
        self._raw_segment.needed = 0
        return self._paired(super().readline, size)

    def _paired(self, read: Callable[[A], T], argument: A) -> T:
        """Move to where this thread sought, if its last seek is kept."""
        if not self._sought:
            return read(argument)
        with self._pairing:
            position = self._sought.pop(threading.get_ident(), None)
            if position is None:
                self._sought.clear()  # threads take turns with one position
            else:
                super().seek(position)
            return read(argument)

    def info(self) -> dict[str, Any]:
        """The filesystem's `info` at the time the file was opened."""
        return self.details


def _runs_no_python() -> bool:
    """Return whether native code called the asking method, in a thread of its own."""
    try:
        sys._getframe(2)
    except ValueError:
        return True
    return False


class _RawAppend(io.RawIOBase):
    """The unbuffered end of a segment: each write is one append, durable when it returns."""

    def __init__(self, connection: Connection, writer: SegmentWriter, start_offset: int, *, seal: bool) -> None:
        super().__init__()
        self._connection = connection
        self._writer = writer
        self._start_offset = start_offset
        self.seal = seal

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), APPEND_BYTES):
            with as_os_errors(writing=True):
                self._writer.append(view[start : start + APPEND_BYTES])
        return len(view)

    def tell(self) -> int:
        return self._writer.length - self._start_offset

    def close(self) -> None:
        """Hand the segment over to the next writer, or end it. In a child of fork it stays the parent's."""
        if self.closed:
            return
        super().close()
        if self._connection.is_inherited:
            return
        with as_os_errors(writing=True):
            try:
                if self.seal:
                    self._writer.append(b"", last=True, seal=True)
            finally:
                with suppress(TierfsError):
                    self._connection.store.engine.close_writer(self._writer)


class AppendFile(io.BufferedWriter):
    """A segment open for appending. A failed block does not seal it: written bytes stay, and appends can continue."""

    def __init__(
        self, connection: Connection, writer: SegmentWriter, start_offset: int, path: str, *, seal: bool
    ) -> None:
        self._append = _RawAppend(connection, writer, start_offset, seal=seal)
        super().__init__(self._append, APPEND_BYTES)
        self.path = self.full_name = path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._append.seal = False
        super().__exit__(kind, error, trace)


# Two ranges closer than a block share one that is fetched and checked anyway.
GAP_BYTES = CRC_BLOCK_BYTES

# Limit of a joined range: several of this length are fetched at once.
JOINED_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class Joined:
    """Ranges of one file, and fewer ones that hold them all."""

    reads: tuple[ByteRange, ...]
    places: tuple[tuple[int, int], ...]
    """For each requested range: the read that holds it, and its offset there."""


def join(wanted: Sequence[ByteRange], gap_bytes: int = GAP_BYTES, joined_bytes: int = JOINED_BYTES) -> Joined:
    """Join neighbours, in order of their starts; a range is never cut."""
    reads: list[ByteRange] = []
    places = [(0, 0)] * len(wanted)
    for index in sorted(range(len(wanted)), key=lambda index: (wanted[index].start, wanted[index].end)):
        new = wanted[index]
        last = reads[-1] if reads else None
        if last is not None and new.start - last.end <= gap_bytes and _length(last, new) <= joined_bytes:
            reads[-1] = ByteRange(last.start, max(last.end, new.end))
        elif last is None or not last.contains(new):
            reads.append(new)
        places[index] = (len(reads) - 1, new.start - reads[-1].start)
    return Joined(tuple(reads), tuple(places))


def _length(last: ByteRange, new: ByteRange) -> int:
    return max(last.end, new.end) - last.start


def of_slice(start: int | None, end: int | None, size: int) -> ByteRange:
    """Return the bytes of `data[start:end]` for data of `size` bytes, by Python's rules for slices."""
    first, behind, _ = slice(start, end).indices(size)
    return ByteRange(first, max(first, behind))
