"""Define tierfs info: show or draw segments, from the metadata alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from stat import filemode
from typing import TYPE_CHECKING, Any

import click

from tierfs.app import describe
from tierfs.app.segment_map import runs
from tierfs.app.store import Store
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import Compression, EntryKind, SegmentKind, Tier
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.records import SegmentRecord, TierState
from tierfs.engine.metadata.stored_shares import StoredShares
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import stat
from tierfs.engine.segments.endangered import UnreachablePlace, unreachable_of
from tierfs.engine.segments.stat import SegmentStat
from tierfs.faces.cli import output
from tierfs.faces.cli.drawing.map import Row, draw, offset
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import each, paths_argument
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.engine.segments.archived import InClass
    from tierfs.reading.times import TimePlace
    from tierfs.upkeep.holder.why import Reason

_NS_PER_MS = 1_000_000
_INDENT = " " * len("local copy  ")

# Parts of a segment whose place is explained; --json has all.
_REASONS_SHOWN = 5

# Width without a terminal: fits into a mail and beside a pager's line numbers.
_PIPE_COLUMNS = 72


@command("info")
@paths_argument(metavar="SEGMENT...")
@click.option("--map", "draws", is_flag=True, help="Draw which bytes are in which tier.")
@click.option("--at", metavar="TIME", help="Find the first data written then or later; 2h: two hours ago.")
def info(session: Session, paths: tuple[str, ...], draws: bool, at: str | None) -> None:
    """Show segments: the range, the location of the bytes with the reason, the checksum and the writer.

    For a ledger it also shows the entries and their offload. In the map a blank is a gap: its bytes are not in that
    tier. A run of bytes is drawn even if it is shorter than a cell. --at finds the first message of a time, in ledgers
    of Pulsar's entries, in a managed ledger given by its directory, and in commit logs of RocketMQ; elsewhere the first
    chunk.
    """
    if draws and at is not None:
        raise click.UsageError("--map and --at are mutually exclusive")
    at_ms = None
    if at is not None:
        from tierfs.faces.cli.parameter_types import Time

        at_ms = Time().convert(at, None, click.get_current_context())
    with session.open_store(looks=True) as store:
        if draws:
            each(session, store, paths, lambda name: _map(session, store, name, names_it=len(paths) > 1))
        else:
            each(session, store, paths, lambda name: _info(session, store, name, at_ms))


def _info(session: Session, store: Store, name: str, at: int | None) -> None:
    if at is not None:
        with store.metadata.read() as txn:
            entry = directories.find(txn, name)
        if entry is not None and entry.kind is EntryKind.DIRECTORY:
            _topic_at(session, store, name, at)
            return
    with store.metadata.read() as txn:
        shown = stat.stat(txn, name)
        away = unreachable_of(txn, shown.record, store.path)
        writer = describe.living_writer(store, shown.record)
        kept = describe.reasons(store, txn, shown.record, writer)
        ledger = _ledger(store, txn, name) if shown.record.kind is SegmentKind.LEDGER else None
    data = describe.segment(shown, writer, kept, away)
    rows: list[tuple[str, str]] = []
    if ledger is not None:
        data["ledger"], rows = ledger
    if at is not None:
        data["at"], told = _at(store, shown.record, at)
        rows = [*rows, ("at that time", told)]
    session.result(data, _info_text(shown, writer, away, kept, rows))


def _at(store: Store, record: SegmentRecord, time_ms: int) -> tuple[dict[str, Any], str]:
    """Return the place of a time in a segment, as JSON data and as text."""
    from tierfs.reading.times import place_of

    return _told_place(place_of(store.metadata, store.reader, record, time_ms), time_ms)


def _told_place(place: TimePlace, time_ms: int) -> tuple[dict[str, Any], str]:
    data = {"time": output.timestamp(time_ms), **output.fields(place, "offset end_offset by=times_of entry_id")}
    data["first"] = None if place.time_ms is None else output.timestamp(place.time_ms)
    entry = "" if place.entry_id is None else f", entry {place.entry_id:,}"
    if place.time_ms is None:
        return data, f"byte {place.offset}{entry}: the end; all data is older"
    first = f"{place.times_of.value[:-1]} of {data['first']}"
    return data, f"byte {place.offset}{entry}: the first {first}"


def _topic_at(session: Session, store: Store, name: str, time_ms: int) -> None:
    """Print the position of a time in a managed ledger. Raises InvalidRequest for another directory."""
    from tierfs.engine.segments import positions
    from tierfs.reading.times import entry_at, reading_segments

    with store.metadata.read() as txn:
        members = [member for member in positions.members(txn, positions.directory_of(txn, name)) if member.entries]
    if not members:
        raise InvalidRequest(
            f"{printable(name) or '/'} has no entries of ledgers", remedy="specify a segment, or a managed ledger"
        )
    with reading_segments(store.reader, None) as reading:
        number, place = entry_at(store.metadata, [member.segment for member in members], time_ms, reading)
    ledger = members[number]
    position = positions.Position(ledger.ledger_id, place.entry_id or 0)
    data, told = _told_place(place, time_ms)
    data |= {"position": str(position), "segment": f"{name}/{ledger.segment.name}"}
    session.result({"managed_ledger": name, "at": data}, f"{printable(name)}: {position}, {told}")


def _ledger(store: Store, txn: ReadTransaction, name: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return a ledger's entries and their offload, as JSON data and as rows."""
    from tierfs.engine.metadata import entries
    from tierfs.engine.segments import ledgers, pulsar_info

    data = describe.ledger(store, txn, name)
    record, ledger = ledgers.find(txn, name, held=store.is_held)
    placed, info = entries.find(txn, record.id), pulsar_info.ledger_info(txn, record)
    told = str(ledger.offload)
    if placed.offload.uuid is not None:
        since = f" since {data['offloaded']}" if placed.offload.complete else ""
        deleted = ", local bytes deleted" if data["local_deleted"] else ""
        told = f"{ledger.offload}{since}{deleted}, attempt {placed.offload.uuid}"
    last = "none" if ledger.last_entry_id < 0 else f"{ledger.last_entry_id:,}"
    rows = [
        ("ledger", "no id in its name" if ledger.ledger_id is None else f"{ledger.ledger_id}, {ledger.state}"),
        ("entries", f"{ledger.entries:,}, the last is {last}"),
        ("offload", told),
    ]
    driver = None if info.offload is None else info.offload.driver
    if info.offload is not None and driver is not None and driver.properties:  # else no broker could read it here
        properties = "".join(f", {pair.key} {printable(pair.value)}" for pair in driver.properties if pair.value)
        rows.append(("pulsar id", f"uidMsb {info.offload.uuid_upper}, uidLsb {info.offload.uuid_lower}"))
        rows.append(("driver", f"{printable(driver.name)}{properties}"))
        rows += [("", why) for why in filter(None, [pulsar_info.why_not_read(txn, placed)])]
    return data, rows


