"""Room kept for the worst day: a file whose space evict and collect may take to commit on a full disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tierfs.chunkstore.chunkfiles import map_os_errors
from tierfs.errors import StorageFull

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BALLAST_BYTES = 64 * 1024 * 1024
"""LMDB copies the pages it changes: far more than any commit of evict or collect needs."""

_FRACTION_OF_DISK = 100
_FILE_MODE = 0o600


def create(path: Path) -> None:
    """Set the room aside, the smaller of 64 MiB and 1 % of the filesystem; what is there is kept."""
    status = os.statvfs(path.parent)
    size = min(MAX_BALLAST_BYTES, status.f_blocks * status.f_frsize // _FRACTION_OF_DISK)
    with map_os_errors(str(path)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)


def with_room(path: Path, work: Callable[[], T]) -> T:
    """Run work that frees space; on a full disk give it the ballast's room and run it once more."""
    try:
        return work()
    except StorageFull:
        if not path.exists():
            raise
        log.warning("the disk is full: using the room set aside in %s", path.name)
        path.unlink()
    result = work()
    try:
        create(path)
    except StorageFull as exc:
        path.unlink(missing_ok=True)
        log.warning("no room yet to set aside again: %s", exc)
    return result
