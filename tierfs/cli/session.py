"""What the global options say, and how results, notes and warnings reach the user.

Standard streams that a shell closed: their descriptors are taken, so that no file of a store gets them.

A file opened as descriptor 0 would be read as input, and one opened as 1 would be written to. Reading a closed
input and writing to a closed output fail; what is told to a closed error stream is dropped.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tierfs.errors import InvalidRequest
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.app.store import Store


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


QUIET, NORMAL, VERBOSE, DEBUG = -1, 0, 1, 2

_LOG_LEVELS = {QUIET: logging.WARNING, NORMAL: logging.WARNING, VERBOSE: logging.INFO, DEBUG: logging.DEBUG}


@dataclass
class Session:
    """One call of the command line."""

    store_path: Path | None = None
    json: bool = False
    verbosity: int = NORMAL

    def require_store_path(self) -> Path:
        """The store's directory; a usage error when none was named."""
        if self.store_path is None:
            raise click.UsageError("no store was named: give --store DIR or set TIERFS_STORE")
        return self.store_path

    @property
    def store_words(self) -> tuple[str, ...]:
        """What names the store on a command line; nothing where the environment does."""
        path = str(self.require_store_path())
        return () if os.environ.get("TIERFS_STORE") == path else ("--store", path)

    def open_store(self) -> Store:
        """Open the store that was named. Raises what app.open_store raises."""
        path = self.require_store_path()
        from tierfs.app.store import open_store

        return open_store(path)

    def result(self, data: Mapping[str, Any], text: str) -> None:
        """Print a result: `data` with --json, else `text`, whose foreign parts are printable already."""
        click.echo(json.dumps(data) if self.json else text)

    def done(self, data: Mapping[str, Any], text: str) -> None:
        """Print what a command did; --quiet and a closed output leave it out, as the exit code says it all."""
        if (self.json or self.verbosity > QUIET) and not isinstance(sys.stdout, ClosedOutput):
            self.result(data, text)

    def require_output(self) -> None:
        """Raise InvalidRequest for a command whose answer must not be lost, where the output is closed."""
        if isinstance(sys.stdout, ClosedOutput):
            raise InvalidRequest(f"{NAME}: closed")

    def note(self, text: str) -> None:
        """Tell something on stderr that --quiet and --json leave out."""
        if self.verbosity > QUIET and not self.json:
            click.echo(printable(text), err=True)

    def warn(self, text: str) -> None:
        """Warn on stderr; --quiet leaves it out."""
        if self.verbosity <= QUIET:
            return
        if self.json:
            click.echo(json.dumps({"warning": text}), err=True)
        else:
            click.echo(f"tierfs: warning: {printable(text)}", err=True)

    @property
    def shows_progress(self) -> bool:
        """Whether somebody is there to watch a progress bar."""
        return not self.json and self.verbosity > QUIET and sys.stderr.isatty()

    def start_logging(self) -> None:
        """Send log records to stderr: warnings, and with -v and -vv more."""
        logger = logging.getLogger("tierfs")
        for handler in [handler for handler in logger.handlers if isinstance(handler, _ToTerminal)]:
            logger.removeHandler(handler)
        handler = _ToTerminal(self)
        handler.setLevel(_LOG_LEVELS[self.verbosity])
        logger.addHandler(handler)
        # Else the root decides, which a daemon sets for its log file.
        logger.setLevel(handler.level if self.verbosity > NORMAL else logging.NOTSET)


class _ToTerminal(logging.Handler):
    """Log records as lines like the warnings of commands."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        if record.levelno >= logging.WARNING:
            self._session.warn(record.getMessage())
        else:
            self._session.note(f"{record.name}: {record.getMessage()}")
