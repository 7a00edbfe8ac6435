"""tierfs ls and tierfs info: what there is, from the metadata alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from stat import S_IMODE, filemode
from typing import Any, TypeVar

import click

from tierfs.app import Store
from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.session import QUIET, Session
from tierfs.metadata import directories
from tierfs.metadata.records import IngestedFile, SegmentRecord, TierState
from tierfs.names import join, printable, split
from tierfs.segments import stat
from tierfs.segments.endangered import UnreachablePlace, unreachable_of
from tierfs.segments.stat import Listed, SegmentStat
from tierfs.segments.writer_locks import WriterLocks
from tierfs.types import EntryKind, SegmentStatus

_NS_PER_MS = 1_000_000
_COLUMNS = (">12", ">10", ">10", "<20", "<")
"""Of long lines; a letter stands before the first size."""

_HEADER = ("bytes", "local", "cold", "modified (UTC)", "name")

L = TypeVar("L")


@command("ls")
@click.argument("path", metavar="[DIR]", default="")
@click.option(
    "-l",
    "long",
    is_flag=True,
    help="With sealed (S) or open (o), size, local, cold and modified (UTC), under a header but for -q.",
)
def ls(session: Session, path: str, long: bool) -> None:
    """List a directory's names; directories end in a slash. With --json one object per line."""
    with session.open_store() as store:
        name = store.segment_of_path(path)
        if session.json or not long:
            lines = _listing(store, name, _json_line if session.json else _short_line)
        else:
            rows = _listing(store, name, _cells)
            header = [_HEADER] if rows and session.verbosity > QUIET else []
            lines = format.lines([*header, *rows], *_COLUMNS)
    # Printed once the snapshot is released: a pager may take its time.
    for line in lines:
        click.echo(line)


def _listing(store: Store, path: str, show: Callable[[str, Listed], L]) -> list[L]:
    with store.metadata.read() as txn:
        entry = directories.find(txn, path)
        is_segment = entry is not None and entry.kind is EntryKind.SEGMENT
        parent = join(split(path))
        listed = stat.listing(txn, path)
        return [show(parent if is_segment else item.name, item) for item in listed]


def _short_line(name: str, item: Listed) -> str:
    return printable(name) + ("/" if item.kind is EntryKind.DIRECTORY else "")


