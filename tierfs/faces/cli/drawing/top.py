"""Draw a frame of `tierfs top` as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tierfs.app.mount_activity import Frame, Rate, TopRow
from tierfs.base.words.names import printable
from tierfs.base.words.stored_size import StoredSize
from tierfs.faces.cli import output
from tierfs.faces.cli.drawing.progress import fitting

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
        _GAP.join(["cold   ", f"GET {_rate(frame.fetched)}", *_unpacked(frame), fetches, *hits]),
        _GAP.join(["link   ", _link(frame.link)]),
        *([] if frame.limits is None else [_GAP.join(["limits ", *_limits(frame.limits)])]),
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


def _unpacked(frame: Frame) -> Iterator[str]:
    """Yield the plain bytes of what compressed objects sent, if any did."""
    held = StoredSize(round(frame.unpacked.plain_bytes_per_s), round(frame.unpacked.stored_bytes_per_s))
    if held.stored_bytes and held.ratio is not None:
        yield f"unpacked to {_size(held.plain_bytes)}/s (ratio {held.ratio:.2f})"


def _limits(limits: Mapping[str, Any]) -> Iterator[str]:
    """Yield the limits of reads, the fetches that wait for them, and the users who have spent their budgets."""
    for name, of in (("bandwidth", "in all"), ("user_bandwidth", "for each user")):
        if limits[name]:
            yield f"{_size(limits[name])}/s {of}"
    yield f"{limits['fetches_waiting']} waiting"
    if limits["hourly_bytes"] or limits["hourly_requests"]:
        spent = sum(budget["wait_s"] > 0 for budget in limits["budgets"])
        yield f"{output.count(spent, 'user')} without budget"


def _backlog(frame: Frame) -> str:
    backlog = frame.backlog
    if backlog is None:
        return "not examined yet" if frame.holder else "only a running mount or daemon knows it"
    waiting, active = output.size(backlog["pending_bytes"]), output.size(backlog["active_bytes"])
    oldest = f"{_GAP}oldest {output.duration(backlog['oldest_s'])}" if backlog["oldest_s"] else ""
    kept = f"{_GAP}{output.size(backlog['kept_bytes'])} kept local" if backlog.get("kept_bytes") else ""
    return f"{waiting} to offload{_GAP}{active} in active chunks{oldest}{kept}"
