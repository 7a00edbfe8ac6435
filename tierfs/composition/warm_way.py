"""The two ways to fill the disk cache: in this process, or through the mount that has it. Composition root."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tierfs.app import Store
from tierfs.errors import Conflict, PermissionDenied, StorageFull, TierfsError, Unavailable
from tierfs.mounts import mounts
from tierfs.parallel import Meter
from tierfs.reading.cache_files import InUse, room_bytes
from tierfs.reading.cache_health import CacheState
from tierfs.reading.cache_report import OFF
from tierfs.reading.cache_writer import MAX_PENDING_BYTES
from tierfs.reading.disk_cache import FREE_FLOOR_BYTES, DiskCache
from tierfs.reading.warm import Warmer
from tierfs.reading.warm_mount import ThroughMount, read_report
from tierfs.reading.warm_plan import Wanted, held_bytes
from tierfs.types import ReadPriority

_LAG_SHARE = 32
"""Share of a mount's memory that may wait for its disk before this waits: far less than what it drops at, for what
it reads ahead comes on top."""

_WINDOWS_AHEAD = 2
"""A window is rounded up to whole fetches, and the kernel reads ahead too."""


class Way(Protocol):
    """One way to fill a cache."""

    @property
    def mountpoint(self) -> Path | None:
        """The mount whose process does it."""
        ...

    @property
    def overshoot_bytes(self) -> int:
        """How far behind what is wanted it may fetch: room for it is left when not everything fits."""
        ...

    def room_bytes(self) -> int:
        """How many bytes of blocks the cache can hold."""
        ...

    def priority_of(self, name: str) -> ReadPriority:
        """Which tier a segment is read from first."""
        ...

    def held_bytes(self, wanted: Sequence[Wanted]) -> int:
        """How many of the bytes the cache holds."""
        ...

    def fill(self, wanted: Sequence[Wanted], advance: Meter) -> None:
        """Fetch what is missing; return when it is stored."""
        ...

    def not_kept(self, held: int, wanted: int) -> TierfsError:
        """What to say of a cache that holds less in the end than it has room for."""
        ...

    def close(self) -> None:
        """Let go of the cache."""
        ...


def find_way(store: Store, directory: Path) -> Way:
    """The way that works now. Raises Conflict, Unavailable or PermissionDenied when the cache cannot be used."""
    try:
        return OwnCache(store, directory)
    except InUse:
        return _mount_with(store, directory)


class OwnCache:
    """This process has the cache."""

    mountpoint = None
    overshoot_bytes = 0

    def __init__(self, store: Store, directory: Path) -> None:
        """Raises InUse, Unavailable, PermissionDenied."""
        self._store = store
        self._directory = directory
        self._size_bytes = store.settings.read.cache_bytes
        try:
            self._cache = DiskCache.open_or_raise(directory, store.metadata.store_id, self._size_bytes, store.metrics)
        except OSError as exc:
            kind = PermissionDenied if isinstance(exc, PermissionError) else Unavailable
            remedy = "see the setting read.cache_directory"
            raise kind(f"the disk cache cannot be opened: {exc}", remedy=remedy) from exc

    def room_bytes(self) -> int:
        """By its size and its disk."""
        return room_bytes(self._directory, self._size_bytes, FREE_FLOOR_BYTES)

    def priority_of(self, name: str) -> ReadPriority:
        """Everything that is cold, for the local copy may go before it is read."""
        return ReadPriority.OFFLOADED_FIRST

    def held_bytes(self, wanted: Sequence[Wanted]) -> int:
        """By its table."""
        return held_bytes(wanted, self._cache.holds)

    def fill(self, wanted: Sequence[Wanted], advance: Meter) -> None:
        """Raises what Warmer.run raises."""
        store = self._store
        warmer = Warmer(self._cache, store.metadata, store.storage_of, store.metrics, advance)
        warmer.run(wanted, store.settings.read.streams)

    def not_kept(self, held: int, wanted: int) -> TierfsError:
        """StorageFull for a disk that filled up meanwhile."""
        kept = f"disk cache {self._directory} kept {held} of {wanted} bytes"
        if self._cache.stats.state is CacheState.FULL_DISK:
            return StorageFull(f"{kept}: its disk is full", remedy="make room there, then run it again")
        return Unavailable(kept, remedy="run it again")

    def close(self) -> None:
        """Close it."""
        self._cache.close()


class MountCache(ThroughMount):
    """A mount has the cache."""

    def __init__(self, store: Store, mountpoint: Path, directory: Path) -> None:
        read = store.settings.read
        lag_bytes = min(MAX_PENDING_BYTES, read.budget_bytes) // _LAG_SHARE
        super().__init__(mountpoint, directory, store.metadata.store_id, lag_bytes)
        self._window_bytes = read.max_window_bytes

    @property
    def overshoot_bytes(self) -> int:
        """How far the mount and the kernel read ahead, but half of the cache is used in any case."""
        return min(_WINDOWS_AHEAD * self._window_bytes, self.room_bytes() // 2)

    def room_bytes(self) -> int:
        """By the size that the mount has it open with, and its disk."""
        return room_bytes(self._directory, self.report().size_bytes, FREE_FLOOR_BYTES)

    def not_kept(self, held: int, wanted: int) -> TierfsError:
        """What it has in memory and once failed to store is stored only when it is fetched again."""
        kept = f"the mount at {self.mountpoint} kept {held} of {wanted} bytes in its disk cache"
        return Unavailable(kept, remedy="see its log; run it again later")

    def close(self) -> None:
        """Nothing is held."""


def _mount_with(store: Store, directory: Path) -> MountCache:
    """The mount of this store that has the cache in a directory. Raises Conflict when none has."""
    for mount in mounts():
        if os.path.realpath(mount.store) != os.path.realpath(store.path):
            continue
        try:
            report = read_report(mount.mountpoint)
        except (OSError, ValueError):
            continue  # a dead one, or one of an older version
        if report.state != OFF and os.path.realpath(report.directory) == os.path.realpath(directory):
            return MountCache(store, mount.mountpoint, directory)
    raise Conflict(
        f"disk cache {directory} is in use by another process, and no mount of this store has it here",
        remedy="wait until another warmup ends, or run it where the mount is",
    )
