"""The activity of a mount: two snapshots of `.tierfs/stats` compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tierfs.app.mount_stats import Stats
from tierfs.base.bytes.frozen import dataclass

# Resolution of the document's times; avoids a division by zero for two snapshots within it.
_SHORTEST_S = 0.001

_OF_FRAMES = ("store", "uptime_s", "handles", "sessions", "disk_cache", "holder", "backlog", "segments_open")

# What is in a frame as the mount says it.
_OF_ROWS = ("name", "handles", "served_from", "offset", "length", "sealed", "window_bytes")


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests and their bytes, per second."""

    requests_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Bytes read from compressed objects, per second: as received, and as readers got them."""

    stored_bytes_per_s: float
    plain_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class CacheRow:
    """Hits and misses of a cache."""

    name: str
    hits: int
    misses: int

    @property
    def hit_percent(self) -> float | None:
        """Share of hits; None without a lookup."""
        lookups = self.hits + self.misses
        return 100 * self.hits / lookups if lookups else None


@dataclass(frozen=True, slots=True)
class TopRow:
    """One open segment."""

    name: str
    handles: int
    reads: Rate
    served_from: str | None
    offset: int
    length: int
    sealed: bool
    window_bytes: int
    processes: tuple[Mapping[str, Any], ...] = ()
    """`pid`, `uid`, `command` and `handles` of those that have it open, at most 10."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A mount during one interval; values other than rates and counts are as of its end."""

    store: str
    interval_s: float
    uptime_s: float
    operations_per_s: float
    errors_per_s: float
    reads: Mapping[str, Rate]
    """By serving tier."""
    fetched: Rate
    """GETs from the cold tier by all parts of the process."""
    unpacked: Unpacked
    caches: tuple[CacheRow, ...]
    memory_used_bytes: int
    memory_budget_bytes: int
    fetches_in_flight: int
    fetches_waiting: int
    link: Mapping[str, Any]
    handles: int
    sessions: int
    disk_cache: Mapping[str, Any] | None
    holder: bool
    backlog: Mapping[str, Any] | None
    limits: Mapping[str, Any] | None
    """Of reads; None without any."""
    segments_open: int
    segments: tuple[TopRow, ...]
    """Fastest first."""


def frame(before: Stats, after: Stats) -> Frame:
    """Return the activity from `before` to `after`; all of `after` if the mount was restarted in between."""
    if after["uptime_s"] < before["uptime_s"]:
        before = {"uptime_s": 0.0}
    interval_s = max(after["uptime_s"] - before["uptime_s"], _SHORTEST_S)
    errors = [_sum_grown(_in(before, "errors", operation), now) for operation, now in after["errors"].items()]
    old = {segment["id"]: segment for segment in before.get("segments", ())}
    rows = [_row(old.get(segment["id"], {}), segment, interval_s) for segment in after["segments"]]
    return Frame(
        interval_s=interval_s,
        operations_per_s=_sum_grown(before.get("operations"), after["operations"]) / interval_s,
        errors_per_s=sum(errors) / interval_s,
        reads={tier: _frame_rate(_in(before, "reads", tier), now, interval_s) for tier, now in after["reads"].items()},
        fetched=_frame_rate(_in(before, "storage", "read"), _in(after, "storage", "read"), interval_s),
        unpacked=_unpacked(before.get("unpacked", {}), after.get("unpacked", {}), interval_s),
        caches=_caches(before, after),
        memory_used_bytes=after["memory"]["used_bytes"],
        memory_budget_bytes=after["memory"]["budget_bytes"],
        fetches_in_flight=after["fetches"]["in_flight"],
        fetches_waiting=after["fetches"]["waiting"],
        link=after["link"],
        limits=after.get("limits"),  # a mount of an older version has none
        segments=tuple(sorted(rows, key=lambda row: (-row.reads.bytes_per_s, row.name))),
        **{key: after[key] for key in _OF_FRAMES},
    )


def _row(before: Stats, after: Stats, interval_s: float) -> TopRow:
    processes = tuple(after.get("processes", ()))
    reads = _frame_rate(before, after, interval_s)
    return TopRow(reads=reads, processes=processes, **{key: after[key] for key in _OF_ROWS})


def _unpacked(before: Stats, after: Stats, interval_s: float) -> Unpacked:
    """Return nothing for a mount of an older version, which does not tell."""
    return Unpacked(*(_grown(before, after, f"{form}_bytes") / interval_s for form in ("stored", "plain")))


def _caches(before: Stats, after: Stats) -> tuple[CacheRow, ...]:
    caches = dict(after["cache"])
    if after["disk_cache"] is not None:
        caches["disk"] = after["disk_cache"]
    rows = []
    for name, now in caches.items():
        then = (before.get("disk_cache") or {}) if name == "disk" else _in(before, "cache", name)
        rows.append(CacheRow(name, _grown(then, now, "hits"), _grown(then, now, "misses")))
    return tuple(rows)


def _frame_rate(before: Stats, after: Stats, interval_s: float) -> Rate:
    return Rate(_grown(before, after, "requests") / interval_s, _grown(before, after, "bytes") / interval_s)


def _sum_grown(before: Stats | None, after: Stats) -> int:
    return sum(_grown(before or {}, after, key) for key in after)


def _grown(before: Stats, after: Stats, key: str) -> int:
    """Return the growth of a count; the whole count if it was reset."""
    then, now = int(before.get(key, 0)), int(after.get(key, 0))
    return now - then if now >= then else now


def _in(stats: Stats, *keys: str) -> Stats:
    """Return a part of a document, empty if missing."""
    for key in keys:
        stats = stats.get(key, {})
    return stats
