"""How full the local disk is, against its watermarks."""

from __future__ import annotations

from tierfs.background.policy import DiskView
from tierfs.config import BackgroundSettings

_PERCENT = 100


def disk_view(disk_bytes: tuple[int, int], local_bytes: int, settings: BackgroundSettings) -> DiskView:
    """The disk (size and use in bytes) with its limits; without a limit in bytes only percentages count."""
    size, used = disk_bytes
    high_local = settings.high_watermark_bytes or size
    return DiskView(
        used_bytes=used,
        local_bytes=local_bytes,
        high_used_bytes=size * settings.high_watermark_percent // _PERCENT,
        high_local_bytes=high_local,
        high_unoffloaded_bytes=min(size, high_local) * settings.unoffloaded_watermark_percent // _PERCENT,
    )
