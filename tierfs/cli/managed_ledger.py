"""tierfs ledger offload and terminate: what concerns all ledgers of a managed ledger."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.progress import progress_bar
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.segments.positions import Position

if TYPE_CHECKING:
    from tierfs.background.managed_offload import PrefixOffloaded
    from tierfs.background.upload import Progress


@command("offload")
@click.argument("managed_ledger")
@click.option("--before", metavar="LEDGER:ENTRY", help="Position to stop at  [default: all that is closed]")
def offload(session: Session, managed_ledger: str, before: str | None) -> None:
    """Make the closed ledgers of MANAGED_LEDGER cold that lie before a position as a whole, oldest first.

    Prints the position of the first entry that was not to be offloaded. While a mount or daemon holds the store, it
    does the work.
    """
    position = None if before is None else Position.parse(before)
    with session.open_store() as store, progress_bar(session, "offloading") as show:

        def report(progress: Progress) -> None:
            show(progress.done_bytes, progress.total_bytes, progress.item)

        name = store.segment_of_path(managed_ledger)
        done = store.offload_prefix(name, position, report)
    session.done({"managed_ledger": name, **asdict(done)}, _offloaded(name, done))


def _offloaded(name: str, done: PrefixOffloaded) -> str:
    first = f"the first that is not is {done.first_unoffloaded}" if done.first_unoffloaded else "there is no ledger"
    if not done.ledgers:
        return f"nothing to offload in {printable(name)}: {format.count(done.already_cold, 'ledger')} cold, {first}"
    return f"offloaded {format.size(done.bytes)} of {format.count(done.ledgers, 'ledger')}; {first}"


@command("terminate")
@click.argument("managed_ledger")
def terminate(session: Session, managed_ledger: str) -> None:
    """End MANAGED_LEDGER for good: its open ledger is closed, and it takes no more entries.

    Prints the position of its last entry. Repeating it succeeds; what it has stays.
    """
    with session.open_store() as store:
        name = store.segment_of_path(managed_ledger)
        last = store.engine.terminate_managed_ledger(name)
    shown = None if last is None else str(last)
    told = "it has no entry" if last is None else f"its last entry is {last}"
    session.done({"managed_ledger": name, "last_position": shown}, f"terminated {printable(name)}: {told}")
