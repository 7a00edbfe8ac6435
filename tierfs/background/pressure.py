"""How full the local disk is, against its watermarks and the floor below which appends are refused."""

from __future__ import annotations

from tierfs.background.policy import DiskView
from tierfs.chunkstore.chunkfiles import DiskBytes
from tierfs.config import BackgroundSettings
from tierfs.types import MIB

_PERCENT = 100

_HEADROOM_PERCENT = 2
_HEADROOM_BYTES = 16 * MIB
"""Room kept above the floor, the larger of the two (a guess): appends go on while a look and an eviction run."""


def disk_view(disk: DiskBytes, local_bytes: int, floor_bytes: int, settings: BackgroundSettings) -> DiskView:
    """The disk with its limits; without a limit in bytes only percentages and the floor for appends count.

    Where the floor is near, the limits are lowered by as much as is missing: evicting cold bytes comes first, and
    only for the rest are others offloaded early.
    """
    missing = missing_bytes(disk, floor_bytes)
    high_local = settings.high_watermark_bytes or disk.size
    high_used = disk.size * settings.high_watermark_percent // _PERCENT
    high_unoffloaded = min(disk.size, high_local) * settings.unoffloaded_watermark_percent // _PERCENT
    if missing:
        high_used = min(high_used, max(0, disk.used - missing))
        high_unoffloaded = min(high_unoffloaded, max(0, local_bytes - missing))
    return DiskView(
        used_bytes=disk.used,
        local_bytes=local_bytes,
        high_used_bytes=high_used,
        high_local_bytes=high_local,
        high_unoffloaded_bytes=high_unoffloaded,
    )


def missing_bytes(disk: DiskBytes, floor_bytes: int) -> int:
    """Bytes to be freed so that appends have room; 0 where nothing is kept free."""
    if not floor_bytes:
        return 0
    headroom = max(_HEADROOM_BYTES, disk.size * _HEADROOM_PERCENT // _PERCENT)
    return max(0, floor_bytes + headroom - disk.free)
