"""Fill the disk cache with the cold bytes of segments, in the process that has it. Part of the composition root.

A mount has the cache for as long as it is mounted: it fills it at the request of commands. Else the command does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, Progress
from tierfs.base.system.mounts import SILENT, SILENT_REMEDY, MountState, state_of
from tierfs.base.words.errors import Conflict, InvalidRequest, PermissionDenied, StorageFull, TierfsError, Unavailable
from tierfs.base.words.names import CONTROL_NAME
from tierfs.base.words.types import ReadPriority, SegmentId
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.holder_records import RequestRecord
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading.cache import fill_plan
from tierfs.reading.cache.cache import FREE_FLOOR_BYTES, DiskCache
from tierfs.reading.cache.files import InUse, room_bytes, slots_within
from tierfs.reading.cache.fill import Warmer
from tierfs.reading.cache.fill_plan import FillPlan, Target, held_bytes
from tierfs.reading.cache.health import CacheState
from tierfs.reading.cache_report import CACHE_REPORT_NAME, CacheReport
from tierfs.upkeep.holder import requests
from tierfs.upkeep.holder.lock import mounts_of
from tierfs.upkeep.holder.requests import RequestServer

# Options of a request: the cache's directory, the mount that has it, and what to fetch as a list in JSON.
_CACHE, _MOUNTPOINT, _PATHS = "cache", "mountpoint", "paths"

# Objects that are replaced while they are fetched, so often in a row: something is wrong (a guess).
_MOST_PLANS = 10


@dataclass(frozen=True, slots=True)
class WarmReport:
    """The result of a warm-up."""

    segments: int = 0
    cold_bytes: int = 0
    """Bytes that the cold tier serves."""
    held_bytes: int = 0
    """Cold bytes that the cache holds now."""
    already_held_bytes: int = 0
    """Cold bytes that the cache held before."""
    local_bytes: int = 0
    """Skipped: served by the local disk."""
    left_out_bytes: int = 0
    """Cold, but after the last byte that fits into the cache."""
    lost_bytes: int = 0
    mountpoint: str | None = None
    """The mount that filled its cache; None when this process did."""


def warm_up(store: Store, paths: Sequence[str], report: OnProgress) -> WarmReport:
    """Have the cache filled with what is at or below the paths; again is fine and fetches only what is missing.

    Raises NotFound or NotDirectory for a path, InvalidRequest while the cache is off; Conflict, Unavailable,
    PermissionDenied or StorageFull for a cache that cannot be used or did not keep what fits into it; and what reading
    from the cold tier raises.
    """
    with store.metadata.read() as txn:
        segments = _segments(txn, paths)
    directory = _require_cache(store)
    if not any(record.cold.bytes for _, record in segments):
        return WarmReport(len(segments), local_bytes=sum(record.range.length_bytes for _, record in segments))

    def fill_here() -> WarmReport:
        with closing(_own_cache(store, directory)) as cache:
            return CacheFiller(store, cache, directory).fill(paths, report)

    try:
        return fill_here()
    except InUse:
        options = {_CACHE: os.path.realpath(directory), _MOUNTPOINT: str(_mount_with(store, directory))}
    options[_PATHS] = json.dumps(paths)
    number = requests.submit(store.metadata, requests.WARM_UP, ", ".join(paths), options)
    return requests.wait_for(store.metadata, number, WarmReport, report, fill_here, InUse)


class CacheFiller:
    """Fills the disk cache that this process has."""

    def __init__(
        self,
        store: Store,
        cache: DiskCache,
        directory: Path,
        still_wanted: Callable[[], object] = lambda: None,
        mount_option: Callable[[], ReadPriority | None] = lambda: None,
    ) -> None:
        """`still_wanted` is called every now and then, and raises what shall end it; `mount_option` is the read
        priority of the mount that has the cache."""
        self._store = store
        self._mount_option = mount_option
        self._cache = cache
        self._directory = directory
        self._still_wanted = still_wanted
        self._uncached_bytes = 0

    def fill(self, paths: Sequence[str], report: OnProgress, *, as_read: bool = False) -> WarmReport:
        """Do what warm_up says. `as_read`: by the mount's read priorities; else all that is cold, also copied here."""
        targets = self.targets(paths, as_read=as_read)
        self._check()
        plan = self._plan(targets)
        before = held_bytes(plan.wanted, self._cache.holds)
        plan = self._follow(targets, plan, Meter(report, noun="range"))
        held = held_bytes(plan.wanted, self._cache.holds)
        wanted = plan.wanted_bytes - self._uncached_bytes
        if held < wanted and not (plan.left_out_bytes and as_read):  # readers need room in a full cache
            raise self._not_kept(held, wanted)
        return WarmReport(
            segments=len(targets),
            cold_bytes=plan.cold_bytes,
            held_bytes=held,
            already_held_bytes=before,
            local_bytes=plan.local_bytes,
            left_out_bytes=plan.left_out_bytes,
            lost_bytes=plan.lost_bytes,
        )

    def targets(self, paths: Sequence[str], *, as_read: bool) -> list[Target]:
        """Return the segments below some paths, with the priorities that `fill` goes by."""
        call, cache = None if as_read else ReadPriority.OFFLOADED_FIRST, policies.PolicyCache()
        with self._store.metadata.read() as txn:
            return [
                Target(name, record.id, cache.of(txn, record).read_priority(call, self._mount_option()))
                for name, record in _segments(txn, paths)
            ]

    def _follow(self, targets: Sequence[Target], plan: FillPlan, meter: Meter) -> FillPlan:
        """Fill the cache by a plan, and by newer ones while objects of it are replaced; return the last one."""
        store, missing = self._store, plan.wanted
        for _ in range(_MOST_PLANS):
            meter.total_bytes += sum(part.held.length_bytes for part in missing)
            meter.total_items += len(missing)
            threads = store.settings.read.streams
            warmer = Warmer(
                self._cache,
                store.metadata,
                store.storage_of,
                store.metrics,
                meter,
                threads,
                store.files,
                self._check,
                store.limits.reads,
            )
            warmer.run(missing)
            self._uncached_bytes += warmer.uncached_bytes
            newer = self._plan(targets)
            named = {part.record.id for part in newer.wanted}
            if all(part.record.id in named for part in plan.wanted):
                return plan
            filled = {part.record.id for part in plan.wanted}
            missing = [part for part in newer.wanted if part.record.id not in filled]
            plan = newer
        raise Conflict("objects are replaced faster than the warm-up reads them", remedy="run it again")

    def _plan(self, targets: Sequence[Target]) -> FillPlan:
        room = room_bytes(self._directory, self._cache.stats.size_bytes, FREE_FLOOR_BYTES)
        plan = fill_plan.plan(self._store.metadata, targets, room)
        if plan.left_out_bytes and not plan.wanted:
            raise StorageFull(
                f"disk cache {self._directory} has no space: its disk is full",
                remedy="free space there, or set read.cache_directory to another disk",
            )
        return plan

    def _check(self) -> None:
        self._still_wanted()
        if self._cache.stats.state is CacheState.FAILED:
            remedy = "repair its disk; mount again if a mount uses it; then run the command again"
            raise Unavailable(f"disk cache {self._directory} failed", remedy=remedy)

    def _not_kept(self, held: int, wanted: int) -> TierfsError:
        kept = f"disk cache {self._directory} kept {held} of {wanted} bytes"
        if self._cache.stats.state is CacheState.FULL_DISK:
            return StorageFull(f"{kept}: its disk is full", remedy="free space there, then run the command again")
        return Unavailable(kept, remedy="run it again")


