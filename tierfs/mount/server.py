"""The process that serves a mount: the lock in the store by which others find it, and the end of it.

The lock is named after the mount's device, see setup/typed.py.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tierfs.base.system.clock import Clock
from tierfs.base.system.mounts import device_of
from tierfs.base.system.places import Mount, mountpoint_of, mounts
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import Conflict, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.units import decimal
from tierfs.upkeep.holder import lock

log = logging.getLogger(__name__)

# For the process of an earlier mount that had the same number, and has not let go of it yet (a guess).
_FREE_WITHIN_S = 5.0

# Between an unmount and a search for another mount namespace that keeps the mount: it takes 20 ms for 500 processes.
_LOOK_AFTER_S = 1.0

# Longest wait for the end: reads in flight have 5 s, and work in flight is left to itself (a guess).
_END_WITHIN_S = 20.0

_PROCESSES = Path("/proc")
_UNKNOWN = ""


@contextmanager
def serving(store: Path, mountpoint: Path, clock: Clock) -> Iterator[None]:
    """Keep the lock of the mount at a path, which this process serves. In a thread: it asks the mount for its device.

    Without it, as on a disk that is full or read-only, the mount serves all the same.
    """
    held: lock.Hold | None = None
    try:
        path = StorePaths(store).mount(device_of(mountpoint))
        held = lock.Hold(path, clock, within_s=_FREE_WITHIN_S)
    except (OSError, TierfsError) as exc:
        log.info("cannot lock the store's record of this mount: %s", exc)
    try:
        yield
    finally:
        if held is not None:
            with suppress(OSError):
                path.unlink()
            held.release()


class MountServer:
    """The process that serves a mount, from before it is unmounted."""

    def __init__(self, mount: Mount, process: lock.Holder | None, fd: int | None) -> None:
        self._mount = mount
        self._others = [other for other in mounts() if other.device == mount.device and other.id != mount.id]
        self._process = process
        self._fd = fd

    def require_end(self) -> list[Path]:
        """Wait until the process has ended; return at once with the mount points that it has left.

        Raises Conflict where another mount namespace has the mount, Unavailable where it ends for no other reason.
        """
        # Those from before: once the kernel has let go of the mount, another process may get its number at once.
        left = mounts()
        if others := [other.mountpoint for other in self._others if other in left]:
            return others
        if self._process is None or self._fd is None:
            return []
        if self._has_ended_within(_LOOK_AFTER_S):
            return []
        pid, unmounted = self._process.pid, f"{self._mount.mountpoint} is unmounted here, but {self._process}"
        end = f"stop it: kill {pid}"
        if (other := _elsewhere(self._mount)) is not None:
            where = f"it is still mounted in the namespace of process {other[0]}, at {printable(other[1])}"
            raise Conflict(
                f"{unmounted} continues the store's background work: {where}",
                remedy=f"{end}; or unmount it there: nsenter -m -t {other[0]} umount {printable(other[1])}",
            )
        if not self._has_ended_within(_END_WITHIN_S):
            raise Unavailable(f"{unmounted} has not exited within {_END_WITHIN_S:g} s", remedy=end)
        return []

    def _has_ended_within(self, timeout_s: float) -> bool:
        assert self._fd is not None
        waiting, until_s = select.poll(), time.monotonic() + timeout_s
        waiting.register(self._fd, select.POLLIN)  # pidfd_open(2): readable once the process has ended
        return bool(waiting.poll(max(0, until_s - time.monotonic()) * 1000))


@contextmanager
def watched(mount: Mount) -> Iterator[MountServer]:
    """Find the process that serves a mount, and keep hold of it: its number may be another's once it has ended."""
    process, fd = lock.server_of(mount.store, mount.device), None
    if process is not None and process.pid != os.getpid():
        with suppress(OSError):  # it has just ended
            fd = os.pidfd_open(process.pid)
    try:
        yield MountServer(mount, process, fd)
    finally:
        if fd is not None:
            os.close(fd)


def _elsewhere(mount: Mount) -> tuple[int, str] | None:
    """Return a process of another mount namespace that has the filesystem, and where; None as far as can be seen."""
    own = _namespace(Path("self"))
    for directory in _PROCESSES.iterdir():
        # Here it is unmounted: what has its number is a younger mount.
        if decimal(directory.name) is None or _namespace(directory) in (own, _UNKNOWN):
            continue
        if (point := mountpoint_of(directory, mount)) is not None:
            return int(directory.name), point
    return None


def _namespace(process: Path) -> str:
    try:
        return os.readlink(_PROCESSES / process / "ns/mnt")
    except OSError:  # it has ended, or is another user's
        return _UNKNOWN
