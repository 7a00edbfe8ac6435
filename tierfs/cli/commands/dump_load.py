"""Define tierfs dump and tierfs load."""

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
@click.option("--to-bucket", is_flag=True, help="Write the metadata of SEGMENT to the bucket, below dumps/.")
def dump(session: Session, target: str, to_bucket: bool) -> None:
    """Write all metadata to FILE (- for stdout), or with --to-bucket that of one segment to the bucket.

    Writers and mounts may keep running. A dump has no bytes of segments: local ones are in the store's chunks/.
    """
    from tierfs.app import dump

    with session.open_store() as store:
        if to_bucket:
            dumped = dump.dump_segment(store, store.segment_of_path(target))
            kept = f"{output.size(dumped.cold_bytes)} of {printable(dumped.segment)}"
            session.done(asdict(dumped), f"wrote {dumped.object} ({output.size(dumped.bytes)}), which restores {kept}")
            if dumped.only_local_bytes:
                session.note(f"{output.size(dumped.only_local_bytes)} are not cold, so it does not restore them")
            return
        summary = dump.dump_store(store, target)
    if target != _STDOUT:
        session.done(_data(summary), f"wrote {printable(target)}:\n{_text(summary)}")


@command("load")
@click.argument("source", metavar="FILE|SEGMENT")
@click.option(
    "--yes", is_flag=True, help="Restore a segment even if some of its bytes are gone: they become lost extents."
)
def load(session: Session, source: str, yes: bool) -> None:
    """Restore the metadata of --store from the dump FILE, or restore SEGMENT from its dump in the bucket.

    FILE: the store's directory must have no metadata; it may have chunk files. SEGMENT, a name or
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
            session.warn(f"bytes in {output.count(report.newer_files, 'chunk file')} are newer than the dump")
        session.note("if the bucket is ahead of this dump, the next publish fails: then run tierfs recover")
        return
    with session.open_store() as store:
        loaded = perform_shown(session, store, LOAD, source, flags({ACCEPT_LOSS: yes}), "load")
    lost = f", {output.size(loaded.lost_bytes)} are lost" if loaded.lost_bytes else ""
    size = f"{output.size(loaded.cold_bytes)} in {output.count(loaded.objects, 'object')}"
    session.done(asdict(loaded), f"restored {printable(loaded.segment)}: {size}{lost}")


def _data(summary: DumpSummary) -> dict[str, Any]:
    data = asdict(summary)
    data["written"] = output.timestamp(data.pop("written_ms"))
    data["crc32c"] = f"{summary.crc32c:08x}"
    return data


def _text(summary: DumpSummary) -> str:
    rows = [(name, f"{count:,} rows") for name, count in summary.rows.items()]
    rows.append(("total", f"{sum(summary.rows.values()):,} rows, {output.size(summary.row_bytes)}"))
    rows.append(("store", f"{summary.store_id}, as of {output.clock_time(summary.written_ms)}"))
    rows.append(("crc32c", f"{summary.crc32c:08x}"))
    return output.table((f"  {label}", text) for label, text in rows)
