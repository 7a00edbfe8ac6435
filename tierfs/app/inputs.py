"""Read files and pipes as one stream: of blocks, as `append` and `ingest` write them, or as much as is there."""

from __future__ import annotations

import io
import mmap
import os
import stat
import time
from collections.abc import Iterator, Sequence
from typing import IO, cast

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB

STDIN = "-"
STDIN_FD = 0

# Bytes of one append: large enough to make its fdatasync and commit a small part of it (guess).
BLOCK_BYTES = 4 * MIB

# Wait of an incomplete block for more bytes; too short to be noticed in `tail -f | tierfs append`.
LINGER_S = 0.05

_OWN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class InputSource:
    """Read files one after the other, unbuffered; a context manager.

    With `unpack` they are compressed, and their content is read; InvalidRequest then says that one is damaged.
    """

    def __init__(self, paths: Sequence[str], *, unpack: bool = False) -> None:
        self._paths = iter(paths)
        self._path = ""
        self._file: io.FileIO | None = None
        self._unpack = unpack
        self._unpacked: IO[bytes] | None = None
        self.consumed_bytes = 0
        """Bytes read or skipped."""
        self._again = memoryview(b"")
        """Bytes that are read once more."""
        self._next_file()

    def read_into(self, view: memoryview) -> int:
        """Read available bytes, waiting for at least one; return 0 at the end of the last file."""
        if self._again:
            part, self._again = self._again[: len(view)], self._again[len(view) :]
            view[: len(part)] = part
            self.consumed_bytes += len(part)
            return len(part)
        while self._file is not None:
            try:
                size = self._file.readinto(view) if self._unpacked is None else self._read_unpacked(view)
            except OSError as exc:
                exc.filename = "standard input" if self._path == STDIN else self._path
                raise
            if size:
                self.consumed_bytes += size
                return size
            self._next_file()
        return 0

    def skip(self, size_bytes: int) -> int:
        """Skip bytes, across the ends of files too; return the number of bytes skipped, fewer only at the end."""
        spare = memoryview(bytearray(min(size_bytes, BLOCK_BYTES)))
        remaining = size_bytes
        while remaining and (read := self._seek(remaining) or self.read_into(spare[: min(remaining, len(spare))])):
            remaining -= read
        return size_bytes - remaining

    def whole(self, most_bytes: int) -> bytes | None:
        """Return all of the input that is left if it ends soon, within so many bytes; None, with none of it taken."""
        view = memoryview(bytearray(most_bytes))
        size, ended = _fill(self, view)
        if ended:
            return bytes(view[:size])
        self.read_again(view[:size])
        return None

    def read_again(self, data: Buffer) -> None:
        """Let bytes that were read last be read once more."""
        self._again = memoryview(data)
        self.consumed_bytes -= len(self._again)

    def _read_unpacked(self, view: memoryview) -> int:
        assert self._unpacked is not None
        try:
            data = self._unpacked.read(len(view))
        except Exception as exc:  # each format has errors of its own
            raise InvalidRequest(
                f"{self._path} cannot be decompressed: {exc}",
                remedy="it is damaged or incomplete; without --decompress it is copied unchanged",
            ) from exc
        view[: len(data)] = data
        return len(data)

    def _seek(self, size_bytes: int) -> int:
        """Seek over bytes of a regular file; return their number, 0 if the file cannot seek."""
        if self._file is None or self._unpacked is not None or not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            return 0
        at = self._file.tell()
        passed = max(0, min(size_bytes, os.fstat(self._file.fileno()).st_size - at))
        self._file.seek(at + passed)
        self.consumed_bytes += passed
        return passed

    def fileno(self) -> int:
        """Return the descriptor of the current file."""
        assert self._file is not None
        return self._file.fileno()

    def is_ready(self, timeout_s: float = 0) -> bool:
        """Wait up to `timeout_s` and return whether read_into would return at once; always true for files."""
        if self._again or self._file is None:
            return True
        return osio.readable(self._file.fileno(), timeout_s)

    def close(self) -> None:
        """Close the current file."""
        if self._unpacked is not None:
            self._unpacked.close()
            self._unpacked = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> InputSource:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _next_file(self) -> None:
        self.close()
        path = next(self._paths, None)
        if path is None:
            return
        self._path = path
        self._file = io.FileIO(STDIN_FD, closefd=False) if path == STDIN else io.FileIO(path)
        if self._unpack:
            from tierfs.app.unpacking import unpacking

            self._unpacked = unpacking(path, cast(IO[bytes], self._file))


@dataclass(frozen=True, slots=True)
class InputBlock:
    """A part of the stream, valid until the next block is requested."""

    data: memoryview
    last: bool
    """Whether the source has ended; the last block of a slow pipe may have False."""


def blocks(source: InputSource, size_bytes: int = BLOCK_BYTES) -> Iterator[InputBlock]:
    """Yield the stream in blocks of `size_bytes`; shorter ones if data arrives slowly, none for an empty stream.

    One block is read ahead to recognize the last one, but never waited for: bytes that arrived are yielded.
    """
    # Memory into which nothing is read is never touched; to clear bytearrays of 4 MiB takes 3 ms each.
    current, spare = (memoryview(mmap.mmap(-1, size_bytes, flags=_OWN)) for _ in range(2))
    size, ended = _fill(source, current)
    while size:
        if ended or not source.is_ready():
            yield InputBlock(current[:size], ended)
            size, ended = (0, True) if ended else _fill(source, current)
        else:
            following, ended = _fill(source, spare)
            yield InputBlock(current[:size], following == 0)
            current, spare, size = spare, current, following


def _fill(source: InputSource, view: memoryview) -> tuple[int, bool]:
    """Fill `view`; return the number of bytes read and whether the source has ended."""
    size = source.read_into(view)
    deadline_s = time.monotonic() + LINGER_S
    while 0 < size < len(view):
        if not source.is_ready(deadline_s - time.monotonic()):
            return size, False
        more = source.read_into(view[size:])
        if more == 0:
            return size, True
        size += more
    return size, size == 0
