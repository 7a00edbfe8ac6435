"""Filling the disk cache with the cold bytes of segments. Part of the composition root."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tierfs.app import Store
from tierfs.composition.warm_way import Way, find_way
from tierfs.errors import Conflict, InvalidRequest, StorageFull
from tierfs.metadata import directories
from tierfs.metadata.records import SegmentRecord
from tierfs.parallel import Meter, OnProgress
from tierfs.reading import warm_plan
from tierfs.reading.cache_files import slots_within
from tierfs.reading.warm_plan import Plan, Target
from tierfs.types import SegmentId

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

    def _fill(self, way: Way, plan: Plan) -> Plan:
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

    def _plan(self, way: Way) -> Plan:
        room = way.room_bytes()
        targets = [Target(name, number, way.priority_of(name)) for number, (name, _) in self._segments.items()]
        plan = warm_plan.plan(self._store.metadata, targets, room)
        if plan.left_out_bytes and not plan.wanted:
            raise StorageFull(
                f"disk cache {self._directory} has no room: its disk is full",
                remedy="make room there, or name another disk with read.cache_directory",
            )
        if plan.left_out_bytes and way.overshoot_bytes:
            return warm_plan.plan(self._store.metadata, targets, room - way.overshoot_bytes)
        return plan

    def _reported(self, way: Way, plan: Plan, held: int, before: int) -> WarmReport:
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
