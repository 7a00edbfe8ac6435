"""Standard streams that a shell closed, and standard error that fails.

`complete` takes the descriptors of closed streams, so that no file of a store gets them: a file opened as descriptor 0
would be read as input, and one opened as 1 would be written to. Reading a closed input and writing to a closed output
fail; text for a closed error stream is dropped.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from typing import NoReturn

import click

_STDIN_FD, _STDOUT_FD, _STDERR_FD = 0, 1, 2

# Mode of the /dev/null opened in place of each: the opposite of its use where use must fail.
_INSTEAD = {_STDIN_FD: os.O_WRONLY, _STDOUT_FD: os.O_RDONLY, _STDERR_FD: os.O_WRONLY}

NAME = "standard output"


def complete() -> None:
    """Take the descriptors of closed standard streams. Call it first."""
    closed = []
    for fd in _INSTEAD:
        try:
            os.fstat(fd)
        except OSError:
            closed.append(fd)
    for fd in closed:  # ascending: each open takes the lowest free descriptor
        os.open(os.devnull, _INSTEAD[fd])
        os.set_inheritable(fd, True)
    if _STDIN_FD in closed:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # for the life of the process
    if _STDOUT_FD in closed:
        sys.stdout = ClosedOutput()
    if _STDERR_FD in closed:
        sys.stderr = open(_STDERR_FD, "w", closefd=False)  # noqa: SIM115


def to_stderr(text: str, level: int = logging.INFO) -> None:
    """Print a line to standard error. One that takes none changes nothing of what a command does, or its exit code.

    In a unit of systemd the line has the priority of `level`.
    """
    if "JOURNAL_STREAM" in os.environ:
        from tierfs.base.system import service_manager

        text = service_manager.with_priority(text, level) if service_manager.reads_stderr() else text
    try:
        click.echo(text, err=True)
    except OSError:  # a full disk, a reader that went away
        drop_stderr()


def drop_stderr() -> None:
    """Discard what is printed to standard error from now on: a flush at exit would fail again, and be exit code 120."""
    devnull_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull_fd, _STDERR_FD)
    os.close(devnull_fd)


class ClosedOutput(io.TextIOWrapper):
    """A standard output whose writes fail."""

    def __init__(self) -> None:
        super().__init__(_Closed(), encoding="utf-8", errors="surrogateescape", write_through=True)  # type: ignore[arg-type]


class _Closed(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _STDOUT_FD

    def write(self, data: object, /) -> NoReturn:
        raise OSError(errno.EBADF, "closed", NAME)
