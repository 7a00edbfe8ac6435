"""The files that the filesystem opens: SegmentFile reads, AppendFile writes. Both are files of Python's io.

Length and start are fixed when a file is opened, so that seeks from the end see one file, however the segment grows.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tierfs.app.connection import Connection
from tierfs.app.open_segment import BUFFER_BYTES, RawSegment, SegmentHandle
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import MIB
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.faces.fsspec.errors import as_os_errors

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

A = TypeVar("A")
T = TypeVar("T")

# One append: large enough that its sync and commit are a small part of it.
APPEND_BYTES = 4 * MIB


class _RawFile(RawSegment):
    """A segment whose reads raise what readers of Python's files expect."""

    errors = staticmethod(as_os_errors)


class SegmentFile(io.BufferedReader):
    """A segment open for reading, as fsspec's files are: with a path, a size and the details of its listing.

    DuckDB 2 shares one file among threads that each seek and then read, with nothing to hold the two together: another
    thread may seek in between, and rows would be wrong without an error. A thread that runs no Python therefore reads
    where it sought itself. Other threads share the position, as with every file of Python.
    """

    def __init__(
        self, opened: SegmentHandle, path: str, details: dict[str, Any], block_size: int | None = None
    ) -> None:
        buffer_bytes = block_size or BUFFER_BYTES
        self._raw_segment = _RawFile(opened, buffer_bytes)
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


def _is_probe_of_zipfile() -> bool:
    """Return whether zipfile asks whether it may seek: where it may, it goes back to complete the headers of entries.

    It asks by a seek to its own position, in which nothing tells it from others. Refused, it writes data descriptors.
    """
    caller = sys._getframe().f_back
    caller = caller.f_back if caller is not None else None
    return caller is not None and caller.f_globals.get("__name__") == "zipfile"


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

    def seekable(self) -> bool:
        """Python's text layer writes a byte order mark, and tells positions, only where this is true."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Return the position if it is the one that is asked for. Raises UnsupportedOperation for another."""
        position = self.tell()
        wanted = offset if whence == os.SEEK_SET else position + offset  # the position is the end
        if wanted != position or _is_probe_of_zipfile():
            raise io.UnsupportedOperation(f"a segment can be written only at its end, {position}, not at {wanted}")
        return position

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
                    self._connection.writers.close(self._writer)


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
