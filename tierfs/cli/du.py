"""tierfs du: how much is below a directory, and where."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.segments.usage import Usage, usage

_COLUMNS = (">10", ">10", ">10", "<")
_HEADER = ("bytes", "local", "cold", "name")


@command("du")
@click.argument("path", metavar="[PATH]", default="")
@click.option("-s", "--summarize", is_flag=True, help="Only the total.")
def du(session: Session, path: str, summarize: bool) -> None:
    """Sum up the bytes below PATH: those that can be read, those in the local tier, those in the cold one.

    One line for each directory, the total of PATH last; without PATH, all there is. With --json one object
    per line.
    """
    with session.open_store() as store:
        name = store.segment_of_path(path)
        with store.metadata.read() as txn:
            found = deque(usage(txn, name), maxlen=1 if summarize else None)
    # Printed once the snapshot is released: a pager may take its time.
    if not session.json:
        click.echo(format.table([_HEADER, *map(_cells, found)], *_COLUMNS))
        return
    for one in found:
        click.echo(json.dumps({**asdict(one), "kind": one.kind.name.lower()}))


def _cells(found: Usage) -> Sequence[str]:
    sizes = [format.size(number) for number in (found.bytes, found.local_bytes, found.cold_bytes)]
    return (*sizes, printable(found.name) or "/")
