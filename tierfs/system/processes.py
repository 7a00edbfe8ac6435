"""Child processes and daemons.

Every child is started here, in `/`, with nothing of the caller's directory on its path of imports.

A daemon is this program started again in the foreground, in a session of its own: nothing is forked after threads
exist, and LMDB is opened only there. A pipe gives its parent `ready`, or the error.
"""

from __future__ import annotations

import ctypes
import json
import logging
import logging.handlers
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, TypeAlias

from tierfs import errors
from tierfs.errors import TierfsError, Unavailable

_IMPORTS = "PYTHONPATH"
_READY_FD = "TIERFS_READY_FD"
_READY = b"ready"
# Of malloc.h.
_M_ARENA_MAX = -8
_ARENAS = 2
_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 5
# A mount gives reads in flight 5 s.
_END_S = 15
_JSON = "json"
# Logger above those of all our modules.
_OWN = "tierfs"
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


Process: TypeAlias = subprocess.Popen[str] | subprocess.Popen[bytes]
Done: TypeAlias = subprocess.CompletedProcess[str]
TimeoutExpired = subprocess.TimeoutExpired

# A path is made absolute: a child's directory is not the caller's.
Argument: TypeAlias = str | Path

_DIRECTORY = os.sep
# States of proc_pid_stat(5).
_STOPPED = ("T", "t")


def python(module: str, *arguments: Argument) -> list[str]:
    """Return the command that runs a module as this program's child."""
    # `-m` puts the caller's directory first on the path of imports: a json.py there would run, as root for root.
    # -P takes it off. -I would also ignore PYTHONPATH and the user's site, where tierfs itself may be installed.
    return [sys.executable, "-P", "-m", module, *_words(arguments)]


