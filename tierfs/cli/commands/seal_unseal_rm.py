"""Define tierfs seal, unseal and rm."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import output
from tierfs.cli.group import command
from tierfs.cli.options import ask, yes_option
from tierfs.cli.session import Session
from tierfs.names import join, printable, split

if TYPE_CHECKING:
    from tierfs.segments.delete import Deletion


@command("seal")
@click.argument("segment")
def seal(session: Session, segment: str) -> None:
    """Seal a segment: it accepts no more bytes. Repeating it succeeds."""
    from tierfs.segments import stat

    with session.open_store() as store:
        name = store.segment_of_path(segment)
        with store.metadata.read() as txn:
            before = stat.stat(txn, name)
        record = store.engine.seal(name)
    already = before.record.sealed
    data = {"segment": before.name, "length": record.length, "already_sealed": already}
    state = "is already sealed" if already else "is sealed"
    session.done(data, f"{printable(before.name)} {state}: {output.size(record.length)}")


@command("rm")
@click.argument("path")
@click.option("-r", "--recursive", is_flag=True, help="Remove a directory and everything below it.")
@click.option("--dry-run", is_flag=True, help="Show the segments to remove, and change nothing.")
@yes_option
def rm(session: Session, path: str, recursive: bool, dry_run: bool, yes: bool) -> None:
    """Remove a segment, or with -r a directory.

    Names and local files are removed at once, cold objects after a grace period. Objects that tierfs did not write
    are kept.
    """
    from tierfs.app import verbs
    from tierfs.segments import delete

    with session.open_store() as store:
        name = store.segment_of_path(path)
        with store.metadata.read() as txn:
            _, plan = delete.plan(txn, name, recursive=recursive)
        if dry_run:
            session.result(_data(name, plan, removed=False), f"would remove {_describe(name, plan)}")
            return
        if not yes:
            ask("rm", f"remove {_describe(name, plan)}?")
        deletion = verbs.delete(store, name, recursive=recursive)
        unpublished = verbs.settle(store)
    session.note_unpublished(unpublished)
    session.done(_data(name, deletion, removed=True), f"removed {_describe(name, deletion)}")


def _describe(name: str, deletion: Deletion) -> str:
    local, cold = output.size(deletion.local_bytes), output.size(deletion.cold_bytes)
    chunks = output.count(deletion.cold_chunks, "chunk")
    segments = output.count(deletion.segments, "segment")
    return f"{printable(name)}: {segments}, {local} local, {cold} cold in {chunks}"


def _data(name: str, deletion: Deletion, *, removed: bool) -> dict[str, object]:
    return {"path": name, "removed": removed, **asdict(deletion)}


@command("unseal")
@click.argument("segment")
def unseal(session: Session, segment: str) -> None:
    """Reopen a sealed segment: it accepts bytes as before. Repeating it succeeds.

    In mounts its name becomes a new file; a file that is open there never grows.
    """
    with session.open_store() as store:
        name = join(split(store.segment_of_path(segment)))
        record, changed = store.engine.unseal(name)
    data = {"segment": name, "length": record.length, "already_open": not changed}
    state = "is open again" if changed else "is already open"
    session.done(data, f"{printable(name)} {state}: {output.size(record.length)}")