def server(
    store: Store,
    cache: DiskCache,
    directory: Path,
    go_on: Callable[[], object],
    mount_option: Callable[[], ReadPriority | None],
) -> RequestServer:
    """Return what fills the disk cache of this mount for the commands that ask for it, in one thread at a time.

    `go_on` is called every now and then, and raises once the mount ends.
    """

    def takes(request: RequestRecord) -> bool:
        return request.verb == requests.WARM_UP and request.options[_CACHE] == os.path.realpath(directory)

    def carry_out(request: RequestRecord, report: OnProgress) -> WarmReport:
        newest = Progress(0, 0, "")

        def note(progress: Progress) -> None:
            nonlocal newest
            newest = progress

        def still_wanted() -> None:
            go_on()
            requests.get(store.metadata, request.id)  # NotFound once the command was interrupted
            report(newest)  # not in the threads that fetch, for it waits for the disk

        filler = CacheFiller(store, cache, directory, still_wanted, mount_option)
        done = filler.fill(json.loads(request.options[_PATHS]), note, as_read=True)
        return replace(done, mountpoint=request.options[_MOUNTPOINT])

    return RequestServer(store.metadata, takes, carry_out)


def _own_cache(store: Store, directory: Path) -> DiskCache:
    """Open the cache in this process. Raises InUse, Unavailable, PermissionDenied."""
    try:
        size_bytes = store.settings.read.cache_bytes
        return DiskCache.open_or_raise(directory, store.metadata.store_id, size_bytes, store.metrics)
    except OSError as exc:
        kind = PermissionDenied if isinstance(exc, PermissionError) else Unavailable
        remedy = "see the setting read.cache_directory"
        raise kind(f"disk cache {directory} cannot be opened: {exc.strerror or exc}", remedy=remedy) from exc


def _mount_with(store: Store, directory: Path) -> Path:
    """Find the mount of this store that has the cache in a directory.

    Raises Conflict when none has, Unavailable when one does not answer.
    """
    silent: Path | None = None
    for mount in mounts_of(store.path):
        if state_of(mount) is MountState.SILENT:  # a read of its control files would wait for ever
            silent = mount.mountpoint
            continue
        try:
            report = CacheReport.decode((mount.mountpoint / CONTROL_NAME / CACHE_REPORT_NAME).read_bytes())
        except (OSError, ValueError):
            continue  # a dead one
        if report.fills_on_request and os.path.realpath(report.directory) == os.path.realpath(directory):
            return mount.mountpoint
    if silent is not None:
        raise Unavailable(
            f"disk cache {directory} is that of the mount at {silent}, whose daemon {SILENT}",
            remedy=f"{SILENT_REMEDY} {silent}",
        )
    raise Conflict(
        f"disk cache {directory} is in use by another process, and it is not a mount of this store that could fill it",
        remedy="wait until the other warmup ends, run the command where the mount is, or mount again after an upgrade",
    )


def _segments(txn: ReadTransaction, paths: Sequence[str]) -> list[tuple[str, SegmentRecord]]:
    """Return names and records of the segments at or below the paths, each once, in order."""
    segments: dict[SegmentId, tuple[str, SegmentRecord]] = {}
    for path in paths:
        for name, record in directories.segments_at(txn, path):
            segments.setdefault(record.id, (name, record))
    return list(segments.values())


def _require_cache(store: Store) -> Path:
    """Return the cache's directory. Raises InvalidRequest when it is switched off or too small to hold anything."""
    read = store.settings.read
    if read.cache_bytes == 0:
        raise InvalidRequest(
            "the disk cache is disabled: read.cache_bytes is 0",
            remedy="enable it: tierfs config read.cache_bytes=100GiB",
        )
    if slots_within(read.cache_bytes) == 0:
        raise InvalidRequest(f"the disk cache is too small: read.cache_bytes is {read.cache_bytes}")
    return store.paths.cache(read.cache_directory)