def _cells(name: str, item: Listed) -> Sequence[str]:
    segment = item.segment
    if segment is None:
        modified = format.clock_time(item.directory.modified_ms) if item.directory is not None else "-"
        flag, sizes = "d", ["-", "-", "-"]
    else:
        modified = format.clock_time(stat.modified_ns(segment) // _NS_PER_MS)
        flag = "S" if segment.sealed else "o"
        sizes = [
            format.size(number) for number in (segment.range.length_bytes, segment.local.bytes, segment.cold.bytes)
        ]
    goes_on = f"  (sealed by policy, goes on in {printable(item.successor)})" if item.successor is not None else ""
    return (f"{flag} {sizes[0]:>10}", *sizes[1:], modified, _short_line(name, item) + goes_on)


def _json_line(name: str, item: Listed) -> str:
    data: dict[str, Any] = {"name": name, "kind": item.kind.name.lower()}
    if item.segment is not None:
        data |= {
            "start_offset": item.segment.start_offset,
            "length": item.segment.length,
            "sealed": item.segment.sealed,
            "successor": item.successor,
            "local_bytes": item.segment.local.bytes,
            "cold_bytes": item.segment.cold.bytes,
            "modified": format.timestamp(stat.modified_ns(item.segment) // _NS_PER_MS),
        }
    elif item.directory is not None:
        data["modified"] = format.timestamp(item.directory.modified_ms)
    return json.dumps(data)


@command("info")
@click.argument("segment")
def info(session: Session, segment: str) -> None:
    """Show a segment: its range, where its bytes are, its checksum and who writes it."""
    with session.open_store() as store:
        with store.metadata.read() as txn:
            found = stat.stat(txn, store.segment_of_path(segment))
            away = unreachable_of(txn, found.record, store.path)
        writer = _living_writer(store, found.record)
    data = {**_info_data(found, writer), "unreachable": [asdict(place) for place in away]}
    session.result(data, _info_text(found, writer, away))


def _living_writer(store: Store, record: SegmentRecord) -> str | None:
    """Who is appending now, by the writer's lock."""
    if record.sealed:
        return None
    locks = WriterLocks(store.paths.writers)
    try:
        alive = locks.is_alive_elsewhere(record.id, record.writer_epoch)
    finally:
        locks.close()
    return str(record.writer) if alive else None


def _info_data(found: SegmentStat, writer: str | None) -> dict[str, Any]:
    record = found.record
    return {
        "segment": found.name,
        "id": record.id,
        "inode": record.inode,
        "start_offset": record.start_offset,
        "length": record.length,
        "sealed": record.sealed,
        "status": _status(record),
        "successor": found.successor,
        "tiers": {"local": _tier_data(record.local), "cold": _tier_data(record.cold)},
        "crc32c": _crc(found),
        "read_priority": found.read_priority.value,
        "created": format.timestamp(record.created_ms),
        "modified": format.timestamp(record.modified_ms),
        "sealed_at": format.timestamp(record.sealed_ms),
        "recovered_at": format.timestamp(record.recovered_ms),
        "lost": [[gap.start, gap.end] for gap in found.lost],
        "suspect": [{"tier": tier.name.lower(), "start": span.start, "end": span.end} for tier, span in found.suspect],
        "writer": writer,
        "file": _file_data(record.file),
    }


def _info_text(found: SegmentStat, writer: str | None, away: Sequence[UnreachablePlace] = ()) -> str:
    record = found.record
    readable = f"{record.start_offset} … {record.length} ({format.size(record.range.length_bytes)})"
    rows = [
        ("segment", printable(found.name)),
        ("bytes", readable),
        ("status", _status_text(found)),
        ("local", _tier_text(record.local)),
        ("cold", _tier_text(record.cold)),
        ("crc32c", _crc(found) or "unknown"),
        ("reads", found.read_priority.value),
        ("created", format.clock_time(record.created_ms)),
        ("modified", format.clock_time(record.modified_ms)),
        ("sealed", format.clock_time(record.sealed_ms)),
        ("id, inode", f"{record.id}, {record.inode}"),
    ]
    if record.file.mode:
        file = record.file
        mode, modified = filemode(file.mode), format.clock_time(file.modified_ns // _NS_PER_MS)
        rows.append(("copy of a file", f"{mode}, modified {modified}, {format.size(file.length)}"))
    if record.recovered_ms:
        rows.append(("recovered", format.clock_time(record.recovered_ms)))
    rows += [("lost", f"bytes {gap.start} … {gap.end} ({format.size(gap.length_bytes)})") for gap in found.lost]
    rows += [
        ("suspect", f"{tier.name.lower()} bytes {span.start} … {span.end} ({format.size(span.length_bytes)})")
        for tier, span in found.suspect
    ]
    rows += [("not reachable", f"{format.size(place.bytes)} in {printable(place.url)}: {place.why}") for place in away]
    if writer is not None:
        rows.append(("writer", writer))
    return format.table(rows)


def _file_data(file: IngestedFile) -> dict[str, Any] | None:
    if not file.mode:
        return None
    return {"mode": f"{S_IMODE(file.mode):04o}", "modified_ns": file.modified_ns, "length": file.length}


def _crc(found: SegmentStat) -> str | None:
    return None if found.crc32c is None else f"{found.crc32c:08x}"


def _status(record: SegmentRecord) -> str:
    return SegmentStatus(record.status).name.lower().replace("_", "-")


def _status_text(found: SegmentStat) -> str:
    if found.successor is None:
        return _status(found.record)
    return f"sealed by policy, goes on in {printable(found.successor)}"


def _tier_data(state: TierState) -> dict[str, int]:
    return {"chunks": state.count, "bytes": state.bytes}


def _tier_text(state: TierState) -> str:
    return f"{format.size(state.bytes)} in {format.count(state.count, 'chunk')}"
