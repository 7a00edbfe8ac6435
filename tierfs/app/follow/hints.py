"""inotify: which directories to look at before their turn. A hint alone: what it misses is found by looking.

inotify reports changes of this host, and not those that others make to a network filesystem; nor does it report writes
by mmap. A directory whose files grew without a word is therefore looked at often from then on.
"""

from __future__ import annotations

import logging
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from tierfs.base.system import places

if TYPE_CHECKING:
    from inotify_simple import INotify

log = logging.getLogger(__name__)

# Filesystems of this host alone, by their kind in /proc/self/mountinfo: no other host can write there.
_OWN_KINDS = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "tmpfs", "ramfs", "overlay", "vfat", "exfat")
)

_MS_PER_S = 1000


class Hints:
    """The directories that are watched. Use it in one thread; close it."""

    def __init__(self) -> None:
        """Watch nothing yet. Without inotify, as where its limits are reached, every directory is looked at often."""
        self._inotify: INotify | None = None
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._silent: set[str] = set()
        try:
            from inotify_simple import INotify

            self._inotify = INotify(nonblocking=True)
        except OSError as exc:
            log.warning("inotify is not available (%s): directories are looked at every half second instead", exc)

    def reports(self, directory: str) -> bool:
        """Return whether changes in a directory are reported."""
        return directory in self._watches and directory not in self._silent

    def distrust(self, directory: str) -> None:
        """Note that a file of the directory grew and nothing was reported."""
        self._silent.add(directory)

    def watch(self, directories: frozenset[str]) -> None:
        """Watch these directories and no others."""
        if self._inotify is None:
            return
        from inotify_simple import flags

        mask = flags.MODIFY | flags.CREATE | flags.MOVED_FROM | flags.MOVED_TO | flags.DELETE | flags.ATTRIB
        own = None
        for directory in directories - self._watches.keys():
            own = _Kinds() if own is None else own
            try:
                number = self._inotify.add_watch(directory, mask)
            except OSError as exc:
                log.info("%s is not watched, and looked at every half second instead: %s", directory, exc)
                continue
            self._watches[directory], self._paths[number] = number, directory
            if not own.has(directory):
                self._silent.add(directory)
        for directory in self._watches.keys() - directories:
            number = self._watches.pop(directory)
            del self._paths[number]
            with suppress(OSError):  # the watch ended with its directory
                self._inotify.rm_watch(number)

    def wait(self, timeout_s: float, end: int) -> None:
        """Wait until something is reported, or `end` can be read."""
        waited = select.poll()
        waited.register(end, select.POLLIN)
        if self._inotify is not None:
            waited.register(self._inotify.fileno(), select.POLLIN)
        waited.poll(max(0, round(timeout_s * _MS_PER_S)))

    def reported(self) -> set[str] | None:
        """Return the paths at which something changed since the last call; None: anything may have."""
        if self._inotify is None:
            return set()
        from inotify_simple import flags

        changed: set[str] = set()
        is_all = False
        for event in self._inotify.read(timeout=0):
            is_all |= bool(event.mask & flags.Q_OVERFLOW)
            directory = self._paths.get(event.wd)
            if directory is None:
                continue
            changed.add(os.path.join(directory, event.name) if event.name else directory)
            if event.mask & flags.IGNORED:  # removed, or unmounted: watched again if it is there again
                del self._watches[self._paths.pop(event.wd)]
        return None if is_all else changed

    def close(self) -> None:
        """End all watches."""
        if self._inotify is not None:
            self._inotify.close()


class _Kinds:
    """The kinds of the mounted filesystems, as they are now."""

    def __init__(self) -> None:
        self._kinds = {row.device: row.kind for row in places.table().values()}

    def has(self, directory: str) -> bool:
        """Return whether a directory is in a filesystem of this host alone."""
        try:
            device = os.stat(directory).st_dev
        except OSError:
            return False
        return self._kinds.get(f"{os.major(device)}:{os.minor(device)}") in _OWN_KINDS