def _reason_rows(kept: Sequence[Reason]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for reason in kept[:_REASONS_SHOWN]:
        until = f", {output.clock_time(reason.until_ms)}" if reason.until_ms else ""
        told = f"{output.run(reason.range)}: {printable(reason.why)}{until}"
        rows.append(("local copy" if reason.cold else "not cold", told))
    if len(kept) > _REASONS_SHOWN:
        rows.append(("", f"and {output.count(len(kept) - _REASONS_SHOWN, 'more part')}"))
    return rows


def _info_text(
    stat: SegmentStat,
    writer: str | None,
    away: Sequence[UnreachablePlace],
    kept: Sequence[Reason],
    ledger: Sequence[tuple[str, str]],
) -> str:
    record, file = stat.record, stat.record.file
    continued = None if stat.successor is None else f"sealed by policy, continues in {printable(stat.successor)}"
    readable = f"{record.start_offset} … {record.length} ({output.size(record.range.length_bytes)})"
    rows = [
        ("segment", printable(stat.name)),
        ("bytes", readable),
        ("status", continued or describe.status_of(record)),
        ("local", _tier_text(record.local)),
        ("cold", _cold_text(stat)),
        *(("archive", _archive_text(each)) for each in stat.archived),
        ("crc32c", output.checksum(stat.crc32c) or "unknown"),
        ("reads", f"{stat.read_priority.value} ({stat.read_priority.origin})"),
        ("compression", _compression_text(stat)),
        ("created", output.clock_time(record.created_ms)),
        ("modified", output.clock_time(record.modified_ms)),
        ("sealed", output.clock_time(record.sealed_ms)),
        ("id, inode", f"{record.id}, {record.inode}"),
    ]
    rows += _reason_rows(kept)
    if file.mode:
        mode, modified = filemode(file.mode), output.clock_time(file.modified_ns // _NS_PER_MS)
        rows.append(("copy of a file", f"{mode}, modified {modified}, {output.size(file.length)}"))
    if record.recovered_ms:
        rows.append(("recovered", output.clock_time(record.recovered_ms)))
    rows += [("lost", output.run(gap)) for gap in stat.lost]
    rows += [("suspect", f"{output.plain(tier)} {output.run(suspect)}") for tier, suspect in stat.suspect]
    rows += [("not reachable", f"{output.size(place.bytes)} in {printable(place.url)}: {place.why}") for place in away]
    if writer is not None:
        rows.append(("writer", writer))
    rows += ledger
    return output.table(rows)


def _tier_text(state: TierState) -> str:
    return f"{output.size(state.bytes)} in {output.count(state.count, 'chunk')}"


def _cold_text(stat: SegmentStat) -> str:
    size, held = stat.cold, _tier_text(stat.record.cold)
    return held if size is None or size.stored_bytes == size.plain_bytes else f"{held}, {size}"


def _archive_text(held: InClass) -> str:
    text = f"{output.size(held.bytes)} of it in {output.count(held.objects, 'object')} of {held.storage_class}"
    return f"{text}; reads fail until it is restored: tierfs thaw" if held.must_be_restored else text


def _compression_text(stat: SegmentStat) -> str:
    mode = stat.compression.value
    level = "" if mode is Compression.OFF else f", level {stat.compression_level}"
    return f"{mode.value}{level} ({stat.compression.origin})"


def _map(session: Session, store: Store, name: str, *, names_it: bool) -> None:
    data: dict[str, Any] = {}
    lines = [f"{printable(name)}:"] if names_it else []
    with store.metadata.read() as txn:
        record = directories.segment_by_name(txn, name)
        if session.json:
            data = describe.chunk_map(store, txn, name, record)
        else:
            kept = describe.reasons(store, txn, record, describe.living_writer(store, record))
            lines += _map_lines(txn, record)
            lines += [output.wrapped(line, _INDENT) for line in output.lines(_reason_rows(kept))]
    session.result(data, "\n".join(lines))


def _map_lines(txn: ReadTransaction, record: SegmentRecord) -> list[str]:
    columns = shutil.get_terminal_size((_PIPE_COLUMNS, 0)).columns if sys.stdout.isatty() else _PIPE_COLUMNS
    sealed = "sealed" if record.sealed else "unsealed"
    priority = policies.in_force(txn, record).read_priority().value
    header = f"bytes {offset(record.start_offset)} … {offset(record.length)}, {sealed}, reads {priority}"
    cold = StoredShares(txn).of(record)
    if cold.stored_bytes != cold.plain_bytes:
        header += f", cold {cold}"
    return [header, *draw(record.range, [_row(txn, record, tier) for tier in Tier], columns)]


def _row(txn: ReadTransaction, record: SegmentRecord, tier: Tier) -> Row:
    # The cold tier is counted in objects, as a bucket lists them; a local chunk is one file.
    noun = "object" if tier is Tier.COLD else "chunk"
    return Row(tier.name.lower(), noun, record.tier_state(tier).count, runs(txn, record, tier))