def run(
    command: Sequence[Argument],
    *,
    stdin: str = "",
    timeout_s: float | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Done:
    """Run a command to its end and return its output. Raises OSError if it cannot start, TimeoutExpired."""
    return subprocess.run(
        _words(command),
        input=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
        env=environment(variables),
        cwd=_DIRECTORY,
    )


def begin(command: Sequence[Argument]) -> subprocess.Popen[str]:
    """Start a command in a session of its own; the caller reads its standard output and ends it."""
    return subprocess.Popen(
        _words(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment({}),
        cwd=_DIRECTORY,
    )


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine was stopped, by a signal or a debugger."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False  # it ended
    return status.rpartition(")")[2].split()[0] in _STOPPED


def start_again_in_utf8() -> NoReturn:
    """Start this program again in Python's UTF-8 mode, in the same process, with the same words."""
    try:  # as the kernel has them: Python decoded them by the locale
        program, *words = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        program, *words = map(os.fsencode, sys.orig_argv)
    os.environ["PYTHONUTF8"] = "1"  # for children, such as workers of Spark
    os.execv(sys.executable or program, [program, b"-X", b"utf8", *words])


def _words(command: Sequence[Argument]) -> list[str]:
    return [str(word.absolute()) if isinstance(word, Path) else word for word in command]


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment for a child in another directory, with further variables."""
    environment = {**os.environ, **variables}
    if _IMPORTS in environment:
        # Python takes an empty entry, as of "$PYTHONPATH:/lib", for the directory it starts in.
        entries = filter(None, environment[_IMPORTS].split(os.pathsep))
        environment[_IMPORTS] = os.pathsep.join(map(os.path.abspath, entries))
    return environment


def start(arguments: Sequence[Argument], log_directory: Path, name: str) -> Path:
    """Run `tierfs ARGUMENTS` as a daemon; return its log once it is ready. Raises the daemon's error.

    Its output goes to `<name>.stderr`, its log to `<name>.log`.
    """
    launch(arguments, log_directory, name)
    return _log_path(log_directory, name)


def launch(arguments: Sequence[Argument], log_directory: Path, name: str) -> subprocess.Popen[bytes]:
    """Do as `start`, but return the process, for the caller to end. Ctrl-C meanwhile ends it first."""
    errors_path = log_directory / f"{name}.stderr"
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as answer:
        try:
            with errors_path.open("ab") as log:
                process = subprocess.Popen(
                    python("tierfs", *arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(write_end,),
                    env=environment({_READY_FD: str(write_end)}),
                    cwd=_DIRECTORY,
                )
        finally:
            os.close(write_end)
        try:
            message = answer.read()
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):  # what ended the caller counts
                process.wait(_END_S)
            raise
    if message != _READY:
        raise _failure(message, name, errors_path)
    return process


@contextmanager
def reporting(log_directory: Path, name: str) -> Iterator[Callable[[], None]]:
    """Report from the daemon to its parent: yield a function for `ready`; errors are sent before they are raised.

    Without a parent that waits, as in the foreground, both do nothing, and the log goes to the terminal.
    """
    text = os.environ.pop(_READY_FD, None)
    ready_fd = int(text) if text is not None else None
    if ready_fd is not None:
        _log_to(_log_path(log_directory, name))
    try:
        yield lambda: _announce(ready_fd)
    except BaseException as exc:
        leaf = errors.leaf(exc)
        if ready_fd is not None and isinstance(leaf, TierfsError):
            fields = {"kind": type(leaf).__name__, "error": str(leaf), "remedy": leaf.remedy}
            _tell(ready_fd, json.dumps(fields).encode())
        raise


def _announce(ready_fd: int | None) -> None:
    if ready_fd is not None:
        _tell(ready_fd, _READY)
        os.close(ready_fd)


def _tell(ready_fd: int, message: bytes) -> None:
    try:
        os.write(ready_fd, message)
    except OSError as exc:  # closed after `ready`, or the parent is gone: the log has it
        logging.getLogger(__name__).debug("no parent waits for this process: %s", exc)


def _failure(message: bytes, name: str, errors_path: Path) -> TierfsError:
    if not message:
        return Unavailable(f"the {name} ended before it answered", remedy=f"see {errors_path}")
    fields = json.loads(message)
    return errors.named(fields["kind"])(fields["error"], remedy=fields["remedy"])


def _log_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.log"


def command_of(pid: int) -> str:
    """Return the name of a process's program, at most 15 characters; empty once it has ended."""
    try:
        return errors.printable(Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n"))
    except OSError:
        return ""


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


class _LogFile(logging.handlers.RotatingFileHandler):
    """The log of a daemon: rotated by itself, and by others that move it away and send SIGHUP."""

    def reopen(self) -> None:
        """Write to the file of the name from now on, which may be another one than before."""
        self.acquire()
        try:
            before, self.stream = self.stream, self._open()  # first: on an error the old one goes on
            if before is not None:
                before.close()
        finally:
            self.release()


def _log_to(path: Path) -> None:
    handler = _LogFile(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    handler.setFormatter(OneLine(_LOG_FORMAT))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(min(root.level, logging.INFO))


def _log_files() -> list[_LogFile]:
    """Return the log file of a daemon; none in any other process."""
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, _LogFile)]


def reopen_log() -> None:
    """Have a daemon write to a new log file if the old one was moved away."""
    for file in _log_files():
        file.reopen()


def log_as(level: str, log_format: str) -> None:
    """Set the least level and the format of a daemon's log; nothing in other processes.

    Of other packages nothing below INFO is logged: botocore would write out every request.
    """
    for file in _log_files():
        file.setFormatter(JsonLine() if log_format == _JSON else OneLine(_LOG_FORMAT))
        least = logging.getLevelNamesMapping()[level.upper()]
        logging.getLogger().setLevel(max(least, logging.INFO))
        logging.getLogger(_OWN).setLevel(least)


def share_arenas() -> None:
    """Let all threads of a process that runs for long share few of glibc's arenas; other C libraries have none.

    By default there are eight per core. Buffers pass from thread to thread, and leave each arena full of holes: a busy
    mount had 237 MiB in 17 of them after 14 minutes, and went on growing; in two they have 66 MiB after 8 (measured).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
