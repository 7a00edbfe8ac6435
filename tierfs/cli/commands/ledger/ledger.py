"""Define tierfs ledger, and its commands create, close, ls, info and delete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import click

from tierfs.app import verbs
from tierfs.app.store import Store
from tierfs.cli import output
from tierfs.cli.commands.rm_restore import now_option, removal_data, until
from tierfs.cli.group import LazyGroup, command, path_argument, paths_argument
from tierfs.cli.options import ask, yes_option
from tierfs.cli.progress import progress_line
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest
from tierfs.metadata import entries as metadata_ledgers
from tierfs.metadata.ledger_and_batch_records import OffloadProgress
from tierfs.metadata.records import SegmentRecord
from tierfs.names import printable
from tierfs.parallel import Meter
from tierfs.segments import ledgers
from tierfs.segments.delete import Deletion
from tierfs.segments.ledgers import Ledger
from tierfs.segments.positions import OffloadState, is_local_deleted

_COMMANDS = {
    "create": "tierfs.cli.commands.ledger.ledger:create",
    "append": "tierfs.cli.commands.ledger.append:append",
    "close": "tierfs.cli.commands.ledger.ledger:close",
    "ls": "tierfs.cli.commands.ledger.ledger:ls",
    "info": "tierfs.cli.commands.ledger.ledger:info",
    "read": "tierfs.cli.commands.ledger.entries:read",
    "offload": "tierfs.cli.commands.ledger.managed:offload",
    "export": "tierfs.cli.commands.ledger.entries:export",
    "status": "tierfs.cli.commands.ledger.managed:status",
    "trim": "tierfs.cli.commands.ledger.managed:trim",
    "delete": "tierfs.cli.commands.ledger.ledger:delete",
    "verify": "tierfs.cli.commands.ledger.entries:verify",
    "terminate": "tierfs.cli.commands.ledger.managed:terminate",
}

_COLUMNS = ("<6", f"<{max(map(len, OffloadState))}", ">13", ">10", "<")


@click.group("ledger", cls=LazyGroup, lazy=_COMMANDS, store_variable=None)
def ledger() -> None:
    """Work with ledgers: segments made of numbered entries.

    A mount shows a ledger as a file of its entries, back to back. The directory of a ledger is its managed ledger.
    """


@command("create")
@path_argument("managed_ledger")
@click.option("--id", "ledger_id", type=int, metavar="N", help="Id of the ledger  [default: a new one]")
def create(session: Session, managed_ledger: str, ledger_id: int | None) -> None:
    """Create an empty ledger in the directory MANAGED_LEDGER.

    Prints the name of its segment.
    """
    with session.open_store() as store:
        with store.metadata.write() as txn:
            name = ledgers.make(txn, managed_ledger, ledger_id)
        with store.metadata.read() as txn:
            ledger = ledgers.find(txn, name)[1]
    session.result(asdict(ledger), printable(name))


@command("close")
@path_argument("segment")
def close(session: Session, segment: str) -> None:
    """Close a ledger: it accepts no more entries. Repeating it succeeds."""
    with session.open_store() as store:
        name = store.segment_of_path(segment)
        with store.metadata.read() as txn:
            ledgers.find(txn, name)
        store.engine.seal(name)
        with store.metadata.read() as txn:
            ledger = ledgers.find(txn, name, held=store.is_held)[1]
    session.done(asdict(ledger), f"closed {printable(ledger.segment)}: {output.count(ledger.entries, 'entry')}")


@command("ls")
@path_argument("path", optional=True, metavar="[DIR]")
def ls(session: Session, path: str) -> None:
    """List the ledgers at or below DIR.

    Prints state, offload, entries, bytes and name; with --json one object per line.
    """
    with session.open_store() as store:
        name = store.segment_of_path(path)
        with progress_line(session) as show, store.metadata.read() as txn:
            listed = ledgers.below(txn, name, held=store.is_held)
            rows = list(Meter(show, noun="ledger").each(listed, lambda ledger: ledger.segment))
    # Print after releasing the snapshot: a pager may be slow.
    lines = [json.dumps(asdict(row)) for row in rows] if session.json else output.lines(map(_cells, rows), *_COLUMNS)
    for line in lines:
        click.echo(line)


def _cells(ledger: Ledger) -> Sequence[str]:
    return ledger.state, ledger.offload, f"{ledger.entries:,}", output.size(ledger.length), printable(ledger.segment)


def _offload_text(ledger: Ledger, offload: OffloadProgress, *, local_deleted: bool) -> str:
    if offload.uuid is None:
        return ledger.offload
    since = f" since {output.timestamp(offload.timestamp_ms)}" if offload.complete else ""
    deleted = ", local bytes deleted" if local_deleted else ""
    return f"{ledger.offload}{since}{deleted}, attempt {offload.uuid}"


@command("delete")
@paths_argument("segments", metavar="SEGMENT...")
@now_option
@click.option("--dry-run", is_flag=True, help="Show the ledgers to delete, and change nothing.")
@yes_option
def delete(session: Session, segments: tuple[str, ...], now: bool, dry_run: bool, yes: bool) -> None:
    """Delete closed ledgers in both tiers.

    They stay in the trash for the time of their policy trash_age, unless --now. The remains of attempts to offload them
    are deleted too. If one is open, or is not a ledger, none is deleted.
    """
    with session.open_store() as store:
        names = list(dict.fromkeys(store.segment_of_path(segment) for segment in segments))
        plan = Deletion()
        for name in names:
            plan = plan.plus(_closed(store, name))
        if dry_run:
            session.result(_removal(names, plan, removed=False), f"would delete {_size_of(plan)}")
            return
        if not yes:
            ask("ledger delete", f"delete {_size_of(plan)}?")
        with progress_line(session) as show:
            meter = Meter(show, total_items=len(names), noun="ledger")
            for name in names:
                due_ms = verbs.delete(store, name, recursive=False, now=now).trash_due_ms
                plan = replace(plan, trash_due_ms=due_ms)
                meter(0, name, 1)
            unpublished = verbs.settle(store, show)
    session.note_unpublished(unpublished)
    session.done(_removal(names, plan, removed=True), f"deleted {_size_of(plan)}{until(plan)}")


def _closed(store: Store, name: str) -> SegmentRecord:
    with store.metadata.read() as txn:
        record, ledger = ledgers.find(txn, name)
    if ledger.state != "closed":
        raise InvalidRequest(
            f"ledger {printable(name)} is open", remedy=f"close it first: tierfs ledger close {printable(name)}"
        )
    return record


def _size_of(plan: Deletion) -> str:
    local, cold = output.size(plan.local_bytes), output.size(plan.cold_bytes)
    return f"{output.count(plan.segments, 'ledger')}: {local} local, {cold} cold"


def _removal(names: list[str], plan: Deletion, *, removed: bool) -> dict[str, object]:
    return {"segments": names, "removed": removed, **removal_data(plan)}


@command("info")
@path_argument("segment")
def info(session: Session, segment: str) -> None:
    """Show a ledger: its id, its entries and its state."""
    with session.open_store() as store:
        name = store.segment_of_path(segment)
        with store.metadata.read() as txn:
            record, ledger = ledgers.find(txn, name, held=store.is_held)
            ledger_record = metadata_ledgers.find(txn, record.id)
    offload, local_deleted = ledger_record.offload, is_local_deleted(record, ledger_record)
    uuid = None if offload.uuid is None else str(offload.uuid)
    data = {
        **asdict(ledger),
        "offload_uuid": uuid,
        "offloaded": output.timestamp(offload.timestamp_ms if offload.complete else 0),
        "local_deleted": local_deleted,
        "created": output.timestamp(record.created_ms),
        "modified": output.timestamp(record.modified_ms),
    }
    last = "none" if ledger.last_entry_id < 0 else f"{ledger.last_entry_id:,}"
    rows = [
        ("ledger", printable(ledger.segment)),
        ("id", "none in its name" if ledger.ledger_id is None else str(ledger.ledger_id)),
        ("managed", printable(ledger.managed_ledger) or "/"),
        ("state", ledger.state),
        ("offload", _offload_text(ledger, offload, local_deleted=local_deleted)),
        ("entries", f"{ledger.entries:,}, the last is {last}"),
        ("bytes", f"{ledger.length:,} ({output.size(ledger.length)})"),
        ("created", output.timestamp(record.created_ms) or "-"),
        ("modified", output.timestamp(record.modified_ms) or "-"),
    ]
    session.result(data, output.table(rows))
