"""Define tierfs backup, and what tierfs restore does with its files and with its objects in the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.progress import perform_shown, progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.tiering.backup.store import DumpSummary


_STDOUT = "-"


@command("backup")
@click.argument("target", metavar="FILE")
@click.option("--to-bucket", is_flag=True, help="Write the metadata of SEGMENT to the bucket, not to a FILE.")
def backup(session: Session, target: str, to_bucket: bool) -> None:
    """Write all metadata to FILE (- for stdout), or with --to-bucket that of one segment to the bucket.

    Writers and mounts can keep running. A backup contains no bytes of segments: local bytes are in the store's
    chunks/. To restore it: tierfs restore.
    """
    from tierfs.app import dump

    with session.open_store(looks=True) as store, progress_line(session) as show:
        if to_bucket:
            dumped = dump.dump_segment(store, store.segment_of_path(target), show)
            kept = f"{output.size(dumped.cold_bytes)} of {printable(dumped.segment)}"
            session.done(dumped, f"wrote {dumped.object} ({output.size(dumped.bytes)}), which restores {kept}")
            if dumped.only_local_bytes:
                session.note(
                    f"{output.size(dumped.only_local_bytes)} are not cold, so the backup does not restore them"
                )
            return
        summary = dump.dump_store(store, target, show)
    if target != _STDOUT:
        session.done(_data(summary), f"wrote {printable(target)}: {_text(summary)}")


def restore_store(session: Session, path: Path, source: str) -> None:
    """Make the metadata of a store from a file of `backup`, in a directory without any, and print what it has."""
    from tierfs.app import dump

    with progress_line(session) as show:
        report = dump.load_store(path, Path(source), report=show)
    files = {"missing_files": report.missing_files, "newer_files": report.newer_files}
    session.done({**_data(report.summary), **files}, f"restored {printable(source)}: {_text(report.summary)}")
    if report.missing_files:
        session.warn(f"missing or too short: {output.count(report.missing_files, 'chunk file')} of the backup")
    if report.newer_files:
        session.warn(f"bytes in {output.count(report.newer_files, 'chunk file')} are newer than the backup")
    session.note("if the bucket has later changes than this backup, the store is read-only: then run tierfs recover")


def restore_segment(session: Session, store: Store, source: str, *, accept_loss: bool) -> None:
    """Restore a segment from its backup in the bucket: of its name the newest, or dumps/..., and print what it has."""
    from tierfs.upkeep.holder.verbs import ACCEPT_LOSS, LOAD, flags

    loaded = perform_shown(session, store, LOAD, source, flags({ACCEPT_LOSS: accept_loss}))
    lost = f", {output.size(loaded.lost_bytes)} are lost" if loaded.lost_bytes else ""
    size = f"{output.size(loaded.cold_bytes)} in {output.count(loaded.objects, 'object')}"
    session.done(loaded, f"restored {printable(loaded.segment)} from its backup: {size}{lost}")
    for warning in loaded.warnings:
        session.warn(warning)


def _data(summary: DumpSummary) -> dict[str, Any]:
    data = output.fields(summary, "store_id rows row_bytes parts crc32c written=written_ms")
    return {**data, "crc32c": output.checksum(summary.crc32c)}


def _text(summary: DumpSummary) -> str:
    segments, directories = (summary.rows.get(name, 0) for name in ("segments", "directories"))
    held = f"{output.count(segments, 'segment')} in {output.count(directories, 'directory')}"
    chunks = output.count(summary.rows.get("chunks", 0), "chunk")
    taken = output.clock_time(summary.written_ms)
    rows = [("  store", f"{summary.store_id}, as of {taken}"), ("  crc32c", f"{summary.crc32c:08x}")]
    return "\n".join([f"{held}, {chunks}", *output.lines(rows)])
