"""tierfs unseal."""

from __future__ import annotations

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.session import Session
from tierfs.names import join, printable, split


@command("unseal")
@click.argument("segment")
def unseal(session: Session, segment: str) -> None:
    """Open a sealed segment again: it takes bytes as before. Repeating it succeeds.

    Its name stands for a new file in mounts; a file that is open there never grows.
    """
    with session.open_store() as store:
        name = join(split(store.segment_of_path(segment)))
        record, changed = store.engine.unseal(name)
    data = {"segment": name, "length": record.length, "already_open": not changed}
    said = "is open again" if changed else "is open already"
    session.done(data, f"{printable(name)} {said}: {format.size(record.length)}")
