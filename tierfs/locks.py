"""Open-file-description locks: they die with their owner, survive no crash and tell nothing of pids.

A lock belongs to the open file, not to the process, so two opens of one file in one process exclude
each other like two processes do. Byte ranges of one file are independent locks.
"""

from __future__ import annotations

import fcntl
import os
import struct

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock on 64-bit Linux: type, whence, start, length, pid (must be 0 for these locks)."""

WHOLE_FILE = 0


def try_lock(fd: int, *, start: int = 0, length: int = WHOLE_FILE, shared: bool = False) -> bool:
    """Take the lock without waiting; False when another open file holds a conflicting one."""
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX allows both
        return False
    return True


def unlock(fd: int, *, start: int = 0, length: int = WHOLE_FILE) -> None:
    """Release the range; harmless when it is not held."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, start, length, 0))


def is_locked(fd: int, *, start: int = 0, length: int = WHOLE_FILE) -> bool:
    """Whether another open file holds a lock on the range."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
