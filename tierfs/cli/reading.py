"""tierfs ls, info, cat."""

from __future__ import annotations

import sys
from typing import Any

import click

from tierfs import names
from tierfs.checksum import Buffer
from tierfs.cli.context import Context, pass_context
from tierfs.cli.format import SIZE, count, size, time
from tierfs.cli.output import emit
from tierfs.metadata.records import SegmentRecord
from tierfs.segments import ownership, stat
from tierfs.segments.stat import Listed, SegmentStat
from tierfs.types import EntryKind, ReadPriority

PRIORITY = click.Choice([priority.value for priority in ReadPriority])


@click.command("ls")
@click.argument("directory", default="")
@click.option("-l", "long", is_flag=True, help="State, length, bytes per tier, time of the last append.")
@pass_context
def ls_command(context: Context, directory: str, long: bool) -> None:
    """List a directory, the root by default."""
    with context.open() as store:
        path = store.segment_of_path(directory)
        with store.metadata.read() as txn:
            for listed in stat.listing(txn, path):
                if context.as_json:
                    emit(_listed_fields(listed))
                else:
                    print(_long_line(listed) if long else _name(listed))


@click.command("info")
@click.argument("segment")
@pass_context
def info_command(context: Context, segment: str) -> None:
    """Everything about one segment."""
    with context.open() as store, store.metadata.read() as txn:
        found = stat.stat(txn, store.segment_of_path(segment))
    fields = _info_fields(found)
    if context.as_json:
        emit(fields)
        return
    record = found.record
    state = "sealed" if record.sealed else "open"
    print(f"{names.printable(found.name)}: bytes {record.start_offset} … {record.length}", end="")
    print(f" ({size(record.range.length_bytes)}), {state}, reads {found.read_priority}")
    for tier in ("local", "cold"):
        held = fields["tiers"][tier]
        print(f"  {tier:<9} {count(held['chunks'], 'chunk')}, {size(held['bytes'])}")
    print(f"  crc32c    {fields['crc32c'] or 'unknown'}")
    for key in ("created", "modified", "sealed_at"):
        if fields[key]:
            print(f"  {key:<9} {fields[key]}")
    if not record.sealed and record.writer.pid:
        print(f"  writer    {ownership.describe_writer(record)}, last known")


@click.command("cat")
@click.argument("segment")
@click.option("--from", "start", type=SIZE, help="First offset; default the segment's start.")
@click.option("--to", "end", type=SIZE, help="Offset to end before; default the segment's end.")
@click.option("--read-priority", type=PRIORITY, help="Which tier serves a byte that both hold.")
@pass_context
def cat_command(context: Context, segment: str, start: int | None, end: int | None, read_priority: str | None) -> None:
    """Write a segment's bytes to standard output."""
    out = sys.stdout.buffer

    def write(data: Buffer) -> None:
        out.write(data)

    with context.open() as store:
        priority = ReadPriority(read_priority) if read_priority else None
        store.cat(store.segment_of_path(segment), start, end, priority, write)
    out.flush()


def _name(listed: Listed) -> str:
    return names.printable(listed.name) + ("/" if listed.kind is EntryKind.DIRECTORY else "")


def _long_line(listed: Listed) -> str:
    record = listed.segment
    if record is None:
        modified = time(listed.directory.modified_ms) if listed.directory is not None else None
        return f"d {'':>10} {'':>10} {'':>10}  {modified or '':<24}  {_name(listed)}"
    state = "s" if record.sealed else "o"
    lengths = (record.range.length_bytes, record.local.bytes, record.cold.bytes)
    columns = " ".join(f"{size(length):>10}" for length in lengths)
    return f"{state} {columns}  {time(record.modified_ms) or '':<24}  {_name(listed)}"


def _listed_fields(listed: Listed) -> dict[str, Any]:
    record = listed.segment
    if record is None:
        return {"name": listed.name, "kind": "directory"}
    return {"name": listed.name, "kind": "segment", **_record_fields(record)}


def _record_fields(record: SegmentRecord) -> dict[str, Any]:
    return {
        "start_offset": record.start_offset,
        "length": record.length,
        "sealed": record.sealed,
        "tiers": {
            "local": {"chunks": record.local.count, "bytes": record.local.bytes},
            "cold": {"chunks": record.cold.count, "bytes": record.cold.bytes},
        },
        "modified": time(record.modified_ms),
    }


def _info_fields(found: SegmentStat) -> dict[str, Any]:
    record = found.record
    writer = record.writer
    return {
        "segment": found.name,
        **_record_fields(record),
        "crc32c": None if found.crc32c is None else f"{found.crc32c:08x}",
        "read_priority": found.read_priority.value,
        "status": record.status.name.lower(),
        "id": record.id,
        "inode": record.inode,
        "writer_epoch": record.writer_epoch,
        "writer": None if record.sealed or not writer.pid else {"pid": writer.pid, "host": writer.host},
        "created": time(record.created_ms),
        "sealed_at": time(record.sealed_ms),
        "recovered_at": time(record.recovered_ms),
    }
