"""tierfs du: how much is below a directory, and where."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.session import Session
from tierfs.names import printable
from tierfs.segments.usage import Usage, usage

_SIZE_WIDTH = len("1023.9 MiB")
_SIZES = ("bytes", "local", "cold")


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
            lines = deque((_line(session, found) for found in usage(txn, name)), maxlen=1 if summarize else None)
    # Printed once the snapshot is released: a pager may take its time.
    if not session.json:
        click.echo(_columns(_SIZES, "name"))
    for line in lines:
        click.echo(line)


def _line(session: Session, found: Usage) -> str:
    if session.json:
        return json.dumps({**asdict(found), "kind": found.kind.name.lower()})
    sizes = [format.size(number) for number in (found.bytes, found.local_bytes, found.cold_bytes)]
    return _columns(sizes, printable(found.name) or "/")


def _columns(sizes: Iterable[str], name: str) -> str:
    return "  ".join([*(f"{size:>{_SIZE_WIDTH}}" for size in sizes), name])
