"""Daemons, resources that a forked child must not share, and signals that wait.

A daemon is this program started again in the foreground, in a session of its own: nothing is forked after threads
exist, and LMDB is opened only there. A pipe gives its parent `ready`, or the error.

A child of a fork has all descriptors of its parent. A lock that it keeps open outlives the parent; a database or a
connection would be used by two processes. So the owner of such a thing registers here and is notified in the child.

A block that others depend on defers Ctrl-C, so as not to be left half-way.
"""

from __future__ import annotations

import ctypes
import json
import logging
import logging.handlers
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol
from weakref import WeakSet

from tierfs import errors
from tierfs.errors import Closed, TierfsError, Unavailable

_READY_FD = "TIERFS_READY_FD"
_READY = b"ready"
_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 5
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def start(arguments: Sequence[str], log_directory: Path, name: str) -> Path:
    """Run `tierfs ARGUMENTS` as a daemon; return its log once it is ready. Raises the daemon's error.

    Its output goes to `<name>.stderr`, its log to `<name>.log`.
    """
    launch(arguments, log_directory, name)
    return _log_path(log_directory, name)


def launch(arguments: Sequence[str], log_directory: Path, name: str) -> subprocess.Popen[bytes]:
    """Do as `start`, but return the process, for the caller to end. Ctrl-C meanwhile ends it too."""
    errors_path = log_directory / f"{name}.stderr"
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as answer:
        try:
            with errors_path.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tierfs", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(write_end,),
                    env={**os.environ, _READY_FD: str(write_end)},
                    cwd="/",
                )
        finally:
            os.close(write_end)
        try:
            message = answer.read()
        except BaseException:
            process.terminate()
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


class OneLine(logging.Formatter):
    """Formats a record as one printable line, whatever names are in it; a traceback follows as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return errors.printable(super().formatMessage(record))


def _log_to(path: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    handler.setFormatter(OneLine(_LOG_FORMAT))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(min(root.level, logging.INFO))


class Inherited(Protocol):
    """Holds what a child must not use."""

    def forget(self) -> None:
        """Let go of what belongs to the parent; called in a child, before anything else runs there."""
        ...


_registered: WeakSet[Inherited] = WeakSet()


def register(holder: Inherited) -> None:
    """Have `holder.forget` called in children, for as long as the holder lives."""
    _registered.add(holder)


def require_process(pid: int, what: str) -> None:
    """Raise Closed in any process but `pid`, which opened `what`."""
    if pid != os.getpid():
        raise Closed(
            f"{what} belongs to process {pid}; this one, {os.getpid()}, is a child of it",
            remedy="open the store again in the child",
        )


def leak(thing: object) -> None:
    """Never release an object of the parent's in this child: its end would undo what the parent still uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _forget_all() -> None:
    for holder in list(_registered):
        holder.forget()


os.register_at_fork(after_in_child=_forget_all)


_DEFERRED = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred() -> Iterator[None]:
    """Run the block, then the handlers of the signals that arrived meanwhile.

    Python handles signals in the main thread only, so in any other this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    current = {number: signal.getsignal(number) for number in _DEFERRED}
    handlers = {number: handler for number, handler in current.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: waiting.append((number, frame)))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for waiting_number, frame in waiting:
            handlers[signal.Signals(waiting_number)](waiting_number, frame)
