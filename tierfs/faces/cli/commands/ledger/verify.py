"""Define tierfs ledger verify: read the objects of ledgers as Pulsar reads them, and check them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tierfs.base.bytes.progress import Meter
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.errors import EXIT_DAMAGED
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.ledger_verify import VerifiedLedger


@command("verify")
@path_argument("path", metavar="SEGMENT|DIR")
def verify(session: Session, path: str) -> None:
    """Read and check the objects of cold ledgers.

    Reads the data and index object of each cold ledger at or below the path, adopted ones included. Checks format
    versions, blocks, the id and length of every entry, and all bytes against the index, the store's entry rows and its
    checksums. Prints one line for each ledger: ok, warning, DAMAGED, or local if it is not offloaded. The last line
    counts ledgers of 0 bytes separately: they have no objects to verify. The exit code is 74 if a ledger is damaged. A
    warning is a deviation that Pulsar can read, or a loss that happened when Pulsar wrote the ledger.
    """
    from tierfs.app.ledger_verify import LedgerVerifier

    damaged = warned = local = empty = count = 0
    with session.open_store() as store, progress_line(session) as show:
        meter = Meter(show, noun="ledger")
        verifier = LedgerVerifier(store, meter)
        cold = verifier.find(store.segment_of_path(path))
        meter.total_bytes, meter.total_items = sum(segment.length for _, segment in cold), len(cold)
        for ledger in verifier.run(cold):
            meter(0, ledger.name, 1)
            # Nothing of these can be read: the last line counts them apart.
            unread = ledger.error is None and not ledger.objects
            local, empty = local + (unread and ledger.length > 0), empty + (unread and not ledger.length)
            count, damaged = count + (not unread), damaged + (ledger.error is not None)
            warned += ledger.error is None and ledger.warnings.count > 0
            if session.json or ledger.error is not None or session.verbosity >= 0:
                session.result(_data(ledger), _text(ledger))
    if not session.json:
        rest = f", {local} not offloaded" if local else ""
        rest += f", {empty} of 0 bytes: nothing to verify" if empty else ""
        session.done({}, f"{output.count(count, 'ledger')} verified; {damaged} damaged, {warned} with warnings{rest}")
    if damaged:
        raise click.exceptions.Exit(EXIT_DAMAGED)


def _data(ledger: VerifiedLedger) -> dict[str, Any]:
    data = {"segment": ledger.name, "state": _state(ledger)}
    data |= output.fields(ledger, "entries length objects error")
    return {**data, "warnings": output.fields(ledger.warnings, "count first=messages")}


def _state(ledger: VerifiedLedger) -> str:
    if ledger.error is not None:
        return "damaged"
    if not ledger.objects:
        return "local"
    return "warning" if ledger.warnings.count else "ok"


def _text(ledger: VerifiedLedger) -> str:
    shown = "DAMAGED" if ledger.error is not None else _state(ledger)
    line = f"{shown:<7}  {printable(ledger.name)}: {output.count(ledger.entries, 'entry')}"
    line += f", {output.size(ledger.length)}"
    if ledger.error is not None:
        return f"{line}: {printable(str(ledger.error))}"
    if not ledger.warnings.count:
        return line
    more = f" (and {ledger.warnings.count - 1} more)" if ledger.warnings.count > 1 else ""
    return f"{line}: {printable(ledger.warnings.messages[0])}{more}"
