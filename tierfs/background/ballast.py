"""Room kept for the worst day: a file whose space evict and collect may take to commit on a full disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tierfs.chunkstore.chunkfiles import map_os_errors
from tierfs.errors import StorageFull, TierfsError

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BALLAST_BYTES = 64 * 1024 * 1024
"""LMDB copies the pages it changes: far more than any commit of evict or collect needs."""

_FRACTION_OF_DISK = 100
_FILE_MODE = 0o600


def create(path: Path) -> None:
    """Set the room aside, the smaller of 64 MiB and 1 % of the filesystem; what is there is kept."""
    with map_os_errors(str(path)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
        try:
            os.posix_fallocate(fd, 0, _size(os.fstatvfs(fd)))
        finally:
            os.close(fd)


def with_room(path: Path, work: Callable[[], T]) -> T:
    """Run work that frees space; on a full disk give it the ballast's room and run it once more.

    A file without a byte remains of a ballast that was used, and is filled again once there is room.
    """
    if path.exists():
        restore(path)
    try:
        return work()
    except StorageFull:
        if not path.exists() or not path.stat().st_size:
            raise
        log.warning("the disk is full: using the room set aside in %s", path.name)
        os.truncate(path, 0)
    result = work()
    restore(path)
    return result


def restore(path: Path) -> None:
    """Set the room aside again if it was used, or never was, and would leave as much to others."""
    if path.exists() and path.stat().st_size:
        return
    status = os.statvfs(path.parent)
    if status.f_bavail * status.f_frsize < 2 * _size(status):
        return
    try:
        create(path)
    except TierfsError as exc:  # others were faster, or the file is not ours: the work goes on without it
        with suppress(OSError):
            os.truncate(path, 0)
        log.info("no room yet to set aside: %s", exc)
    else:
        log.info("room is set aside again in %s", path.name)


def _size(status: os.statvfs_result) -> int:
    return min(MAX_BALLAST_BYTES, status.f_blocks * status.f_frsize // _FRACTION_OF_DISK)
