"""tierfs cat: a segment's bytes to stdout."""

from __future__ import annotations

import sys

import click

from tierfs.checksum import Buffer
from tierfs.cli.lazy import command
from tierfs.cli.parameters import Size, read_priority_option
from tierfs.cli.session import Session
from tierfs.types import ReadPriority


@command("cat")
@click.argument("segment")
@click.option("--from", "start", type=Size(), metavar="N", help="First byte's offset  [default: the first there is]")
@click.option("--to", "end", type=Size(), metavar="N", help="Offset behind the last byte  [default: the length]")
@read_priority_option
def cat(session: Session, segment: str, start: int | None, end: int | None, read_priority: ReadPriority | None) -> None:
    """Write a segment's bytes to stdout. Offsets are the segment's, which begin at its start offset."""
    out = sys.stdout.buffer

    def write(data: Buffer) -> None:
        out.write(data)

    with session.open_store() as store:
        store.cat(store.segment_of_path(segment), start, end, read_priority, write)
    out.flush()
