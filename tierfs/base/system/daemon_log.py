"""The log of a process that serves: a file of its own, or standard error of one in the foreground.

A daemon has one handler. What it cannot write, for a full, read-only or failing disk or a terminal that is gone, is
dropped and counted, and the number is logged once lines can be written again: a log never ends or holds up what
serves.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import select
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from tierfs.base.system import osio, service_manager
from tierfs.base.words import errors

log = logging.getLogger(__name__)

_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 5
_JSON = "json"
# Logger above those of all our modules.
_OWN = "tierfs"
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# systemd's log adds the time, and has the level as a priority.
_MANAGED_FORMAT = "%(name)s: %(message)s"

_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_STDERR_FD = 2
# poll(2): a pipe that is ready takes this much without waiting (PIPE_BUF of limits.h).
_AT_ONCE_BYTES = 4096

# The level that -v asked for, or NOTSET.
_asked = logging.NOTSET


class OneLine(logging.Formatter):
    """Formats a record as one printable line, whatever names are in it; a traceback follows as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return errors.printable(super().formatMessage(record))


class JsonLine(logging.Formatter):
    """Formats a record as one JSON object: time (UTC), level, logger, message, and the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _note(text: str, *values: object) -> logging.LogRecord:
    return log.makeRecord(log.name, logging.WARNING, __file__, 0, text, values, None)


class DaemonLog(logging.Handler):
    """Writes records as lines, and never raises."""

    text_format = _LOG_FORMAT

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(OneLine(self.text_format))
        self._lost = 0
        self._reason: Exception | None = None
        self._is_cut = False
        """Whether the last line was written in part."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, and before it how many could not be written."""
        try:
            if self._lost:
                self._line(
                    self.format(_note("%d lines of this log could not be written: %s", self._lost, self._reason))
                )
                self._lost = 0
            self._line(self.format(record))
        except Exception as exc:  # also of a record that cannot be formatted
            self._lost += 1
            self._reason = exc

    def reopen(self) -> None:
        """Write to the place of the same name from now on."""

    def _line(self, text: str) -> None:
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        self._write(b"\n" + data if self._is_cut else data)

    def _write(self, data: bytes) -> None:
        raise NotImplementedError

    def _write_to(self, fd: int, data: bytes) -> None:
        self._is_cut = True
        while data:
            data = data[os.write(fd, data) :]
        self._is_cut = False


class LogFile(DaemonLog):
    """A file: rotated by itself, and by others that move it away and send SIGHUP."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._fd = -1
        with suppress(OSError):  # each line tries again, and says why lines before it are missing
            self._open()  # now: a line about a lack of descriptors needs none

    def reopen(self) -> None:
        """Write to the file of the name from now on, which may be another one than before."""
        self.acquire()
        try:
            self._open()
        except OSError as exc:
            self.emit(_note("cannot reopen the log; continuing in the old file: %s", exc))
        finally:
            self.release()

    def close(self) -> None:
        """Release the file."""
        self.acquire()
        try:
            fd, self._fd = self._fd, -1
        finally:
            self.release()
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)
        super().close()

    def _open(self) -> None:
        before, self._fd = self._fd, os.open(self._path, _APPENDING, osio.OWNER_FILE)
        if before >= 0:
            with suppress(OSError):
                os.close(before)

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            self._open()
        size_bytes = os.fstat(self._fd).st_size
        if size_bytes and size_bytes + len(data) > _LOG_BYTES:
            self._rotate()
        self._write_to(self._fd, data)

    def _rotate(self) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, _LOG_FILES + 1))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                os.replace(newer, older)
        self._open()


class Terminal(DaemonLog):
    """Standard error: of a process in the foreground. One that takes no more lines now is not waited for."""

    def _write(self, data: bytes) -> None:
        ready = select.poll()
        ready.register(_STDERR_FD, select.POLLOUT)
        for at in range(0, len(data), _AT_ONCE_BYTES):
            if not ready.poll(0):
                self._is_cut = at > 0
                raise OSError(errno.EAGAIN, "the terminal, or the reader of its pipe, accepts no more output")
            self._write_to(_STDERR_FD, data[at : at + _AT_ONCE_BYTES])


class ManagedLog(Terminal):
    """Standard error that leads to systemd's log: each line starts with its priority."""

    text_format = _MANAGED_FORMAT

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return service_manager.with_priority(super().format(record), record.levelno)


def begin(path: Path | None) -> None:
    """Let this process log to a file, or to standard error, and nowhere else; from INFO on, or as -v asked."""
    global _asked  # noqa: PLW0603  # of the process, as its loggers are
    own, root = logging.getLogger(_OWN), logging.getLogger()
    _asked = own.level
    own.handlers = []  # of the command line, for warnings of commands
    root.handlers = [LogFile(path) if path is not None else _of_stderr()]
    root.setLevel(min(root.level, logging.INFO))


def _of_stderr() -> DaemonLog:
    return ManagedLog() if service_manager.reads_stderr() else Terminal()


def reopen() -> None:
    """Have a daemon write to a new log file if the old one was moved away."""
    for handler in _handlers():
        handler.reopen()


def set_format(level: str, log_format: str) -> None:
    """Set the least level and the format of a daemon's log; nothing in other processes.

    Of other packages nothing below INFO is logged: botocore would write out every request.
    """
    for handler in _handlers():
        handler.setFormatter(JsonLine() if log_format == _JSON else OneLine(handler.text_format))
        least = logging.getLevelNamesMapping()[level.upper()]
        logging.getLogger().setLevel(max(least, logging.INFO))
        logging.getLogger(_OWN).setLevel(min(least, _asked) if _asked else least)


def _handlers() -> list[DaemonLog]:
    """Return the handler of a daemon; none in any other process."""
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, DaemonLog)]
