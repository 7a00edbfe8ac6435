"""Mount points: whether one can be used, what a killed daemon left, and taking one down."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

from tierfs.errors import Conflict, InvalidRequest, NotDirectory, NotFound, PermissionDenied, Unavailable
from tierfs.mounts import Mount, mounts

FUSE_DEVICE = Path("/dev/fuse")
READ_AHEAD_KIB = 1024
"""1 MiB is the largest request libfuse takes; 128 costs a fifth, 4096 gains nothing (measured)."""

_FUSERMOUNT = "fusermount3"
_BDI = Path("/sys/class/bdi")


def require_usable(mountpoint: Path) -> None:
    """Raise what is wrong with a mount point; one that a killed daemon left is cleaned up first."""
    if not FUSE_DEVICE.exists():
        raise Unavailable(f"{FUSE_DEVICE} is missing, so nothing can be mounted", remedy="as root: modprobe fuse")
    if os.geteuid() != 0 and shutil.which(_FUSERMOUNT) is None:
        raise Unavailable(f"{_FUSERMOUNT} is missing", remedy="as root: apt-get install fuse3")
    _clear_stale(mountpoint)
    if not mountpoint.exists():
        raise NotFound(f"mount point {mountpoint} does not exist", remedy=f"mkdir {mountpoint}")
    if not mountpoint.is_dir():
        raise NotDirectory(f"mount point {mountpoint} is not a directory")
    mounted = mount_at(mountpoint)
    if mounted is not None:
        raise Conflict(f"{mountpoint} is a mount of {mounted.store} already", remedy=f"tierfs umount {mountpoint}")
    try:
        empty = next(os.scandir(mountpoint), None) is None
    except PermissionError as exc:
        raise PermissionDenied(f"mount point {mountpoint} cannot be read") from exc
    if not empty:
        raise InvalidRequest(f"mount point {mountpoint} is not empty", remedy="name an empty directory")


def mount_at(mountpoint: Path) -> Mount | None:
    """The tierfs mount at a path, or None."""
    path = Path(os.path.abspath(mountpoint))
    return next((mount for mount in reversed(mounts()) if mount.mountpoint == path), None)


def unmount(mountpoint: Path) -> None:
    """Take a tierfs mount down. Raises NotFound where there is none, Conflict while files are open."""
    if mount_at(mountpoint) is None:
        raise NotFound(f"{mountpoint} is not a tierfs mount")
    command = ["umount", str(mountpoint)] if os.geteuid() == 0 else [_FUSERMOUNT, "-u", str(mountpoint)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if "busy" in done.stderr:
        raise Conflict(f"{mountpoint} is busy: files in it are open", remedy=f"see who: fuser -vm {mountpoint}")
    raise Unavailable(f"{mountpoint} was not unmounted: {done.stderr.strip()}")


def tune_read_ahead(mountpoint: Path) -> bool:
    """Raise the kernel's read-ahead for the mount at `mountpoint`; False where that is not allowed.

    Call it in a thread: it asks the mount for its device number.
    """
    device = os.stat(mountpoint).st_dev
    setting = _BDI / f"{os.major(device)}:{os.minor(device)}" / "read_ahead_kb"
    try:
        setting.write_text(f"{READ_AHEAD_KIB}\n")
    except OSError:
        return False
    return True


def _clear_stale(mountpoint: Path) -> None:
    try:
        os.statvfs(mountpoint)  # the kernel answers a stat from its cache, for minutes after the daemon died
    except OSError as exc:
        if exc.errno != errno.ENOTCONN:
            return
        command = ["umount", "-l"] if os.geteuid() == 0 else [_FUSERMOUNT, "-u", "-z"]
        done = subprocess.run([*command, str(mountpoint)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"a dead mount at {mountpoint} was not removed: {done.stderr.strip()}") from exc
