"""Standard streams that a shell closed: their descriptors are taken, so that no file of a store gets them.

A file opened as descriptor 0 would be read as input, and one opened as 1 would be written to. Reading a closed
input and writing to a closed output fail; what is told to a closed error stream is dropped.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import NoReturn

_STDIN_FD, _STDOUT_FD, _STDERR_FD = 0, 1, 2

_INSTEAD = {_STDIN_FD: os.O_WRONLY, _STDOUT_FD: os.O_RDONLY, _STDERR_FD: os.O_WRONLY}
"""How /dev/null is opened in their place: the other way round where use must fail."""

NAME = "standard output"


def complete() -> None:
    """Take the descriptors of closed standard streams; the first thing a command does."""
    closed = [fd for fd in _INSTEAD if not _is_open(fd)]
    for fd in closed:  # ascending: each open takes the lowest that is free
        os.open(os.devnull, _INSTEAD[fd])
        os.set_inheritable(fd, True)
    if _STDIN_FD in closed:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # for the life of the process
    if _STDOUT_FD in closed:
        sys.stdout = ClosedOutput()
    if _STDERR_FD in closed:
        sys.stderr = open(_STDERR_FD, "w", closefd=False)  # noqa: SIM115


class ClosedOutput(io.TextIOWrapper):
    """A standard output that takes nothing."""

    def __init__(self) -> None:
        super().__init__(_Closed(), encoding="utf-8", errors="surrogateescape", write_through=True)  # type: ignore[arg-type]


class _Closed(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _STDOUT_FD

    def write(self, data: object, /) -> NoReturn:
        raise OSError(errno.EBADF, "closed", NAME)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
