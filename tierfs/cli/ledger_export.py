"""tierfs ledger export: ledgers as the objects that Pulsar's offloader makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.parameters import Size
from tierfs.cli.progress import progress_bar
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.parallel import Meter

if TYPE_CHECKING:
    from tierfs.composition.exporting import Exported

_TRANSFORMS = ("unbatch",)


@command("export")
@click.argument("path", metavar="SEGMENT|DIR")
@click.argument("directory", metavar="OUT_DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--block-size", type=Size(), metavar="SIZE", help="Encode with blocks of SIZE at most.")
@click.option("--first-form", metavar="HEX:HEX", help="One object, as in PIP-17's first version: its magic words.")
@click.option("--transform", type=click.Choice(_TRANSFORMS), help="unbatch: one entry per message, not compressed.")
def export(
    session: Session,
    path: str,
    directory: Path,
    block_size: int | None,
    first_form: str | None,
    transform: str | None,
) -> None:
    """Write the objects of each closed ledger at or below a path as files OUT_DIR/<key>, with <key>.json beside each.

    A cold ledger is copied from its own objects byte for byte, unless an option asks for another encoding; a local one
    is encoded as offload would. Nothing is overwritten; repeating it succeeds. To read them back: tierfs adopt pulsar.
    """
    from tierfs.adoption.ledger_read import magic_words
    from tierfs.composition.exporting import Exporter, Exporting

    how = Exporting(block_size, magic_words(first_form), transform is not None)
    outcomes: list[Exported] = []
    with session.open_store() as store, progress_bar(session, "exporting") as show:
        meter = Meter(show)
        exporter = Exporter(store, directory, how, meter)
        found = exporter.find(store.segment_of_path(path))
        meter.total_bytes = sum(segment.length for _, segment in found)
        for one in exporter.export(found):
            outcomes.append(one)
            if session.json or session.verbosity >= 0:
                session.result(_data(one), _line(one))
    if not session.json:
        _sum_up(session, outcomes, directory)


def _data(one: Exported) -> dict[str, Any]:
    return {
        "segment": one.segment,
        "state": _state(one),
        "entries": one.entries,
        "bytes": one.bytes,
        "files": list(one.keys),
        "copied": one.copied,
        **({"why": one.why_not} if one.why_not else {}),
    }


def _state(one: Exported) -> str:
    if one.why_not:
        return "left out"
    return "exported" if one.new else "already exported"


def _line(one: Exported) -> str:
    if one.why_not:
        return f"{printable(one.segment)}: left out, {one.why_not}"
    size, how = format.size(one.bytes), "copied" if one.copied else "encoded"
    return f"{printable(one.segment)}: {_state(one)}, {format.count(one.entries, 'entry')}, {size} {how}, {one.keys[0]}"


def _sum_up(session: Session, outcomes: list[Exported], directory: Path) -> None:
    written = sum(not one.why_not for one in outcomes)
    left = len(outcomes) - written
    rest = f"; {format.count(left, 'ledger')} left out: close first" if left else ""
    session.done({}, f"{format.count(written, 'ledger')} in {printable(str(directory))}{rest}")
