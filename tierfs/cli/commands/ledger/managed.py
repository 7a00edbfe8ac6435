"""Define tierfs ledger offload, status, trim and terminate: the commands for a whole managed ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.app import verbs
from tierfs.cli import output
from tierfs.cli.commands.rm_restore import now_option, removal_data, until
from tierfs.cli.group import command, path_argument
from tierfs.cli.options import ask, yes_option
from tierfs.cli.progress import perform_shown, progress_line
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.parallel import doing
from tierfs.segments import managed_ledger as trimming
from tierfs.segments import positions
from tierfs.segments.delete import Deletion
from tierfs.segments.positions import LedgerStatus, ManagedStatus, Position

if TYPE_CHECKING:
    from tierfs.tiering.ledgers.managed import PrefixOffloaded

_POSITION = "LEDGER[:ENTRY]"

_COLUMNS = (">8", "<6", ">17", ">10", "<")


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
    session.done({"managed_ledger": name, **asdict(done)}, _offloaded(name, done))


def _offloaded(name: str, done: PrefixOffloaded) -> str:
    first = f"the first that is not is {done.first_unoffloaded}" if done.first_unoffloaded else "there is no ledger"
    if not done.ledgers:
        return f"nothing to offload in {printable(name)}: {output.count(done.already_cold, 'ledger')} cold, {first}"
    return f"offloaded {output.size(done.bytes)} of {output.count(done.ledgers, 'ledger')}; {first}"


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
    data = {**asdict(report), "ledgers": [_ledger_data(ledger) for ledger in report.ledgers]}
    session.result(data, "\n".join([*output.lines(map(_cells, report.ledgers), *_COLUMNS), _sums(report)]))


def _ledger_data(ledger: LedgerStatus) -> dict[str, object]:
    data = asdict(ledger)
    return data | {key: output.timestamp(data.pop(f"{key}_ms")) for key in ("closed", "offloaded")}


def _cells(ledger: LedgerStatus) -> Sequence[str]:
    when = f" {output.clock_time(ledger.offloaded_ms)}" if ledger.offloaded_ms else ""
    deleted = ", local bytes deleted" if ledger.local_deleted else ""
    attempt = f"  {ledger.uuid}" if ledger.uuid is not None else ""
    offload = f"{ledger.offload}{when}{deleted}{attempt}"
    return str(ledger.ledger_id), ledger.state, f"{ledger.entries:,} entries", output.size(ledger.bytes), offload


def _sums(report: ManagedStatus) -> str:
    content = f"{output.count(report.entries, 'entry')} of {output.count(len(report.ledgers), 'ledger')}"
    tiers = f"{output.size(report.offloaded_bytes)} offloaded, {output.size(report.not_offloaded_bytes)} not"
    following = "nothing to offload" if report.next_to_offload is None else f"next to offload: {report.next_to_offload}"
    ended = "; terminated" if report.terminated else ""
    return (
        f"{content}: {output.size(report.bytes)}, {tiers}, {output.size(report.local_bytes)} local; {following}{ended}"
    )


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
            session.result(_trimmed(name, plan, removed=False), f"would delete {_described(name, plan)}")
            return
        if plan.segments and not yes:
            ask("ledger trim", f"delete {_described(name, plan)}?")
        with progress_line(session) as show:
            show(doing("deleting ledgers"))
            done = verbs.trim_ledgers(store, name, position, now=now, report=show)
            unpublished = verbs.settle(store, show)
    session.note_unpublished(unpublished)
    session.done(_trimmed(name, done, removed=True), f"deleted {_described(name, done)}{until(done)}")


def _described(name: str, plan: Deletion) -> str:
    local, cold = output.size(plan.local_bytes), output.size(plan.cold_bytes)
    return f"{output.count(plan.segments, 'ledger')} of {printable(name)}: {local} local, {cold} cold"


def _trimmed(name: str, plan: Deletion, *, removed: bool) -> dict[str, object]:
    return {"managed_ledger": name, "removed": removed, **removal_data(plan)}
