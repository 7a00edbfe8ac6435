"""Filling the disk cache with the cold bytes of segments. Part of the composition root.

The two ways to fill the disk cache: in this process, or through the mount that has it. Composition root.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierfs.app.store import Store
from tierfs.errors import Conflict, InvalidRequest, PermissionDenied, StorageFull, TierfsError, Unavailable
from tierfs.metadata import directories
from tierfs.metadata.records import SegmentRecord
from tierfs.parallel import Meter, OnProgress
from tierfs.reading.cache import fill_plan
from tierfs.reading.cache.cache import FREE_FLOOR_BYTES, MAX_PENDING_BYTES, DiskCache
from tierfs.reading.cache.files import InUse, room_bytes, slots_within
from tierfs.reading.cache.fill import Warmer
from tierfs.reading.cache.fill_plan import FillPlan, Target, WantedBytes, held_bytes
from tierfs.reading.cache.fill_through_mount import ThroughMount, read_report
from tierfs.reading.cache.health import CacheState
from tierfs.reading.stats import OFF
from tierfs.system.mounts import mounts
from tierfs.types import ReadPriority, SegmentId

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

    def held_bytes(self, wanted: Sequence[WantedBytes]) -> int:
        """How many of the bytes the cache holds."""
        ...

    def fill(self, wanted: Sequence[WantedBytes], advance: Meter) -> None:
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

    def held_bytes(self, wanted: Sequence[WantedBytes]) -> int:
        """By its table."""
        return held_bytes(wanted, self._cache.holds)

    def fill(self, wanted: Sequence[WantedBytes], advance: Meter) -> None:
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


_MOST_PLANS = 10
"""Objects that are replaced while they are fetched, so often in a row: something is wrong (a guess)."""


@dataclass(frozen=True, slots=True)
class WarmReport:
    """What a warm-up found and did."""

    segments: int = 0
    cold_bytes: int = 0
    """What the cold tier serves of them."""
    held_bytes: int = 0
    """What of it the cache holds now."""
    already_held_bytes: int = 0
    """What of it the cache held before."""
    local_bytes: int = 0
    """Skipped: served by the local disk."""
    left_out_bytes: int = 0
    """Cold, but behind what fits into the cache."""
    lost_bytes: int = 0
    mountpoint: str | None = None
    """The mount that filled its cache; None when this process did."""


class Warming:
    """One run over the segments at or below some paths; used once."""

    def __init__(self, store: Store, paths: Sequence[str], report: OnProgress) -> None:
        """Raises NotFound or NotDirectory for a path, InvalidRequest while the cache is off."""
        self._store = store
        self._meter = Meter(report)
        self._segments = _segments(store, paths)
        self._directory = _require_cache(store)

    def run(self) -> WarmReport:
        """Fill the cache; again is fine and fetches only what is missing.

        Raises Conflict, Unavailable, PermissionDenied or StorageFull for a cache that cannot be used or did not
        keep what fits into it, and what reading from the cold tier raises.
        """
        if not any(record.cold.bytes for _, record in self._segments.values()):
            local_bytes = sum(record.range.length_bytes for _, record in self._segments.values())
            return WarmReport(segments=len(self._segments), local_bytes=local_bytes)
        with closing(find_way(self._store, self._directory)) as way:
            plan = self._plan(way)
            before = way.held_bytes(plan.wanted)
            plan = self._fill(way, plan)
            held = way.held_bytes(plan.wanted)
            if held < plan.wanted_bytes and not (plan.left_out_bytes and way.overshoot_bytes):
                raise way.not_kept(held, plan.wanted_bytes)
            return self._reported(way, plan, held, before)

    def _fill(self, way: Way, plan: FillPlan) -> FillPlan:
        """Fill the cache by a plan, and by newer ones while objects of it are replaced; returns the last one."""
        left = plan.wanted
        for _ in range(_MOST_PLANS):
            self._meter.total_bytes += sum(one.held.length_bytes for one in left)
            way.fill(left, self._meter)
            newer = self._plan(way)
            named = {one.holder.id for one in newer.wanted}
            if all(one.holder.id in named for one in plan.wanted):
                return plan
            filled = {one.holder.id for one in plan.wanted}
            left = [one for one in newer.wanted if one.holder.id not in filled]
            plan = newer
        raise Conflict("objects are replaced faster than they are warmed up", remedy="run it again")

    def _plan(self, way: Way) -> FillPlan:
        room = way.room_bytes()
        targets = [Target(name, number, way.priority_of(name)) for number, (name, _) in self._segments.items()]
        plan = fill_plan.plan(self._store.metadata, targets, room)
        if plan.left_out_bytes and not plan.wanted:
            raise StorageFull(
                f"disk cache {self._directory} has no room: its disk is full",
                remedy="make room there, or name another disk with read.cache_directory",
            )
        if plan.left_out_bytes and way.overshoot_bytes:
            return fill_plan.plan(self._store.metadata, targets, room - way.overshoot_bytes)
        return plan

    def _reported(self, way: Way, plan: FillPlan, held: int, before: int) -> WarmReport:
        return WarmReport(
            segments=len(self._segments),
            cold_bytes=plan.cold_bytes,
            held_bytes=held,
            already_held_bytes=before,
            local_bytes=plan.local_bytes,
            left_out_bytes=plan.left_out_bytes,
            lost_bytes=plan.lost_bytes,
            mountpoint=None if way.mountpoint is None else str(way.mountpoint),
        )


def _segments(store: Store, paths: Sequence[str]) -> dict[SegmentId, tuple[str, SegmentRecord]]:
    """Names and records of the segments at or below the paths, each once, in order."""
    found: dict[SegmentId, tuple[str, SegmentRecord]] = {}
    with store.metadata.read() as txn:
        for path in paths:
            for name, record in directories.segments_at(txn, path):
                found.setdefault(record.id, (name, record))
    return found


def _require_cache(store: Store) -> Path:
    """The cache's directory. Raises InvalidRequest when it is switched off or too small to hold anything."""
    read = store.settings.read
    if read.cache_bytes == 0:
        raise InvalidRequest(
            "the disk cache is switched off: read.cache_bytes is 0",
            remedy=f'switch it on in {store.paths.settings}: [read] cache_bytes = "100GiB"',
        )
    if slots_within(read.cache_bytes) == 0:
        raise InvalidRequest(f"the disk cache holds nothing: read.cache_bytes is {read.cache_bytes}")
    return store.paths.cache(read.cache_directory)
