"""tierfs dump and tierfs load."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import output
from tierfs.cli.group import command
from tierfs.cli.output import perform_shown
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.backup.store import DumpSummary

_STDOUT = "-"


@command("dump")
@click.argument("target", metavar="FILE|SEGMENT")
@click.option("--to-bucket", is_flag=True, help="Write what is known of SEGMENT to the bucket, below dumps/.")
def dump(session: Session, target: str, to_bucket: bool) -> None:
    """Write all metadata to FILE (- for stdout), or with --to-bucket those of one segment to the bucket.

    Nobody has to stop meanwhile. A dump has no bytes of segments: local ones are in the store's chunks/.
    """
    from tierfs.app import dump

    with session.open_store() as store:
        if to_bucket:
            found = dump.dump_segment(store, store.segment_of_path(target))
            kept = f"{output.size(found.cold_bytes)} of {printable(found.segment)}"
            session.done(asdict(found), f"wrote {found.object} ({output.size(found.bytes)}), which brings back {kept}")
            if found.only_local_bytes:
                session.note(f"{output.size(found.only_local_bytes)} are not cold, so it does not bring them back")
            return
        summary = dump.dump_store(store, target)
    if target != _STDOUT:
        session.done(_data(summary), f"wrote {printable(target)}:\n{_text(summary)}")


@command("load")
@click.argument("source", metavar="FILE|SEGMENT")
@click.option("--yes", is_flag=True, help="Load a segment of which bytes are gone: they become lost extents.")
def load(session: Session, source: str, yes: bool) -> None:
    """Make the metadata of --store from the dump FILE, or bring SEGMENT back from its dump in the bucket.

    FILE: the store's directory must have no metadata; chunk files may be there. SEGMENT, a name or
    dumps/...: it must not exist, and its objects must.
    """
    from tierfs.app import dump
    from tierfs.holder.verbs import ACCEPT_LOSS, LOAD, flags

    path = session.require_store_path()
    if Path(source).is_file():
        report = dump.load_store(path, Path(source))
        files = {"missing_files": report.missing_files, "newer_files": report.newer_files}
        session.done({**_data(report.summary), **files}, f"loaded {printable(source)}:\n{_text(report.summary)}")
        if report.missing_files:
            session.warn(f"missing or cut: {output.count(report.missing_files, 'chunk file')} of the dump")
        if report.newer_files:
            session.warn(f"bytes in {output.count(report.newer_files, 'chunk file')} came after the dump")
        session.note("if the bucket is ahead of this dump, the next publish says so: then run tierfs recover")
        return
    with session.open_store() as store:
        found = perform_shown(session, store, LOAD, source, flags({ACCEPT_LOSS: yes}), "load")
    lost = f", {output.size(found.lost_bytes)} are lost" if found.lost_bytes else ""
    held = f"{output.size(found.cold_bytes)} in {output.count(found.objects, 'object')}"
    session.done(asdict(found), f"{printable(found.segment)} is back: {held}{lost}")


def _data(summary: DumpSummary) -> dict[str, Any]:
    data = asdict(summary)
    data["written"] = output.timestamp(data.pop("written_ms"))
    data["crc32c"] = f"{summary.crc32c:08x}"
    return data


def _text(summary: DumpSummary) -> str:
    rows = [(name, f"{count:,} rows") for name, count in summary.rows.items()]
    rows.append(("in all", f"{sum(summary.rows.values()):,} rows, {output.size(summary.row_bytes)}"))
    rows.append(("store", f"{summary.store_id}, as of {output.clock_time(summary.written_ms)}"))
    rows.append(("crc32c", f"{summary.crc32c:08x}"))
    return output.table((f"  {label}", text) for label, text in rows)
