"""tierfs ledger verify: the objects of ledgers, read as Pulsar reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.progress import progress_bar
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.parallel import Meter

if TYPE_CHECKING:
    from tierfs.composition.ledger_verifying import VerifiedLedger

_EXIT_DAMAGED = 74
_STATE_WIDTH = len("DAMAGED")


@command("verify")
@click.argument("path", metavar="SEGMENT|DIR")
def verify(session: Session, path: str) -> None:
    """Read the data and index object of each cold ledger at or below a path, ours or adopted, and check them.

    Format versions, blocks, the id and length of every entry, and all bytes, against the index, the store's rows of
    entries and its checksums. One line for each ledger: ok, warning, DAMAGED, or local for one that is not offloaded.
    The exit code is 74 when one is damaged. A warning is what Pulsar reads all the same, or what it lost in writing.
    """
    from tierfs.composition.ledger_verifying import LedgerVerifier

    damaged = warned = count = 0
    with session.open_store() as store, progress_bar(session, "verifying") as show:
        meter = Meter(show)
        verifier = LedgerVerifier(store, meter)
        found = verifier.find(store.segment_of_path(path))
        meter.total_bytes = sum(segment.length for _, segment in found)
        for one in verifier.run(found):
            count, damaged = count + 1, damaged + (one.error is not None)
            warned += one.error is None and one.warnings.count > 0
            if session.json or one.error is not None or session.verbosity >= 0:
                session.result(_data(one), _text(one))
    if not session.json:
        session.done({}, f"{format.count(count, 'ledger')} verified; {damaged} damaged, {warned} with warnings")
    if damaged:
        raise click.exceptions.Exit(_EXIT_DAMAGED)


def _state(one: VerifiedLedger) -> str:
    if one.error is not None:
        return "damaged"
    if not one.objects:
        return "local"
    return "warning" if one.warnings.count else "ok"


def _data(one: VerifiedLedger) -> dict[str, Any]:
    return {
        "segment": one.name,
        "state": _state(one),
        "entries": one.entries,
        "length": one.length,
        "objects": one.objects,
        "error": None if one.error is None else str(one.error),
        "warnings": {"count": one.warnings.count, "first": one.warnings.messages},
    }


def _text(one: VerifiedLedger) -> str:
    state = _state(one)
    shown = state.upper() if one.error is not None else state
    line = f"{shown:<{_STATE_WIDTH}}  {printable(one.name)}: {format.count(one.entries, 'entry')}"
    line += f", {format.size(one.length)}"
    if one.error is not None:
        return f"{line}: {printable(str(one.error))}"
    if not one.warnings.count:
        return line
    more = f" (and {one.warnings.count - 1} more)" if one.warnings.count > 1 else ""
    return f"{line}: {printable(one.warnings.messages[0])}{more}"
