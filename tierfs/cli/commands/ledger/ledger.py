"""Define tierfs ledger, and its commands create, close, ls, info and delete.

Define offload, status, trim and terminate, the commands for a whole managed ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from tierfs.app import verbs
from tierfs.cli import output
from tierfs.cli.commands.rm_restore import now_option, removal_data, until
from tierfs.cli.group import LazyGroup, command, path_argument, paths_argument
from tierfs.cli.options import ask, yes_option
from tierfs.cli.progress import changing, perform_shown, progress_line
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest
from tierfs.metadata import entries as metadata_ledgers
from tierfs.names import printable
from tierfs.parallel import Meter
from tierfs.segments import ledgers, positions
from tierfs.segments import managed_ledger as trimming
from tierfs.segments.delete import Deletion
from tierfs.segments.positions import LedgerStatus, OffloadState, Position, is_local_deleted

_MODULES = {"append": "append", "read": "entries", "export": "entries", "verify": "entries"}
_NAMES = "create append close ls info read offload export status trim delete verify terminate"
_COMMANDS = {name: f"tierfs.cli.commands.ledger.{_MODULES.get(name, 'ledger')}:{name}" for name in _NAMES.split()}


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
    session.result(ledger, printable(name))


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
    session.done(ledger, f"closed {printable(ledger.segment)}: {output.count(ledger.entries, 'entry')}")


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
    cells = [
        (row.state, row.offload, f"{row.entries:,}", output.size(row.length), printable(row.segment)) for row in rows
    ]
    session.rows(rows, output.lines(cells, "<6", f"<{max(map(len, OffloadState))}", ">13", ">10", "<"))


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
            with store.metadata.read() as txn:
                record, ledger = ledgers.find(txn, name)
            if ledger.state != "closed":
                raise InvalidRequest(
                    f"ledger {printable(name)} is open", remedy=f"close it first: tierfs ledger close {printable(name)}"
                )
            plan = plan.plus(record)
        size = f"{output.count(plan.segments, 'ledger')}: {output.tiers(plan)}"
        if dry_run:
            data = {"segments": names, "removed": False, **removal_data(plan)}
            session.result(data, f"would delete {size}")
            return
        if not yes:
            ask("ledger delete", f"delete {size}?")
        with changing(session, store, "deleting ledgers") as show:
            meter = Meter(show, total_items=len(names), noun="ledger")
            for name in names:
                due_ms = verbs.delete(store, name, recursive=False, now=now).trash_due_ms
                plan = replace(plan, trash_due_ms=due_ms)
                meter(0, name, 1)
    data = {"segments": names, "removed": True, **removal_data(plan)}
    session.done(data, f"deleted {size}{until(plan)}")


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
    created, modified = (output.timestamp(time_ms) for time_ms in (record.created_ms, record.modified_ms))
    offloaded = output.timestamp(offload.timestamp_ms if offload.complete else 0)
    data = {
        **output.fields(ledger),
        "offload_uuid": None if offload.uuid is None else str(offload.uuid),
        "offloaded": offloaded,
        "local_deleted": local_deleted,
        "created": created,
        "modified": modified,
    }
    told = str(ledger.offload)
    if offload.uuid is not None:
        since = f" since {offloaded}" if offload.complete else ""
        deleted = ", local bytes deleted" if local_deleted else ""
        told = f"{ledger.offload}{since}{deleted}, attempt {offload.uuid}"
    last = "none" if ledger.last_entry_id < 0 else f"{ledger.last_entry_id:,}"
    rows = [
        ("ledger", printable(ledger.segment)),
        ("id", "none in its name" if ledger.ledger_id is None else str(ledger.ledger_id)),
        ("managed", output.path(ledger.managed_ledger)),
        ("state", ledger.state),
        ("offload", told),
        ("entries", f"{ledger.entries:,}, the last is {last}"),
        ("bytes", f"{ledger.length:,} ({output.size(ledger.length)})"),
        ("created", created or "-"),
        ("modified", modified or "-"),
    ]
    session.result(data, output.table(rows))


_POSITION = "LEDGER[:ENTRY]"


@command("offload")
@path_argument("managed_ledger")
@click.option("--before", metavar=_POSITION, help="Position to stop at  [default: the end of the closed ledgers]")
def offload(session: Session, managed_ledger: str, before: str | None) -> None:
    """Copy closed ledgers of MANAGED_LEDGER to the cold tier.

    Copies those that lie wholly before a position, oldest first. Prints the position of the first entry that is not
    offloaded. While a mount or daemon holds the store, it does the work.
    """
    from tierfs.holder.verbs import BEFORE, OFFLOAD_PREFIX

    options = {} if before is None else {BEFORE: str(Position.parse(before))}
    with session.open_store() as store:
        name = store.segment_of_path(managed_ledger)
        done = perform_shown(session, store, OFFLOAD_PREFIX, name, options)
    first = f"the first that is not is {done.first_unoffloaded}" if done.first_unoffloaded else "there is no ledger"
    text = f"offloaded {output.size(done.bytes)} of {output.count(done.ledgers, 'ledger')}; {first}"
    if not done.ledgers:
        text = f"nothing to offload in {printable(name)}: {output.count(done.already_cold, 'ledger')} cold, {first}"
    session.done({"managed_ledger": name, **output.fields(done)}, text)


@command("terminate")
@path_argument("managed_ledger")
def terminate(session: Session, managed_ledger: str) -> None:
    """Terminate MANAGED_LEDGER: it never accepts entries again.

    Its open ledger is closed. Prints the position of its last entry. Repeating it succeeds; its entries are kept.
    """
    with session.open_store() as store:
        name = store.segment_of_path(managed_ledger)
        last = store.engine.terminate_managed_ledger(name)
    shown = None if last is None else str(last)
    text = "it has no entry" if last is None else f"its last entry is {last}"
    session.done({"managed_ledger": name, "last_position": shown}, f"terminated {printable(name)}: {text}")


@command("status")
@path_argument("managed_ledger")
def status(session: Session, managed_ledger: str) -> None:
    """Show the ledgers of MANAGED_LEDGER and their offload.

    Prints their sizes, the state of their offload, and the next one to offload. The state is none, in progress, failed
    (until the next attempt) or complete.
    """
    with session.open_store() as store:
        name = store.segment_of_path(managed_ledger)
        with store.metadata.read() as txn:
            report = positions.status(txn, name, held=store.is_held)
    fields = "segment ledger_id state entries bytes local_bytes offload uuid local_deleted closed=closed_ms"
    shown = [output.fields(ledger, f"{fields} offloaded=offloaded_ms") for ledger in report.ledgers]
    lines = output.lines(map(_cells, report.ledgers), ">8", "<6", ">17", ">10", "<")
    content = f"{output.count(report.entries, 'entry')} of {output.count(len(report.ledgers), 'ledger')}"
    tiers = f"{output.size(report.offloaded_bytes)} offloaded, {output.size(report.not_offloaded_bytes)} not"
    following = "nothing to offload" if report.next_to_offload is None else f"next to offload: {report.next_to_offload}"
    sums = f"{content}: {output.size(report.bytes)}, {tiers}, {output.size(report.local_bytes)} local; {following}"
    ended = "; terminated" if report.terminated else ""
    session.result({**output.fields(report), "ledgers": shown}, "\n".join([*lines, sums + ended]))


def _cells(ledger: LedgerStatus) -> Sequence[str]:
    when = f" {output.clock_time(ledger.offloaded_ms)}" if ledger.offloaded_ms else ""
    deleted = ", local bytes deleted" if ledger.local_deleted else ""
    attempt = f"  {ledger.uuid}" if ledger.uuid is not None else ""
    offload = f"{ledger.offload}{when}{deleted}{attempt}"
    entries, size = output.count(ledger.entries, "entry"), output.size(ledger.bytes)
    return str(ledger.ledger_id), ledger.state, entries, size, offload


@command("trim")
@path_argument("managed_ledger")
@click.option("--before", metavar=_POSITION, required=True, help="First ledger to keep, or a position in it.")
@now_option
@click.option("--dry-run", is_flag=True, help="Show the ledgers to delete, and change nothing.")
@yes_option
def trim(session: Session, managed_ledger: str, before: str, now: bool, dry_run: bool, yes: bool) -> None:
    """Delete closed ledgers of MANAGED_LEDGER that lie wholly before a position.

    They are deleted in both tiers, after the time of their policy trash_age in the trash unless --now. Open ledgers are
    kept. The position after the last entry is one, too. Objects are deleted after a grace period; objects that tierfs
    did not write are kept.
    """
    position = Position.parse(before)
    with session.open_store() as store:
        name = store.segment_of_path(managed_ledger)
        with store.metadata.read() as txn:
            plan = trimming.plan(txn, name, position)
        if dry_run:
            data = {"managed_ledger": name, "removed": False, **removal_data(plan)}
            session.result(data, f"would delete {_described(name, plan)}")
            return
        if plan.segments and not yes:
            ask("ledger trim", f"delete {_described(name, plan)}?")
        with changing(session, store, "deleting ledgers") as show:
            done = verbs.trim_ledgers(store, name, position, now=now, report=show)
    data = {"managed_ledger": name, "removed": True, **removal_data(done)}
    session.done(data, f"deleted {_described(name, done)}{until(done)}")


def _described(name: str, plan: Deletion) -> str:
    return f"{output.count(plan.segments, 'ledger')} of {printable(name)}: {output.tiers(plan)}"
