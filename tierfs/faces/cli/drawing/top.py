"""Compute a frame of `tierfs top` from two snapshots of `.tierfs/stats`, and draw it as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.drawing.progress import fitting

# One document of `.tierfs/stats`; its keys are in docs/monitoring.md.
Stats = Mapping[str, Any]

# Resolution of the document's times; avoids a division by zero for two snapshots within it.
_SHORTEST_S = 0.001

_OF_FRAMES = ("store", "uptime_s", "handles", "sessions", "disk_cache", "holder", "backlog", "segments_open")

# What is in a frame as the mount says it.
_OF_ROWS = ("name", "handles", "served_from", "offset", "length", "sealed", "window_bytes")

# Columns of a name, at least, however narrow the terminal is.
_LEAST_NAME = 12

_GAP = "   "
_MS_PER_S = 1000
_TABLE_HEADER = ("read/s", "tier", "handles", "at", "of", "ahead", "by", "segment")


# Orders of the open segments; the first is that of a frame.
ORDERS: dict[str, Callable[[TopRow], tuple[float | str, ...]]] = {
    "read": lambda row: (-row.reads.bytes_per_s, row.name),
    "handles": lambda row: (-row.handles, row.name),
    "ahead": lambda row: (-row.window_bytes, row.name),
    "name": lambda row: (row.name,),
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests and their bytes, per second."""

    requests_per_s: float
    bytes_per_s: float


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
        caches=_caches(before, after),
        memory_used_bytes=after["memory"]["used_bytes"],
        memory_budget_bytes=after["memory"]["budget_bytes"],
        fetches_in_flight=after["fetches"]["in_flight"],
        fetches_waiting=after["fetches"]["waiting"],
        link=after["link"],
        segments=tuple(sorted(rows, key=lambda row: (-row.reads.bytes_per_s, row.name))),
        **{key: after[key] for key in _OF_FRAMES},
    )


def _row(before: Stats, after: Stats, interval_s: float) -> TopRow:
    processes = tuple(after.get("processes", ()))
    reads = _frame_rate(before, after, interval_s)
    return TopRow(reads=reads, processes=processes, **{key: after[key] for key in _OF_ROWS})


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


def draw(
    frame: Frame, mountpoint: str, rows: int | None = None, columns: int | None = None, order: str = "read"
) -> list[str]:
    """Return the lines of a frame, at most `rows` of `columns` if given, with the segments in an order of ORDERS."""
    segments = sorted(frame.segments, key=ORDERS[order])
    used, budget = output.size(frame.memory_used_bytes), output.size(frame.memory_budget_bytes)
    memory = [f"{used} of {budget}", output.count(frame.handles, "handle"), output.count(frame.sessions, "session")]
    if frame.disk_cache is not None:
        cache = frame.disk_cache
        cached, limit = output.size(cache["used_bytes"]), output.size(cache["limit_bytes"])
        memory.append(f"disk cache {cached} of {limit}, {cache['state']}")
    operations = [f"{frame.operations_per_s:,.0f} operations/s", f"{frame.errors_per_s:,.0f} failed/s"]
    shares = [(row.name, row.hit_percent) for row in frame.caches]
    hits = [f"{name} hits {'-' if share is None else f'{share:.1f} %'}" for name, share in shares]
    fetches = f"{frame.fetches_in_flight} in flight, {frame.fetches_waiting} waiting"
    head = [
        f"{printable(mountpoint)}  {printable(frame.store)}, up {output.duration(frame.uptime_s)}",
        _GAP.join(["reads  ", *(f"{tier} {_rate(rate)}" for tier, rate in frame.reads.items()), *operations]),
        _GAP.join(["cold   ", f"GET {_rate(frame.fetched)}", fetches, *hits]),
        _GAP.join(["link   ", _link(frame.link)]),
        _GAP.join(["memory ", *memory]),
        _GAP.join(["backlog", _backlog(frame)]),
        "",
    ]
    lines = head + _table(segments, columns)
    hidden = frame.segments_open - len(frame.segments)
    if rows is not None and len(lines) > rows:
        shown = max(0, rows - len(head) - 2)
        hidden = frame.segments_open - shown
        lines = head + _table(segments[:shown], columns)
    if hidden > 0:
        lines.append(f"and {output.count(hidden, 'more open segment')}")
    return [line.rstrip() for line in lines[:rows]]


def _table(segments: Sequence[TopRow], columns: int | None) -> list[str]:
    """Return the lines of the segments; names that do not fit into the columns keep their end."""
    if not segments:
        return ["no open segments"]
    cells = [
        (
            _size(row.reads.bytes_per_s),
            row.served_from or "-",
            str(row.handles),
            output.size(row.offset),
            output.size(row.length) + ("" if row.sealed else "+"),
            output.size(row.window_bytes) if row.window_bytes else "-",
            _opener(row),
            printable(row.name),
        )
        for row in segments
    ]
    names = [cell[-1] for cell in cells]
    lines = output.lines([_TABLE_HEADER, *((*cell[:-1], "") for cell in cells)], *">>>>>><<")
    header, before = lines[0], lines[0].rindex(_TABLE_HEADER[-1])
    if columns is not None:
        names = [fitting(name, max(_LEAST_NAME, columns - before)) for name in names]
    return [header, *(f"{line:<{before}}{name}" for line, name in zip(lines[1:], names, strict=True))]


def _opener(row: TopRow) -> str:
    """Return the process with most handles, and the number of the others."""
    if not row.processes:
        return "-"
    first, others = row.processes[0], len(row.processes) - 1
    return f"{first['command'] or '?'}[{first['pid']}]" + (f" +{others}" if others else "")


def _rate(rate: Rate) -> str:
    return f"{_size(rate.bytes_per_s)}/s ({rate.requests_per_s:,.0f}/s)"


def _size(size_bytes: float) -> str:
    return output.size(round(size_bytes))


def _link(link: Mapping[str, Any]) -> str:
    """Return the measurements; a mount that has read nothing cold has none."""
    streams = output.count(link["streams"], "stream")
    if link["first_byte_s"] is None:
        return f"{streams}, not measured yet"
    rate = link["connection_bytes_per_s"]
    shown = "" if rate is None else f"{_GAP}{_size(rate)}/s for each connection"
    return f"{streams}{_GAP}first byte {link['first_byte_s'] * _MS_PER_S:.1f} ms{shown}"


def _backlog(frame: Frame) -> str:
    backlog = frame.backlog
    if backlog is None:
        return "not examined yet" if frame.holder else "only a running mount or daemon knows it"
    waiting, active = output.size(backlog["pending_bytes"]), output.size(backlog["active_bytes"])
    oldest = f"{_GAP}oldest {output.duration(backlog['oldest_s'])}" if backlog["oldest_s"] else ""
    kept = f"{_GAP}{output.size(backlog['kept_bytes'])} kept local" if backlog.get("kept_bytes") else ""
    return f"{waiting} to offload{_GAP}{active} in active chunks{oldest}{kept}"
