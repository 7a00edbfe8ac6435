"""The lock of the one holder that does a store's cold work: it dies with its process, and names it in a note."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.clock import Clock
from tierfs.base.system.locks import LockFile
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.system.places import Mount, mounts
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict

log = logging.getLogger(__name__)

_MAX_NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the store."""

    pid: int
    host: str
    command: str
    since_ms: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({names.printable(self.command)})"


class HeldElsewhere(Conflict):
    """Another process holds the store: make a request to it, or wait until it is done."""


class Hold:
    """The holder's lock, until it is released or the process ends. A child of fork does not have it."""

    def __init__(self, path: Path, clock: Clock, *, within_s: float = 0) -> None:
        """Take it, as soon as it is free. Raises HeldElsewhere naming the present holder, ReadOnlyDisk."""
        with map_os_errors(str(path)):
            self._file = LockFile(path)
        try:
            with map_os_errors(str(path)):
                if not self._file.lock_within(within_s):
                    other = _read(self._file.fd) or "another process"
                    raise HeldElsewhere(f"the store is locked by {other}", remedy="wait until it ends")
            _write(self._file.fd, Holder(os.getpid(), socket.gethostname(), _command(), clock.now_ms()))
        except BaseException:
            self._file.close()
            raise

    def release(self) -> None:
        """Release the lock; nothing in a child. Only when nothing of this holder's work is in flight."""
        self._file.close()


@contextmanager
def hold(path: Path, clock: Clock) -> Iterator[None]:
    """Be the store's holder inside the block. Raises HeldElsewhere naming the present one."""
    held = Hold(path, clock)
    try:
        yield
    finally:
        held.release()


def current(path: Path) -> Holder | None:
    """Return the living holder, or None, as where nobody was one yet. Makes no file: the disk may be read-only."""
    try:
        file = LockFile(path, looks=True)
    except FileNotFoundError:
        return None
    with closing(file):
        return _read(file.fd) if file.is_locked() else None


def server_of(store: Path, device: str) -> Holder | None:
    """Return the living process that serves the mount of a store with a device's number; None if there is none.

    Writes nothing. A mount of a store that cannot be written leaves no such note.
    """
    path = StorePaths(store).mount(device)
    try:
        return current(path)
    except OSError:
        return None


def mounts_of(store: Path) -> list[Mount]:
    """Return the mounts of a store that this process can see, for reports: those that say so, or have its lock."""
    return [mount for mount in mounts() if same_directory(mount.store, store) or server_of(store, mount.device)]


def same_directory(path: Path, other: Path) -> bool:
    """Return whether two paths lead to one directory."""
    return path == other or os.path.realpath(path) == os.path.realpath(other)


def _command() -> str:
    program = "tierfs" if os.path.basename(sys.argv[0]) == "__main__.py" else os.path.basename(sys.argv[0])
    return " ".join([program, *sys.argv[1:]])


def _write(fd: int, holder: Holder) -> None:
    """Note the holder. The lock holds without it: evict on a full disk must not fail for want of a note."""
    note = json.dumps(asdict(holder)).encode()[:_MAX_NOTE_BYTES]
    try:
        os.pwrite(fd, note, 0)  # over the last one, whose block it keeps
        os.ftruncate(fd, len(note))
    except OSError as exc:
        log.warning(
            "other processes cannot see which process has the store locked: %s", os.strerror(exc.errno or errno.EIO)
        )
        with suppress(OSError):  # what is left of the note is then no note, or an old one
            os.ftruncate(fd, 0)


def _read(fd: int) -> Holder | None:
    """Return the note; None while its owner is still writing it, or when the disk does not give it."""
    try:
        return Holder(**json.loads(os.pread(fd, _MAX_NOTE_BYTES, 0)))
    except (ValueError, TypeError, OSError):
        return None
