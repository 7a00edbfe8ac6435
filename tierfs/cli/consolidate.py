"""tierfs consolidate: few large cold objects instead of many small or mostly dead ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.progress import perform_shown
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.background.consolidation import ConsolidateReport


@command("consolidate")
@click.argument("path", default="")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def consolidate(session: Session, path: str, dry_run: bool) -> None:
    """Join small neighbouring cold objects of each segment below PATH; without PATH, of all segments.

    Objects whose bytes are mostly cut off are copied without them. The server copies by itself what it can;
    each new object is read back once and checked. Old objects go after the grace period, so that open files
    read on. How large objects get is the policy object_bytes.
    """
    from tierfs.background.verbs import CONSOLIDATE, DRY_RUN, flags

    with session.open_store() as store:
        name = store.segment_of_path(path)
        done = perform_shown(session, store, CONSOLIDATE, name, flags({DRY_RUN: dry_run}), "consolidating")
    session.done({"path": name, "dry_run": dry_run, **asdict(done)}, _consolidated(name, done, dry_run=dry_run))


def _consolidated(name: str, done: ConsolidateReport, *, dry_run: bool) -> str:
    if not done.objects_after and not done.merged_chunks:
        return f"nothing to consolidate below {printable(name) or '/'}"
    lines = []
    if done.objects_after:
        verb = "would make" if dry_run else "made"
        what = f"{format.count(done.objects_after, 'object')} of {format.count(done.objects_before, 'chunk')}"
        lines.append(f"{verb} {what} in {format.count(done.segments, 'segment')}, {format.size(done.bytes)}")
    if done.objects_after and not dry_run:
        server, client = format.size(done.bytes - done.client_bytes), format.size(done.client_bytes)
        lines.append(f"  {server} copied by the server, {client} uploaded again")
    if done.merged_chunks:
        verb = "would join" if dry_run else "joined"
        lines.append(f"{verb} {format.count(done.merged_chunks, 'chunk')} to neighbours in the same object")
    return "\n".join(lines)
