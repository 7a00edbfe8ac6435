"""Define tierfs ledger, and its commands create, ls, status and terminate; others work on ledgers as on segments."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from tierfs.app.store import Store
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.names import printable
from tierfs.engine.metadata import entries
from tierfs.engine.segments import ledgers, positions, pulsar_info
from tierfs.engine.segments.positions import LedgerStatus, OffloadState
from tierfs.faces.cli import output
from tierfs.faces.cli.group import LazyGroup, command
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

_MODULES = ("append", "read", "export", "verify")
_NAMES = "create append read ls status terminate export verify"
_COMMANDS = {
    name: f"tierfs.faces.cli.commands.ledger.{name if name in _MODULES else 'ledger'}:{name}" for name in _NAMES.split()
}


# Words that were commands of this group, or are of others, and the commands that do it.
_MEANT = {
    "cat": "tierfs ledger read SEGMENT",
    "close": "tierfs seal SEGMENT",
    "delete": "tierfs rm SEGMENT",
    "info": "tierfs info SEGMENT",
    "list": "tierfs ledger ls",
    "offload": "tierfs offload MANAGED_LEDGER [--before LEDGER[:ENTRY]]",
    "rm": "tierfs rm SEGMENT",
    "seal": "tierfs seal SEGMENT",
    "trim": "tierfs trim MANAGED_LEDGER --before LEDGER[:ENTRY]",
}


@click.group("ledger", cls=LazyGroup, lazy=_COMMANDS, store_variable=None, others=_MEANT)
def ledger() -> None:
    """Work with ledgers: segments made of numbered entries.

    A mount shows a ledger as a file of its entries, back to back. The directory of a ledger is its managed ledger.
    A ledger is closed by tierfs seal and removed by tierfs rm; info, cat, check, offload and trim know ledgers too.
    """


@command("create")
@path_argument("managed_ledger")
@click.option("--id", "ledger_id", type=int, metavar="N", help="Id of the ledger  [default: a new one]")
def create(session: Session, managed_ledger: str, ledger_id: int | None) -> None:
    """Create an empty ledger in the directory MANAGED_LEDGER.

    Prints the name of its segment.
    """
    with session.open_store() as store:
        directory = store.segment_of_path(managed_ledger)
        with store.metadata.write() as txn:
            name = ledgers.make(txn, directory, ledger_id)
        with store.metadata.read() as txn:
            ledger = ledgers.find(txn, name)[1]
    session.result(ledger, printable(name))


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


@command("terminate")
@path_argument("managed_ledger")
def terminate(session: Session, managed_ledger: str) -> None:
    """Terminate MANAGED_LEDGER: it permanently refuses further entries.

    Its open ledger is closed. Prints the position of its last entry. Repeating it succeeds; its entries are kept.
    """
    with session.open_store() as store:
        name = store.segment_of_path(managed_ledger)
        last = store.engine.terminate_managed_ledger(name)
    shown = None if last is None else str(last)
    text = "it has no entries" if last is None else f"its last entry is {last}"
    session.done({"managed_ledger": name, "last_position": shown}, f"terminated {printable(name)}: {text}")


@command("status")
@path_argument("managed_ledger")
@click.option(
    "--for-pulsar",
    type=click.Choice(("json", "protobuf")),
    help="Print the ManagedLedgerInfo of Pulsar's metadata store instead; for a ledger, its LedgerInfo.",
)
def status(session: Session, managed_ledger: str, for_pulsar: str | None) -> None:
    """Show the ledgers of MANAGED_LEDGER and their offload.

    Prints their sizes, the state of their offload, and the next one to offload. States are: none, in progress, failed
    (until the next attempt), complete.

    --for-pulsar prints the record with which a broker reads these ledgers from this bucket; it belongs at
    /managed-ledgers/TENANT/NAMESPACE/persistent/TOPIC of its metadata store (MLDataFormats.proto).
    """
    with session.open_store() as store:
        name = store.segment_of_path(managed_ledger)
        if for_pulsar is not None:
            _print_info(session, store, name, for_pulsar)
            return
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


def _print_info(session: Session, store: Store, name: str, form: str) -> None:
    with store.metadata.read() as txn:
        info = pulsar_info.info_at(txn, name)
        records = (entries.find(txn, segment.id) for _, segment in ledgers.records_below(txn, name))
        why = next(filter(None, (pulsar_info.why_not_read(txn, record) for record in records)), None)
    if form == "protobuf":
        sys.stdout.buffer.write(info.encode())
        sys.stdout.buffer.flush()
    else:
        click.echo(json.dumps(info.as_json(), indent=None if session.json else 2))
    if why is not None:
        session.warn(f"{why}; to write the objects for another bucket: tierfs ledger export")


def _cells(ledger: LedgerStatus) -> Sequence[str]:
    when = f" {output.clock_time(ledger.offloaded_ms)}" if ledger.offloaded_ms else ""
    deleted = ", local bytes deleted" if ledger.local_deleted else ""
    attempt = f"  {ledger.uuid}" if ledger.uuid is not None else ""
    offload = f"{ledger.offload}{when}{deleted}{attempt}"
    entries, size = output.count(ledger.entries, "entry"), output.size(ledger.bytes)
    return str(ledger.ledger_id), ledger.state, entries, size, offload
