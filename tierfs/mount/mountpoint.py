"""Mount points: check and clean up before a mount, tune the kernel's settings, and unmount."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from tierfs.base.system import processes
from tierfs.base.system.mounts import SILENT, SILENT_REMEDY, MountState, state_of
from tierfs.base.system.places import Mount, is_autofs, mount_at
from tierfs.base.words.errors import (
    Conflict,
    InvalidRequest,
    NotDirectory,
    NotFound,
    PermissionDenied,
    TierfsError,
    Unavailable,
)
from tierfs.mount.server import watched

FUSE_DEVICE = Path("/dev/fuse")
# 1 MiB is the largest request libfuse accepts; 128 KiB costs a fifth, 4096 gains nothing (measured).
READ_AHEAD_KIB = 1024

# The kernel's settings of FUSE mounts, under their minor device numbers.
CONNECTIONS = Path("/sys/fs/fuse/connections")
MAX_BACKGROUND_FILE = "max_background"
# Read-ahead requests in flight. With the kernel's 12, a dozen that wait for an absent server held up every read of
# local bytes until their deadline (measured); an unprivileged mount may have a few thousand.
MAX_BACKGROUND = 1024

FUSERMOUNT = "fusermount3"

FUSE_CONFIGURATION = Path("/etc/fuse.conf")
ALLOW_OTHER = "user_allow_other"

# proc_pid_status(5), and a number of capabilities(7).
PROCESS_STATUS = Path("/proc/self/status")
_EFFECTIVE = "CapEff:"
_CAP_SYS_ADMIN = 21

# The kernel's settings of devices, under their numbers.
BDI = Path("/sys/class/bdi")
READ_AHEAD_FILE = "read_ahead_kb"


def require_usable(mountpoint: Path, *, allow_other: bool = False) -> None:
    """Unmount what a killed daemon left at a mount point, and require that it can be used.

    Raises Conflict for one in use, InvalidRequest for one with files, and what the operating system says of others.
    """
    _require_fuse(allow_other)
    if is_autofs(mountpoint):
        # Who looks into it waits until it is mounted, unless the process is of automount's group. It is empty.
        return
    _clear_stale(mountpoint)
    mounted = mount_at(mountpoint)
    if mounted is not None:
        raise Conflict(f"{mountpoint} is already a mount of {mounted.store}", remedy=f"tierfs umount {mountpoint}")
    try:
        with os.scandir(mountpoint) as names:
            empty = next(names, None) is None
    except OSError as exc:
        raise _unusable(mountpoint, exc) from exc
    if not empty:
        raise InvalidRequest(f"mount point {mountpoint} is not empty", remedy="choose an empty directory")


def unmount(mountpoint: Path, *, lazy: bool = False, force: bool = False) -> list[Path]:
    """Unmount a tierfs mount, and wait until the process that serves it has ended, unless it is mounted elsewhere too.

    Returns the other mount points that it has. Raises NotFound if there is none, Conflict while files are open, and,
    with the mount gone here, where another mount namespace has it still, which keeps the process at work. Raises
    Unavailable for one that does not answer: umount(8) asks it first, and would wait for ever. `lazy` asks neither and
    waits for nothing: the name is free at once, and the process ends when the last open file is closed. `force` does
    not either, and fails the requests in flight; only root has it.
    """
    mount = mount_at(mountpoint)
    if mount is None:
        raise NotFound(f"{mountpoint} is not a tierfs mount", remedy="list the mounts: findmnt -t fuse.tierfs")
    if not (lazy or force):
        _require_answer(mount)
    with watched(mount) as server:
        done = _detach(mount, lazy=lazy, force=force)
        if done.returncode == 0:
            return [] if lazy or force else server.require_end()
    if "busy" in done.stderr:
        raise Conflict(
            f"{mountpoint} is busy: files in it are open",
            remedy=f"list the processes: fuser -vm {mountpoint}; to detach without closing their files: tierfs "
            f"umount --lazy {mountpoint}",
        )
    raise Unavailable(f"{mountpoint} was not unmounted: {done.stderr.strip()}")


def _require_answer(mount: Mount) -> None:
    if state_of(mount) is MountState.SILENT:
        point = mount.mountpoint
        raise Unavailable(f"the daemon of the mount at {point} {SILENT}", remedy=f"{SILENT_REMEDY} {point}")


def tune_read_ahead(mountpoint: Path) -> bool:
    """Raise the kernel's read-ahead for the mount at `mountpoint`; return False if that is not allowed.

    Call it in a thread: it asks the mount for its device number.
    """
    device = os.stat(mountpoint).st_dev
    setting = BDI / f"{os.major(device)}:{os.minor(device)}" / READ_AHEAD_FILE
    try:
        setting.write_text(f"{READ_AHEAD_KIB}\n")
    except OSError:
        return False
    return True


def widen_background(mountpoint: Path) -> bool:
    """Keep reads that wait for a tier from delaying others in the kernel; return False if that is not allowed.

    Call it in a thread: it asks the mount for its device number. As root it mounts the control filesystem if systemd
    has not.
    """
    setting = CONNECTIONS / str(os.minor(os.stat(mountpoint).st_dev)) / MAX_BACKGROUND_FILE
    try:
        if not setting.exists() and os.geteuid() == 0:
            processes.run(["mount", "-t", "fusectl", "fusectl", CONNECTIONS])
        setting.write_text(f"{MAX_BACKGROUND}\n")
    except OSError:
        return False
    return True


def _require_fuse(allow_other: bool) -> None:
    if not FUSE_DEVICE.exists():
        raise Unavailable(f"{FUSE_DEVICE} is missing, so nothing can be mounted", remedy="as root: modprobe fuse")
    if not os.access(FUSE_DEVICE, os.R_OK | os.W_OK):
        raise PermissionDenied(
            f"{FUSE_DEVICE} is not accessible for this user", remedy=f"as root: chmod 666 {FUSE_DEVICE}"
        )
    if os.geteuid() == 0 or _may_mount():
        return
    if shutil.which(FUSERMOUNT) is None:
        raise Unavailable(f"{FUSERMOUNT} is missing", remedy="as root: apt-get install fuse3")
    if allow_other and not others_allowed():
        raise PermissionDenied(
            "option allow_other is restricted to root on this machine",
            remedy=f"as root: echo {ALLOW_OTHER} >> {FUSE_CONFIGURATION}",
        )


def _may_mount() -> bool:
    """Return whether the kernel lets this process mount by itself, without fusermount3: it has CAP_SYS_ADMIN."""
    for line in PROCESS_STATUS.read_text(errors="replace").splitlines():
        if line.startswith(_EFFECTIVE):
            return bool(int(line.removeprefix(_EFFECTIVE), 16) >> _CAP_SYS_ADMIN & 1)
    return False


def others_allowed() -> bool:
    """Return whether fusermount3 lets every user mount with allow_other."""
    try:
        lines = FUSE_CONFIGURATION.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # fusermount3 can read the file, and decides
    return any(line.strip() == ALLOW_OTHER for line in lines)


def _unusable(mountpoint: Path, error: OSError) -> TierfsError:
    if error.errno in (errno.ENOENT, errno.ELOOP):
        return NotFound(f"mount point {mountpoint} does not exist", remedy=f"mkdir {mountpoint}")
    if error.errno == errno.ENOTDIR:
        return NotDirectory(f"mount point {mountpoint} is not a directory", remedy="choose an empty directory")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDenied(f"mount point {mountpoint} cannot be read", remedy="choose your own directory")
    return Unavailable(f"mount point {mountpoint} cannot be read: {error.strerror}", remedy="choose another directory")


def _clear_stale(mountpoint: Path) -> None:
    present = mount_at(mountpoint)
    if present is not None:
        _require_answer(present)
    try:
        os.statvfs(mountpoint)  # the kernel answers a stat from its cache, for minutes after the daemon died
    except OSError as exc:
        if exc.errno != errno.ENOTCONN:
            return
        stale = mount_at(mountpoint)
        if stale is None:
            raise Unavailable(
                f"a stale mount of another program is at {mountpoint}", remedy=f"umount -l {mountpoint}"
            ) from exc
        done = _detach(stale, lazy=True)
        if done.returncode:
            raise Unavailable(f"cannot remove a stale mount at {mountpoint}: {done.stderr.strip()}") from exc


def _detach(mount: Mount, *, lazy: bool, force: bool = False) -> processes.Done:
    is_root = os.geteuid() == 0
    # -i: umount(8) would start umount.tierfs, which is what calls this.
    command = ["umount", "-i"] if is_root else [FUSERMOUNT, "-u"]
    if lazy:
        command.append("-l" if is_root else "-z")
    if force and is_root:
        command.append("-f")
    try:
        # In English: the messages are searched.
        return processes.run([*command, mount.mountpoint], variables={"LC_ALL": "C"})
    except FileNotFoundError as exc:
        raise Unavailable(f"{command[0]} is missing", remedy="as root: apt-get install fuse3 mount") from exc
