"""Define tierfs trim: drop the head of a segment or of a managed ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tierfs.app.store import Store
from tierfs.base.words.names import join, printable, split
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import directories
from tierfs.engine.segments.positions import Position
from tierfs.faces.cli import output
from tierfs.faces.cli.commands.trash import now_option, removal_data, until
from tierfs.faces.cli.confirm import ask
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import POSITION, dry_run_option, yes_option
from tierfs.faces.cli.parameter_types import Size
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.progress import changing
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.engine.segments.delete import Deletion
    from tierfs.engine.segments.truncate import Truncation


@command("trim")
@path_argument("path")
@click.option("--before", required=True, metavar=f"OFFSET|{POSITION}", help="First byte, entry or ledger to keep.")
@now_option
@dry_run_option("Show what would be dropped, and change nothing.")
@yes_option
def trim(session: Session, path: str, before: str, now: bool, dry_run: bool, yes: bool) -> None:
    """Drop the bytes of a segment before OFFSET, or the closed ledgers of a managed ledger before a position.

    OFFSET is a number like 4096 or 64MiB; the other bytes keep their offsets. Chunks with only dropped bytes are
    deleted: local files at once, cold objects after a grace period. Dropped bytes of a segment do not go to the trash.
    In mounts the name becomes a new file that starts at OFFSET, as after log rotation.

    Of the managed ledger PATH, closed ledgers that end before the position are deleted in both tiers, after the time of
    their policy trash_age in the trash, or at once with --now. Open ledgers are kept. The position after the last entry
    is valid too. Objects that tierfs did not write are kept.
    """
    with session.open_store() as store:
        name = join(split(store.segment_of_path(path)))
        with store.metadata.read() as txn:
            is_directory = directories.must_find(txn, name).kind is EntryKind.DIRECTORY
        if is_directory:
            _trim_ledgers(session, store, name, Position.parse(before), now=now, dry_run=dry_run, yes=yes)
            return
        if now:
            raise click.UsageError("--now is only for ledgers: dropped bytes of a segment never go to the trash")
        offset = Size().convert(before, None, click.get_current_context())
        _trim_segment(session, store, name, offset, dry_run=dry_run, yes=yes)


def _trim_segment(session: Session, store: Store, name: str, before: int, *, dry_run: bool, yes: bool) -> None:
    from tierfs.app import verbs
    from tierfs.engine.segments import truncate

    with store.metadata.read() as txn:
        cut = truncate.plan(txn, name, before)
    if dry_run:
        data = {"segment": name, "truncated": False, **output.fields(cut)}
        session.result(data, _cut_text("would drop", name, cut))
        return
    if cut.bytes:
        if not yes:
            ask("trim", _cut_text("drop", name, cut) + "?")
        with changing(session, store, "dropping chunks") as show:
            cut = verbs.truncate_head(store, name, before, show)
    data = {"segment": name, "truncated": bool(cut.bytes), **output.fields(cut)}
    session.done(data, _cut_text("dropped", name, cut))


def _cut_text(verb: str, name: str, cut: Truncation) -> str:
    if not cut.bytes:
        return f"nothing to do: {printable(name)} already starts at {cut.start_offset}"
    local = f"{output.count(cut.local_chunks, 'chunk')} of {output.size(cut.local_bytes)} local"
    cold = f"{output.count(cut.cold_chunks, 'chunk')} of {output.size(cut.cold_bytes)} cold"
    return f"{verb} {output.size(cut.bytes)} of {printable(name)}, up to {cut.start_offset}: {local}, {cold}"


def _trim_ledgers(
    session: Session, store: Store, name: str, position: Position, *, now: bool, dry_run: bool, yes: bool
) -> None:
    from tierfs.app import verbs
    from tierfs.engine.segments import managed_ledger_trim

    def described(plan: Deletion) -> str:
        return f"{output.count(plan.segments, 'ledger')} of {printable(name)}: {output.tiers(plan)}"

    with store.metadata.read() as txn:
        plan = managed_ledger_trim.plan(txn, name, position)
    if dry_run:
        data = {"managed_ledger": name, "removed": False, **removal_data(plan)}
        session.result(data, f"would delete {described(plan)}")
        return
    if plan.segments and not yes:
        ask("trim", f"delete {described(plan)}?")
    with changing(session, store, "deleting ledgers") as show:
        done = verbs.trim_ledgers(store, name, position, now=now, report=show)
    data = {"managed_ledger": name, "removed": True, **removal_data(done)}
    session.done(data, f"deleted {described(done)}{until(done)}")
