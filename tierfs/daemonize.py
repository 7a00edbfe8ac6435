"""Running a command of tierfs as a daemon, and how it tells its parent that it is ready or why not.

A daemon is this program started again in the foreground, in a session of its own: nothing is forked
after threads exist, and LMDB is opened only there. A pipe tells the parent `ready`, or what went wrong.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tierfs import errors
from tierfs.errors import TierfsError, Unavailable

_READY_FD = "TIERFS_READY_FD"
_READY = b"ready"
_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 5
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def start(arguments: Sequence[str], log_directory: Path, name: str) -> Path:
    """Run `tierfs ARGUMENTS` as a daemon; returns its log once it is ready. Raises what it failed with.

    What it prints goes to `<name>.stderr`, its log to `<name>.log`.
    """
    launch(arguments, log_directory, name)
    return _log_path(log_directory, name)


def launch(arguments: Sequence[str], log_directory: Path, name: str) -> subprocess.Popen[bytes]:
    """As `start`, but returns the process: the caller ends it. Ctrl-C meanwhile ends it too."""
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
            said = answer.read()
        except BaseException:
            process.terminate()
            raise
    if said != _READY:
        raise _failure(said, name, errors_path)
    return process


@contextmanager
def reporting(log_directory: Path, name: str) -> Iterator[Callable[[], None]]:
    """The daemon's side: yields what to call once it is ready; errors go to the parent before they are raised.

    Without a parent that waits, as in the foreground, both do nothing, and the log goes to the terminal.
    """
    text = os.environ.pop(_READY_FD, None)
    ready_fd = int(text) if text is not None else None
    if ready_fd is not None:
        _log_to(_log_path(log_directory, name))
    try:
        yield lambda: _announce(ready_fd)
    except BaseException as exc:
        leaf: BaseException = exc
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
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
        logging.getLogger(__name__).debug("nobody waits for this process: %s", exc)


def _failure(said: bytes, name: str, errors_path: Path) -> TierfsError:
    if not said:
        return Unavailable(f"the {name} ended before it answered", remedy=f"see {errors_path}")
    fields = json.loads(said)
    return errors.named(fields["kind"])(fields["error"], remedy=fields["remedy"])


def _log_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.log"


def _log_to(path: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(min(root.level, logging.INFO))
