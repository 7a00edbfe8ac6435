"""Input of append and ingest: files and pipes as one stream of blocks."""

from __future__ import annotations

import io
import os
import select
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from tierfs.errors import IsDirectory, NotFound, PermissionDenied
from tierfs.types import MIB

STDIN = "-"

BLOCK_BYTES = 4 * MIB
"""One append: large enough that its fdatasync and commit are a small part of it (guess)."""

LINGER_S = 0.05
"""How long a block that has begun waits for more. Below what a person notices in `tail -f | tierfs append`."""

_STDIN_FD = 0


def check_readable(paths: Sequence[str]) -> None:
    """Raise what is wrong with a file before anything is made. Pipes are not opened: that would disturb them."""
    for path in paths:
        if path == STDIN:
            continue
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError as exc:
            raise NotFound(f"file {path} does not exist") from exc
        if stat.S_ISDIR(mode):
            raise IsDirectory(
                f"{path} is a directory", remedy="a directory's files: tierfs ingest DIRECTORY --into DIR"
            )
        if not os.access(path, os.R_OK, effective_ids=True):
            raise PermissionDenied(f"file {path} cannot be read")


class Source:
    """Files read one after the other, unbuffered; a context manager."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = iter(paths)
        self._path = ""
        self._file: io.FileIO | None = None
        self.consumed_bytes = 0
        """What was read or passed over."""
        self._next_file()

    def read_into(self, view: memoryview) -> int:
        """Read what is there, waiting for at least one byte; 0 at the end of the last file."""
        while self._file is not None:
            try:
                size = self._file.readinto(view)
            except OSError as exc:
                exc.filename = "standard input" if self._path == STDIN else self._path
                raise
            if size:
                self.consumed_bytes += size
                return size
            self._next_file()
        return 0

    def skip(self, size_bytes: int) -> int:
        """Pass over so many bytes, over the ends of files too; returns how many there were."""
        spare = memoryview(bytearray(min(size_bytes, BLOCK_BYTES)))
        left = size_bytes
        while left and (read := self._pass(left) or self.read_into(spare[: min(left, len(spare))])):
            left -= read
        return size_bytes - left

    def _pass(self, size_bytes: int) -> int:
        """Seek over bytes of a regular file; returns how many, 0 where that cannot be done."""
        if self._file is None or not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            return 0
        at = self._file.tell()
        passed = max(0, min(size_bytes, os.fstat(self._file.fileno()).st_size - at))
        self._file.seek(at + passed)
        self.consumed_bytes += passed
        return passed

    def fileno(self) -> int:
        """The descriptor of the file being read."""
        assert self._file is not None
        return self._file.fileno()

    def is_ready(self, timeout_s: float = 0) -> bool:
        """Whether read_into would return at once, waiting up to `timeout_s` for that; files always are."""
        if self._file is None:
            return True
        poll = select.poll()  # works for files too, and for any descriptor number
        poll.register(self._file.fileno(), select.POLLIN)
        return bool(poll.poll(max(0, timeout_s * 1000)))

    def close(self) -> None:
        """Close the file being read."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_file(self) -> None:
        self.close()
        path = next(self._paths, None)
        if path is None:
            return
        self._path = path
        self._file = io.FileIO(_STDIN_FD, closefd=False) if path == STDIN else io.FileIO(path)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the stream, valid until the next one is asked for."""

    data: memoryview
    last: bool
    """Nothing follows. False while the source has not said so: the last block of a slow pipe."""


def blocks(source: Source, size_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The stream in blocks of `size_bytes`; shorter ones when data comes slowly, none when there is none.

    One block is read ahead to tell the last one, but never waited for: what arrived is handed on.
    """
    current, spare = memoryview(bytearray(size_bytes)), memoryview(bytearray(size_bytes))
    size, ended = _fill(source, current)
    while size:
        if ended or not source.is_ready():
            yield Block(current[:size], ended)
            size, ended = (0, True) if ended else _fill(source, current)
        else:
            following, ended = _fill(source, spare)
            yield Block(current[:size], following == 0)
            current, spare, size = spare, current, following


def _fill(source: Source, view: memoryview) -> tuple[int, bool]:
    """Bytes read into `view`, and whether the source has ended."""
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
