"""Define tierfs du: sum up sizes by tier, from the metadata alone."""

from __future__ import annotations

from collections import deque

import click

from tierfs.engine.segments.usage import usage
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import human_option
from tierfs.faces.cli.paths import each, paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session


@command("du")
@paths_argument(optional=True, metavar="[PATH]...")
@human_option
@click.option("-s", "--summarize", is_flag=True, help="Show only the total.")
def du(session: Session, paths: tuple[str, ...], summarize: bool) -> None:
    """Sum up the bytes below each PATH: readable bytes, bytes in the local tier, bytes in the cold tier.

    Prints one line for each directory, the total of PATH last; without PATH, for the whole store. With --json one
    object per line.
    """
    header = [("bytes", "local", "cold", "name")]

    def work(name: str) -> None:
        with progress_line(session) as show, store.metadata.read() as txn:
            rows = deque(usage(txn, name, show), maxlen=1 if summarize else None)
        # Print after releasing the snapshot: a pager may be slow.
        sizes = [map(output.size, (row.bytes, row.local_bytes, row.cold_bytes)) for row in rows]
        cells = [(*own, output.path(row.name)) for own, row in zip(sizes, rows, strict=True)]
        session.rows(rows, output.lines([*header, *cells], ">10", ">10", ">10", "<"))
        header.clear()

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)
