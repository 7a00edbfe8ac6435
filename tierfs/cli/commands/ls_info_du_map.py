"""Define tierfs ls, info, du and map, which show names, segments and sizes by tier from the metadata alone."""

from __future__ import annotations

import json
import shutil
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from stat import S_IMODE, filemode
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tierfs.app.store import Store
from tierfs.cli import output
from tierfs.cli.drawing.map import BarRun, Mark, Row, draw, offset
from tierfs.cli.group import command, each, human_option, paths_argument
from tierfs.cli.progress import progress_line
from tierfs.cli.session import QUIET, Session
from tierfs.metadata import chains, directories, policies
from tierfs.metadata.records import ChunkRecord, IngestedFile, SegmentRecord, TierState
from tierfs.metadata.transaction import ReadTransaction
from tierfs.names import join, printable, split
from tierfs.parallel import Meter
from tierfs.segments import stat
from tierfs.segments.ownership import WriterLocks
from tierfs.segments.stat import Listed, SegmentStat, UnreachablePlace, Usage, unreachable_of, usage
from tierfs.types import ChunkState, EntryKind, SegmentStatus, Tier

if TYPE_CHECKING:
    from tierfs.holder.why import Reason

_NS_PER_MS = 1_000_000
_COLUMNS = (">12", ">10", ">10", "<20", "<")
"""Columns of long lines; a letter precedes the first size."""

_HEADER = ("bytes", "local", "cold", "modified (UTC)", "name")

L = TypeVar("L")


@command("ls")
@paths_argument(optional=True, metavar="[PATH]...")
@human_option
@click.option("-a", "--all", is_flag=True, hidden=True, expose_value=False)  # no name begins with a dot of its own
@click.option("-R", "--recursive", is_flag=True, help="List the directories below too.")
@click.option(
    "-l",
    "long",
    is_flag=True,
    help="Long format: sealed (S) or open (o), size, local, cold, modified (UTC); -q omits the header.",
)
@click.option("--removed", is_flag=True, help="List what is in the trash instead, at and below DIR as it was.")
def ls(session: Session, paths: tuple[str, ...], recursive: bool, long: bool, removed: bool) -> None:
    """List the names in directories; those of directories end in a slash. With --json one object per line.

    --removed lists what was removed and can be restored: its id, the end of its time, its bytes and its name.
    """
    if removed:
        with session.open_store(looks=True) as store:
            for path in paths:
                _list_removed(session, store, join(split(store.segment_of_path(path))))
        return
    several = recursive or len(paths) > 1
    printed = False

    def work(name: str) -> None:
        nonlocal printed
        below: list[str] = []
        listing = partial(_listing, session, store, name, below=below, whole=several and session.json)
        if session.json or not long:
            lines = listing(_json_line if session.json else _short_line)
        else:
            rows = listing(_cells)
            header = [_HEADER] if rows and session.verbosity > QUIET else []
            lines = output.lines([*header, *rows], *_COLUMNS)
        # Print after releasing the snapshot: a pager may be slow.
        if several and not session.json and _is_directory(store, name):
            click.echo(("\n" if printed else "") + f"{printable(name) or '/'}:")
        printed = True
        for text in lines:
            click.echo(text)
        for directory in below if recursive else ():
            work(directory)

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)


def _list_removed(session: Session, store: Store, path: str) -> None:
    from tierfs.cli.commands.rm_restore import REMOVED_COLUMNS, REMOVED_HEADER, removed_cells, removed_data
    from tierfs.segments import trash

    with store.metadata.read() as txn:
        shown = [each for each in trash.removed(txn) if not path or f"{each.removal.path}/".startswith(f"{path}/")]
    if session.json:
        lines = [json.dumps(removed_data(each)) for each in shown]
    else:
        header = [REMOVED_HEADER] if shown and session.verbosity > QUIET else []
        lines = output.lines([*header, *map(removed_cells, shown)], *REMOVED_COLUMNS)
    for line in lines:
        click.echo(line)


def _is_directory(store: Store, path: str) -> bool:
    with store.metadata.read() as txn:
        entry = directories.find(txn, path)
    return entry is not None and entry.kind is EntryKind.DIRECTORY


