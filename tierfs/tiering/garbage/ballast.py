"""Room set aside for a full disk: a file whose space may be taken to commit on it.

Evict and collect may take all of it; the offloads that evict waits for take half.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tierfs.base.system import osio
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import QuotaReached, StorageFull, TierfsError

log = logging.getLogger(__name__)

T = TypeVar("T")

# LMDB copies the pages it changes: far more than any commit of evict or collect needs.
MAX_BALLAST_BYTES = 64 * 1024 * 1024

_FRACTION_OF_DISK = 100


def create(path: Path) -> None:
    """Set the room aside, the smaller of 64 MiB and 1 % of the filesystem; what is there is kept."""
    with map_os_errors(str(path)):
        fd = osio.open_or_create(path)
        try:
            os.posix_fallocate(fd, 0, _size(os.fstatvfs(fd)))
        finally:
            os.close(fd)


def with_room(path: Path, work: Callable[[], T]) -> T:
    """Run work that frees space; on a full disk give it the ballast's room and run it once more.

    A ballast that was used stays shorter, and grows again once there is room.
    """
    return _with(path, work, left_bytes=0)


def with_half(path: Path, work: Callable[[], T]) -> T:
    """Run work that eviction depends on, as `with_room` does; the other half is left to evict."""
    return _with(path, work, left_bytes=_size(os.statvfs(path.parent)) // 2)


def _with(path: Path, work: Callable[[], T], *, left_bytes: int) -> T:
    if path.exists():
        restore(path)
    try:
        return work()
    except QuotaReached:
        raise  # no disk is full
    except StorageFull:
        status = os.statvfs(path.parent)
        another_disk = status.f_bavail * status.f_frsize >= _size(status)  # that of a cold directory, say
        if another_disk or not path.exists() or path.stat().st_size <= left_bytes:
            raise
        log.warning("the disk is full: using the reserved space in %s", path.name)
        os.truncate(path, left_bytes)
    result = work()
    restore(path)
    return result


def restore(path: Path) -> None:
    """Set the room aside again if some was used, or none ever was, and as much stays free for others."""
    status = os.statvfs(path.parent)
    left_bytes = path.stat().st_size if path.exists() else 0
    if left_bytes >= _size(status):
        return
    if status.f_bavail * status.f_frsize < 2 * _size(status):
        return
    try:
        create(path)
    except TierfsError as exc:  # others were faster, or the file is not ours: the work continues without it
        with suppress(OSError):
            os.truncate(path, left_bytes)
        log.info("no space to reserve yet: %s", exc)
    else:
        log.info("space is reserved again in %s", path.name)


def _size(status: os.statvfs_result) -> int:
    return min(MAX_BALLAST_BYTES, status.f_blocks * status.f_frsize // _FRACTION_OF_DISK)
