"""Open-file-description locks: they die with their owner, survive no crash and tell nothing of pids.

A lock belongs to the open file, not to the process, so two opens of one file in one process exclude each other as two
processes do. Byte ranges of one file are independent locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from pathlib import Path

from tierfs.base.system import forks, osio
from tierfs.base.words.errors import Closed

# struct flock on 64-bit Linux: type, whence, start, length, pid (must be 0 for these locks).
_FLOCK = struct.Struct("hhqqi4x")

WHOLE_FILE = 0

_TO_LOOK = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW

# Pause between two attempts at a lock: a fraction of a request to a near server.
_POLL_S = 0.002


class LockFile:
    """A file whose bytes are locks. They end with `close` or with the process, and never pass to a child of fork.

    A child has the parent's open file, and with it the parent's locks: it closes it at once, and `close`
    releases the locks before the file is closed.
    """

    def __init__(self, path: Path, *, looks: bool = False) -> None:
        """Open the file, made when it is missing; raises OSError. `looks`: only to see locks, and nothing is made.

        On a read-only disk locks can be seen alone, until it takes changes.
        """
        self._path = path
        self._pid = os.getpid()
        self._looks = looks
        self._may_lock = not looks
        self._opening = threading.Lock()
        try:
            self._fd = os.open(path, _TO_LOOK) if looks else osio.open_or_create(path)
        except OSError as exc:
            if exc.errno != errno.EROFS:
                raise
            # Nobody has a lock of a file that is not there, and nobody can make it.
            self._fd = os.open(path, _TO_LOOK) if path.exists() else os.memfd_create(path.name)
            self._may_lock = False
        forks.register(self)

    @property
    def fd(self) -> int:
        """Its descriptor. Raises Closed once it is closed, and in a child."""
        self.require_process()
        if self._fd < 0:
            raise Closed(f"{self._path} was closed")
        return self._fd

    @property
    def is_inherited(self) -> bool:
        """Whether this is a child of the process that opened the file."""
        return self._pid != os.getpid()

    def require_process(self) -> None:
        """Raise Closed in a child of the process that opened the file."""
        if self._pid != os.getpid():
            raise forks.of_parent(self._pid, f"the lock of {self._path}")

    def try_lock(self, *, start: int = 0, length: int = WHOLE_FILE, shared: bool = False) -> bool:
        """Take the lock without waiting; False when another open file holds a conflicting one.

        Raises OSError, EROFS while the disk is read-only.
        """
        fd = self.fd
        if not self._may_lock:
            self._open_again(fd)
        return _set(fd, fcntl.F_RDLCK if shared else fcntl.F_WRLCK, start, length)

    def _open_again(self, fd: int) -> None:
        """Make the descriptor one that can lock. Raises OSError, EROFS while the disk is read-only."""
        if self._looks:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._path))
        with self._opening:
            if self._may_lock:  # by another thread, whose lock would end with its open file
                return
            opened = osio.open_or_create(self._path)
            try:
                os.dup2(opened, fd, inheritable=False)
            finally:
                os.close(opened)
            self._may_lock = True

    def lock_within(self, timeout_s: float, *, start: int = 0, length: int = WHOLE_FILE) -> bool:
        """Take the lock of the range as soon as it is free; False when another open file still has it then."""
        until_s = time.monotonic() + timeout_s
        while not self.try_lock(start=start, length=length):
            if time.monotonic() >= until_s:
                return False
            time.sleep(_POLL_S)  # F_OFD_SETLKW waits without a limit
        return True

    def unlock(self, *, start: int = 0, length: int = WHOLE_FILE) -> None:
        """Release the range; harmless when it is not held."""
        _set(self.fd, fcntl.F_UNLCK, start, length)

    def is_locked(self, *, start: int = 0, length: int = WHOLE_FILE) -> bool:
        """Return whether another open file holds a lock on the range."""
        return _is_locked(self.fd, start, length)

    def close(self) -> None:
        """Release all locks and close the file; idempotent, and nothing in a child."""
        if self._fd < 0 or self.is_inherited:
            return
        self.unlock()  # closing alone leaves them to a child that was not made by os.fork
        os.close(self._fd)
        self._fd = -1

    def forget(self) -> None:
        """Close the descriptor in a child and touch no lock, for the locks are the parent's."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(path: Path) -> bool:
    """Return whether any process holds a lock of a file, which need not exist, nor be writable. Raises OSError."""
    try:
        fd = os.open(path, _TO_LOOK)
    except FileNotFoundError:
        return False
    try:
        return _is_locked(fd, 0, WHOLE_FILE)
    finally:
        os.close(fd)


def _is_locked(fd: int, start: int, length: int) -> bool:
    # fcntl(2): a lock that would conflict is looked for; the file need not be open for writing.
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _set(fd: int, kind: int, start: int, length: int) -> bool:
    try:
        # fcntl(2), "Open file description locks".
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows both
        return False
    return True