def _listing(
    session: Session, store: Store, path: str, line: Callable[[str, Listed], L], *, below: list[str], whole: bool
) -> list[L]:
    """Return a line for each name in a directory, its whole name if wanted; add the directories in it to `below`."""
    with progress_line(session) as show, store.metadata.read() as txn:
        entry = directories.find(txn, path)
        is_segment = entry is not None and entry.kind is EntryKind.SEGMENT
        parent = join(split(path))
        lines = []
        for item in Meter(show, noun="name").each(stat.listing(txn, path), lambda item: item.name):
            name = f"{parent}/{item.name}" if parent else item.name
            if item.kind is EntryKind.DIRECTORY:
                below.append(name)
            lines.append(line(parent if is_segment else name if whole else item.name, item))
        return lines


def _short_line(name: str, item: Listed) -> str:
    return printable(name) + ("/" if item.kind is EntryKind.DIRECTORY else "")


def _cells(name: str, item: Listed) -> Sequence[str]:
    segment = item.segment
    if segment is None:
        modified = output.clock_time(item.directory.modified_ms) if item.directory is not None else "-"
        flag, sizes = "d", ["-", "-", "-"]
    else:
        modified = output.clock_time(stat.modified_ns(segment) // _NS_PER_MS)
        flag = "S" if segment.sealed else "o"
        sizes = [
            output.size(number) for number in (segment.range.length_bytes, segment.local.bytes, segment.cold.bytes)
        ]
    suffix = f"  (sealed by policy, continues in {printable(item.successor)})" if item.successor is not None else ""
    return (f"{flag} {sizes[0]:>10}", *sizes[1:], modified, _short_line(name, item) + suffix)


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
            "modified": output.timestamp(stat.modified_ns(item.segment) // _NS_PER_MS),
        }
    elif item.directory is not None:
        data["modified"] = output.timestamp(item.directory.modified_ms)
    return json.dumps(data)


@command("info")
@paths_argument("segments", metavar="SEGMENT...")
def info(session: Session, segments: tuple[str, ...]) -> None:
    """Show segments: the range, the location of the bytes and what keeps them there, the checksum and the writer."""

    def work(name: str) -> None:
        with store.metadata.read() as txn:
            shown = stat.stat(txn, name)
            away = unreachable_of(txn, shown.record, store.path)
            writer = _living_writer(store, shown.record)
            kept = _reasons(store, txn, shown.record, writer)
        data = {**_info_data(shown, writer), "unreachable": [asdict(place) for place in away]}
        data["local_because"] = [_reason_data(reason) for reason in kept]
        session.result(data, _info_text(shown, writer, away, kept))

    with session.open_store(looks=True) as store:
        each(session, store, segments, work)


def _reasons(store: Store, txn: ReadTransaction, record: SegmentRecord, writer: str | None) -> list[Reason]:
    """Return what keeps a segment's bytes on the local disk; what is cold only needs none of this."""
    if not record.local.count:
        return []
    from tierfs.holder import lock
    from tierfs.holder.why import reasons

    held = lock.current(store.paths.holder) is not None
    return reasons(txn, record, now_ms=store.clock.now_ms(), held=held, writer=writer)


def _reason_data(reason: Reason) -> dict[str, Any]:
    span, until = reason.range, output.timestamp(reason.until_ms)
    kind = reason.kind.value
    return {"start": span.start, "end": span.end, "cold": reason.cold, "kind": kind, "why": reason.why, "until": until}


def _reason_row(reason: Reason) -> tuple[str, str]:
    span = reason.range
    until = f", {output.clock_time(reason.until_ms)}" if reason.until_ms else ""
    told = f"bytes {span.start} … {span.end} ({output.size(span.length_bytes)}): {printable(reason.why)}{until}"
    return "local copy" if reason.cold else "not cold", told


def _reason_rows(kept: Sequence[Reason]) -> list[tuple[str, str]]:
    rows = [_reason_row(reason) for reason in kept[:_REASONS_SHOWN]]
    if len(kept) > _REASONS_SHOWN:
        rows.append(("", f"and {output.count(len(kept) - _REASONS_SHOWN, 'more part')}"))
    return rows


_INDENT = " " * len("local copy  ")

_REASONS_SHOWN = 5
"""Parts of a segment whose place is explained; --json has all."""


def _living_writer(store: Store, record: SegmentRecord) -> str | None:
    """Return the process that is appending now, by its lock."""
    if record.sealed:
        return None
    locks = WriterLocks(store.paths.writers)
    try:
        alive = locks.is_alive_elsewhere(record.id, record.writer_epoch)
    finally:
        locks.close()
    return str(record.writer) if alive else None


def _info_data(stat: SegmentStat, writer: str | None) -> dict[str, Any]:
    record = stat.record
    return {
        "segment": stat.name,
        "id": record.id,
        "inode": record.inode,
        "start_offset": record.start_offset,
        "length": record.length,
        "sealed": record.sealed,
        "status": _status(record),
        "successor": stat.successor,
        "tiers": {"local": _tier_data(record.local), "cold": _tier_data(record.cold)},
        "crc32c": _crc(stat),
        "read_priority": stat.read_priority.value.value,
        "read_priority_origin": str(stat.read_priority.origin),
        "created": output.timestamp(record.created_ms),
        "modified": output.timestamp(record.modified_ms),
        "sealed_at": output.timestamp(record.sealed_ms),
        "recovered_at": output.timestamp(record.recovered_ms),
        "lost": [[gap.start, gap.end] for gap in stat.lost],
        "suspect": [{"tier": tier.name.lower(), "start": span.start, "end": span.end} for tier, span in stat.suspect],
        "writer": writer,
        "file": _file_data(record.file),
    }


def _info_text(
    stat: SegmentStat, writer: str | None, away: Sequence[UnreachablePlace] = (), kept: Sequence[Reason] = ()
) -> str:
    record = stat.record
    readable = f"{record.start_offset} … {record.length} ({output.size(record.range.length_bytes)})"
    rows = [
        ("segment", printable(stat.name)),
        ("bytes", readable),
        ("status", _status_text(stat)),
        ("local", _tier_text(record.local)),
        ("cold", _tier_text(record.cold)),
        ("crc32c", _crc(stat) or "unknown"),
        ("reads", f"{stat.read_priority.value} ({stat.read_priority.origin})"),
        ("created", output.clock_time(record.created_ms)),
        ("modified", output.clock_time(record.modified_ms)),
        ("sealed", output.clock_time(record.sealed_ms)),
        ("id, inode", f"{record.id}, {record.inode}"),
    ]
    rows += _reason_rows(kept)
    if record.file.mode:
        file = record.file
        mode, modified = filemode(file.mode), output.clock_time(file.modified_ns // _NS_PER_MS)
        rows.append(("copy of a file", f"{mode}, modified {modified}, {output.size(file.length)}"))
    if record.recovered_ms:
        rows.append(("recovered", output.clock_time(record.recovered_ms)))
    rows += [("lost", f"bytes {gap.start} … {gap.end} ({output.size(gap.length_bytes)})") for gap in stat.lost]
    rows += [
        ("suspect", f"{tier.name.lower()} bytes {span.start} … {span.end} ({output.size(span.length_bytes)})")
        for tier, span in stat.suspect
    ]
    rows += [("not reachable", f"{output.size(place.bytes)} in {printable(place.url)}: {place.why}") for place in away]
    if writer is not None:
        rows.append(("writer", writer))
    return output.table(rows)


def _file_data(file: IngestedFile) -> dict[str, Any] | None:
    if not file.mode:
        return None
    return {"mode": f"{S_IMODE(file.mode):04o}", "modified_ns": file.modified_ns, "length": file.length}


def _crc(stat: SegmentStat) -> str | None:
    return None if stat.crc32c is None else f"{stat.crc32c:08x}"


def _status(record: SegmentRecord) -> str:
    return SegmentStatus(record.status).name.lower().replace("_", "-")


def _status_text(stat: SegmentStat) -> str:
    if stat.successor is None:
        return _status(stat.record)
    return f"sealed by policy, continues in {printable(stat.successor)}"


def _tier_data(state: TierState) -> dict[str, int]:
    return {"chunks": state.count, "bytes": state.bytes}


def _tier_text(state: TierState) -> str:
    return f"{output.size(state.bytes)} in {output.count(state.count, 'chunk')}"


_USAGE_COLUMNS = (">10", ">10", ">10", "<")
_USAGE_HEADER = ("bytes", "local", "cold", "name")


@command("du")
@paths_argument(optional=True, metavar="[PATH]...")
@human_option
@click.option("-s", "--summarize", is_flag=True, help="Show only the total.")
def du(session: Session, paths: tuple[str, ...], summarize: bool) -> None:
    """Sum up the bytes below each PATH: readable bytes, bytes in the local tier, bytes in the cold tier.

    Prints one line for each directory, the total of PATH last; without PATH, for the whole store. With --json one
    object per line.
    """
    header = [_USAGE_HEADER]

    def work(name: str) -> None:
        with progress_line(session) as show, store.metadata.read() as txn:
            rows = deque(usage(txn, name, show), maxlen=1 if summarize else None)
        # Print after releasing the snapshot: a pager may be slow.
        if not session.json:
            click.echo(output.table([*header, *map(_usage_cells, rows)], *_USAGE_COLUMNS))
            header.clear()
            return
        for row in rows:
            click.echo(json.dumps({**asdict(row), "kind": row.kind.name.lower()}))

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)


def _usage_cells(row: Usage) -> Sequence[str]:
    sizes = [output.size(number) for number in (row.bytes, row.local_bytes, row.cold_bytes)]
    return (*sizes, printable(row.name) or "/")


_PIPE_COLUMNS = 72
"""Width without a terminal: fits into a mail and beside a pager's line numbers."""

_MARKS_BY_STATE = {ChunkState.GOOD: Mark.GOOD, ChunkState.SUSPECT: Mark.SUSPECT, ChunkState.LOST: Mark.LOST}


@command("map")
@paths_argument("segments", metavar="SEGMENT...")
def map_(session: Session, segments: tuple[str, ...]) -> None:
    """Show which bytes of segments are in which tier, and what keeps them on the local disk.

    A blank is a gap: its bytes are not in that tier. A run of bytes is drawn even if it is shorter than a cell.
    """

    def work(name: str) -> None:
        data: dict[str, Any] = {}
        lines = [f"{printable(name)}:"] if len(segments) > 1 else []
        with store.metadata.read() as txn:
            record = directories.segment_by_name(txn, name)
            kept = _reasons(store, txn, record, _living_writer(store, record))
            if session.json:
                data = _data(txn, name, record)
                data["local_because"] = [_reason_data(reason) for reason in kept]
            else:
                told = [output.wrapped(line, _INDENT) for line in output.lines(_reason_rows(kept))]
                lines += [*_lines(txn, record, _columns()), *told]
        session.result(data, "\n".join(lines))

    with session.open_store(looks=True) as store:
        each(session, store, segments, work)


def _columns() -> int:
    return shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns if sys.stdout.isatty() else _PIPE_COLUMNS


def _lines(txn: ReadTransaction, record: SegmentRecord, columns: int) -> list[str]:
    sealed = "sealed" if record.sealed else "unsealed"
    priority = policies.in_force(txn, record).read_priority().value
    header = f"bytes {offset(record.start_offset)} … {offset(record.length)}, {sealed}, reads {priority}"
    return [header, *draw(record.range, [_row(txn, record, tier) for tier in Tier], columns)]


def _row(txn: ReadTransaction, record: SegmentRecord, tier: Tier) -> Row:
    # The cold tier is counted in objects, as a bucket lists them; a local chunk is one file.
    noun = "object" if tier is Tier.COLD else "chunk"
    runs = (
        BarRun(chunk.range, _mark(record, tier, chunk), chunk.object_id if tier is Tier.COLD else chunk.start_offset)
        for chunk in chains.chunks(txn, record.id, tier, record.start_offset)
    )
    return Row(tier.name.lower(), noun, record.tier_state(tier).count, runs)


def _mark(record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> Mark:
    if chunk.state is ChunkState.GOOD and _is_active(record, tier, chunk):
        return Mark.ACTIVE
    return _MARKS_BY_STATE[chunk.state]


def _is_active(record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> bool:
    return tier is Tier.LOCAL and record.active and chunk.start_offset == record.local.last_chunk


def _data(txn: ReadTransaction, name: str, record: SegmentRecord) -> dict[str, Any]:
    return {
        "segment": name,
        "start_offset": record.start_offset,
        "length": record.length,
        "sealed": record.sealed,
        "chunks": [
            _chunk_data(txn, record, tier, chunk)
            for tier in Tier
            for chunk in chains.chunks(txn, record.id, tier, record.start_offset)
        ],
    }


def _chunk_data(txn: ReadTransaction, record: SegmentRecord, tier: Tier, chunk: ChunkRecord) -> dict[str, Any]:
    return {
        "tier": tier.name.lower(),
        "start": chunk.start_offset,
        "end": chunk.end_offset,
        "object": chains.object_of(txn, chunk).name if chunk.object_id else None,
        "object_offset": chunk.object_offset,
        "state": chunk.state.name.lower(),
        "active": _is_active(record, tier, chunk),
    }
