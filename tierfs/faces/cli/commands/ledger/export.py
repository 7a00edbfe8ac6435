"""Define tierfs ledger export: write ledgers as the objects of Pulsar's offloader."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.base.bytes.progress import Meter
from tierfs.base.words.names import printable
from tierfs.base.words.units import is_off
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.parameter_types import Size
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session


@command("export")
@path_argument("path", metavar="SEGMENT|DIR")
@click.argument("directory", metavar="OUT_DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--block-size", type=Size(), metavar="SIZE", help="Encode in blocks of at most SIZE.")
@click.option(
    "--first-form", metavar="HEX:HEX", help="Write one object as in PIP-17's first form, with these magic words."
)
@click.option(
    "--transform",
    metavar="NAME",
    help="Change exported entries; unbatch writes one uncompressed entry per message  [default: the policy"
    " transform; off: no change]",
)
def export(
    session: Session, path: str, directory: Path, block_size: int | None, first_form: str | None, transform: str | None
) -> None:
    """Write the objects of closed ledgers to files.

    Each closed ledger at or below the path is written to files OUT_DIR/<key>, each with a <key>.json. A cold ledger is
    copied from its own objects byte for byte, unless an option sets another encoding; a local ledger is encoded as by
    offload. Nothing is overwritten; repeating it succeeds. To read them back: tierfs adopt --as pulsar.
    """
    from tierfs.app.ledger_export import Exporter, LedgerExport
    from tierfs.engine.ledger import transforms
    from tierfs.tiering.adoption.ledger_read import magic_words

    named = None if transform is None or is_off(transform) else transforms.named(transform)
    how = LedgerExport(block_size, magic_words(first_form), named, by_policy=transform is None)
    written = left_out = 0
    with session.open_store() as store, progress_line(session) as show:
        meter = Meter(show, noun="ledger")
        exporter = Exporter(store, directory, how, meter)
        closed = exporter.find(store.segment_of_path(path))
        meter.total_bytes, meter.total_items = sum(segment.length for _, segment in closed), len(closed)
        for exported in exporter.export(closed):
            written, left_out = written + (not exported.why_not), left_out + bool(exported.why_not)
            meter(0, exported.segment, 1)
            if session.json or session.verbosity >= 0:
                state = "left out" if exported.why_not else "exported" if exported.new else "already exported"
                data = {"segment": exported.segment, "state": state}
                data |= output.fields(exported, "entries bytes files=keys copied")
                data |= {"why": exported.why_not} if exported.why_not else {}
                size, method = output.size(exported.bytes), "copied" if exported.copied else "encoded"
                done = f"{output.count(exported.entries, 'entry')}, {size} {method}"
                rest = exported.why_not or f"{done}, {exported.keys[0]}"
                shown = "skipped" if exported.why_not else state
                session.result(data, f"{printable(exported.segment)}: {shown}, {rest}")
    if not session.json:
        rest = f"; {output.count(left_out, 'ledger')} skipped: close them first" if left_out else ""
        session.done({}, f"{output.count(written, 'ledger')} in {printable(str(directory))}{rest}")
