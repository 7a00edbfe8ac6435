"""A frame of `tierfs top` as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tierfs.cli import format
from tierfs.cli.top_frame import CacheRow, Frame, Rate, SegmentRow
from tierfs.names import printable

_GAP = "   "
_TABLE_HEADER = ("read/s", "tier", "handles", "at", "of", "ahead", "segment")


def draw(frame: Frame, mountpoint: str, rows: int | None = None) -> list[str]:
    """At most `rows` lines; no limit without it."""
    head = [
        f"{printable(mountpoint)}  {printable(frame.store)}, up {format.duration(frame.uptime_s)}",
        _GAP.join(["reads  ", *(f"{tier} {_rate(rate)}" for tier, rate in frame.reads.items()), _operations(frame)]),
        _GAP.join(["cold   ", f"GET {_rate(frame.fetched)}", _fetches(frame), *map(_cache, frame.caches)]),
        _GAP.join(["memory ", _memory(frame), *_disk_cache(frame)]),
        _GAP.join(["backlog", _backlog(frame)]),
        "",
    ]
    lines = head + _table(frame.segments)
    hidden = frame.segments_open - len(frame.segments)
    if rows is not None and len(lines) > rows:
        shown = max(0, rows - len(head) - 2)
        hidden = frame.segments_open - shown
        lines = head + _table(frame.segments[:shown])
    if hidden > 0:
        lines.append(f"and {format.count(hidden, 'more open segment')}")
    return [line.rstrip() for line in lines[:rows]]


def _table(segments: Sequence[SegmentRow]) -> list[str]:
    if not segments:
        return ["no segment is open"]
    return format.lines([_TABLE_HEADER, *map(_cells, segments)], *">>>>>><")


def _cells(row: SegmentRow) -> tuple[str, ...]:
    return (
        f"{_size(row.reads.bytes_per_s)}",
        row.served_from or "-",
        str(row.handles),
        format.size(row.offset),
        format.size(row.length) + ("" if row.sealed else "+"),
        format.size(row.window_bytes) if row.window_bytes else "-",
        printable(row.name),
    )


def _rate(rate: Rate) -> str:
    return f"{_size(rate.bytes_per_s)}/s ({rate.requests_per_s:,.0f}/s)"


def _size(size_bytes: float) -> str:
    return format.size(round(size_bytes))


def _operations(frame: Frame) -> str:
    return f"{frame.operations_per_s:,.0f} operations/s{_GAP}{frame.errors_per_s:,.0f} failed/s"


def _fetches(frame: Frame) -> str:
    return f"{frame.fetches_in_flight} in flight, {frame.fetches_waiting} waiting"


def _cache(row: CacheRow) -> str:
    share = "-" if row.hit_percent is None else f"{row.hit_percent:.1f} %"
    return f"{row.name} hits {share}"


def _memory(frame: Frame) -> str:
    used, budget = format.size(frame.memory_used_bytes), format.size(frame.memory_budget_bytes)
    handles = format.count(frame.handles, "handle")
    return f"{used} of {budget}{_GAP}{handles}{_GAP}{format.count(frame.sessions, 'session')}"


def _disk_cache(frame: Frame) -> list[str]:
    cache = frame.disk_cache
    if cache is None:
        return []
    return [f"disk cache {format.size(cache['used_bytes'])} of {format.size(cache['limit_bytes'])}, {cache['state']}"]


def _backlog(frame: Frame) -> str:
    backlog = frame.backlog
    if backlog is None:
        return "not looked at yet" if frame.holder else "known to the holder, which is another process or none"
    waiting, active = format.size(backlog["pending_bytes"]), format.size(backlog["active_bytes"])
    oldest = f"{_GAP}oldest {format.duration(backlog['oldest_s'])}" if backlog["oldest_s"] else ""
    return f"{waiting} to offload{_GAP}{active} in active chunks{oldest}"
