"""Define tierfs du: sum up sizes by tier, from the metadata alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest

import click

from tierfs.base.words.names import split
from tierfs.engine.segments.usage import Usage, usage
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
@click.option(
    "-d",
    "--max-depth",
    type=click.IntRange(0),
    metavar="N",
    help="Show directories at most N levels below PATH; 0 is the total alone.",
)
@click.option("--sort", "by_size", is_flag=True, help="Sort by readable bytes, the largest first.")
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="Show only the N largest, the total among them, sorted as by --sort.",
)
def du(
    session: Session, paths: tuple[str, ...], summarize: bool, max_depth: int | None, by_size: bool, top: int | None
) -> None:
    """Sum up the bytes below each PATH: readable bytes, bytes in each tier, and what the cold ones take there.

    Less is stored of compressed bytes. Those in the archive are a part of the cold ones. Of objects that segments
    share, such as packs, each counts its part.

    Prints one line for each directory, the total of PATH last; without PATH, for the whole store. With --json one
    object per line.
    """
    header = [("bytes", "local", "cold", "stored", "archive", "name")]
    levels = 0 if summarize else max_depth

    def work(name: str) -> None:
        with progress_line(session) as show, store.metadata.read() as txn:
            sums = usage(txn, name, show)
            shown = sums if levels is None else _within(sums, len(split(name)) + levels)
            rows = _chosen(shown, top, by_size=by_size)
        # Print after releasing the snapshot: a pager may be slow.
        sizes = [map(output.size, _sizes(row)) for row in rows]
        cells = [(*own, output.path(row.name)) for own, row in zip(sizes, rows, strict=True)]
        session.rows(rows, output.lines([*header, *cells], *(">10",) * 5, "<"))
        header.clear()

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)


def _chosen(sums: Iterable[Usage], top: int | None, *, by_size: bool) -> list[Usage]:
    """Return the sums to print, in their order."""
    if top is not None:
        return nlargest(top, sums, key=_bytes)
    return sorted(sums, key=_bytes, reverse=True) if by_size else list(sums)


def _within(sums: Iterable[Usage], depth: int) -> Iterator[Usage]:
    """Yield the sums of names with at most so many parts."""
    return (row for row in sums if len(split(row.name)) <= depth)


def _sizes(row: Usage) -> tuple[int, ...]:
    return row.bytes, row.local_bytes, row.cold_bytes, row.cold_stored_bytes, row.archived_bytes


def _bytes(row: Usage) -> int:
    return row.bytes
