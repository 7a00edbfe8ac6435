"""Mounting a store, in the foreground or as a daemon. Part of the composition root.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierfs import errors
from tierfs.app import open_store
from tierfs.errors import TierfsError, Unavailable
from tierfs.fuse import mountpoint as points
from tierfs.fuse.options import parse_options
from tierfs.fuse.session import MountSession
from tierfs.store_paths import StorePaths

_READY_FD = "TIERFS_READY_FD"
_READY = b"ready"
_LOG_NAME = "mount.log"
_ERRORS_NAME = "mount.stderr"
_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 5
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def mount_foreground(store_path: Path, mountpoint: Path, options: str) -> None:
    """Mount and serve until unmounted. Raises what is wrong, with nothing mounted."""
    with _reporting() as ready_fd:
        if ready_fd is not None:
            _log_to(StorePaths(store_path).log)
        parsed = parse_options(options)
        with open_store(store_path) as store:
            store.warm_up()
            session = MountSession(
                store.path, store.metadata, store.files, store.reader(), store.settings.mount, store.metrics
            )
            session.run(mountpoint, parsed, lambda: _announce(ready_fd))


def mount_background(store_path: Path, mountpoint: Path, options: str) -> Path:
    """Start a daemon that mounts; returns its log once the mount answers. Raises what it failed with."""
    parse_options(options)
    points.require_usable(mountpoint)
    with open_store(store_path) as store:
        paths = store.paths
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "tierfs", "--store", str(paths.root), "mount", str(mountpoint), "-f"]
    with os.fdopen(read_end, "rb") as answer:
        try:
            with (paths.log / _ERRORS_NAME).open("ab") as log:
                subprocess.Popen(
                    [*command, *(["-o", options] if options else [])],
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
        said = answer.read()
    if said != _READY:
        raise _failure(said, paths.log)
    return paths.log / _LOG_NAME


@contextmanager
def _reporting() -> Iterator[int | None]:
    """The descriptor a parent waits on, if there is one; errors go there before they are raised."""
    text = os.environ.pop(_READY_FD, None)
    ready_fd = int(text) if text is not None else None
    try:
        yield ready_fd
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
        logging.getLogger(__name__).debug("nobody waits for the mount: %s", exc)


def _failure(said: bytes, log: Path) -> TierfsError:
    if not said:
        return Unavailable("the mount ended before it answered", remedy=f"see {log / _ERRORS_NAME}")
    fields = json.loads(said)
    kind = getattr(errors, fields["kind"], Unavailable)
    if kind is errors.OffsetMismatch:
        kind = errors.Conflict
    failure = kind(fields["error"], remedy=fields["remedy"])
    assert isinstance(failure, TierfsError)
    return failure


def _log_to(directory: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(
        directory / _LOG_NAME, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(min(root.level, logging.INFO))
