"""Define tierfs ls: list names, from the metadata alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from tierfs.app import describe
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.names import join, printable, split
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import directories
from tierfs.engine.segments import stat
from tierfs.engine.segments.stat import Listed
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import human_option
from tierfs.faces.cli.paths import each, paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import QUIET, Session

_NS_PER_MS = 1_000_000


@command("ls")
@paths_argument(optional=True, metavar="[PATH]...")
@human_option
@click.option("-a", "--all", is_flag=True, hidden=True, expose_value=False)  # no name begins with a dot of its own
@click.option("-R", "--recursive", is_flag=True, help="Also list the directories below.")
@click.option(
    "-l",
    "long",
    is_flag=True,
    help="Long format: sealed (S) or open (o), size, local, cold, modified (UTC); -q omits the header.",
)
@click.option("-t", "order", flag_value="time", help="Sort by the time of the last change, the newest first.")
@click.option("-S", "order", flag_value="size", help="Sort by size, the largest first.")
@click.option("-r", "--reverse", is_flag=True, help="Reverse the order.")
@click.option("-1", "one", is_flag=True, hidden=True, expose_value=False)  # each name is on its own line anyway
@click.option("--removed", is_flag=True, help="List the trash instead: segments removed at and below DIR.")
def ls(
    session: Session,
    paths: tuple[str, ...],
    recursive: bool,
    long: bool,
    order: str | None,
    reverse: bool,
    removed: bool,
) -> None:
    """List the names in directories; names of directories end with a slash. With --json one object per line.

    --removed lists removals that can be restored: id, time of their deletion, bytes and name.
    """
    if removed:
        if order is not None or reverse:
            raise click.UsageError("--removed is in the order of removal: it takes no -t, -S and -r")
        from tierfs.faces.cli.commands.trash import list_removed

        with session.open_store(looks=True) as store:
            for path in paths:
                list_removed(session, store, join(split(store.segment_of_path(path))))
        return
    several = recursive or len(paths) > 1
    whole = several and session.json
    line: Callable[[str, Listed], Any] = _json_line if session.json else _cells if long else _short_line
    printed = False

    def work(name: str) -> None:
        nonlocal printed
        below: list[str] = []
        lines = []
        with progress_line(session) as show, store.metadata.read() as txn:
            entry = directories.find(txn, name)
            is_segment = entry is not None and entry.kind is EntryKind.SEGMENT
            parent = join(split(name))
            listed = Meter(show, noun="name").each(stat.listing(txn, name), lambda item: item.name)
            for item in _sorted(listed, order, reverse=reverse):
                path = f"{parent}/{item.name}" if parent else item.name
                if item.kind is EntryKind.DIRECTORY:
                    below.append(path)
                lines.append(line(parent if is_segment else path if whole else item.name, item))
        # Print after releasing the snapshot: a pager may be slow.
        if several and not session.json and not is_segment:
            click.echo(("\n" if printed else "") + f"{output.path(name)}:")
        printed = True
        if long and not session.json:
            header = (
                [("bytes", "local", "cold", "modified (UTC)", "name")] if lines and session.verbosity > QUIET else []
            )
            lines = output.lines([*header, *lines], ">12", ">10", ">10", "<20", "<")  # a letter precedes the first size
        for text in lines:
            click.echo(text)
        for directory in below if recursive else ():
            work(directory)

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)


def _sorted(items: Iterable[Listed], order: str | None, *, reverse: bool) -> Iterable[Listed]:
    """Return a listing in an order; names are in their own where times or sizes are equal."""
    if order is None:
        return reversed([*items]) if reverse else items
    ordered = sorted(items, key=_modified_ns if order == "time" else _bytes, reverse=True)
    return reversed(ordered) if reverse else ordered


def _modified_ns(item: Listed) -> int:
    if item.segment is not None:
        return stat.modified_ns(item.segment)
    return 0 if item.directory is None else item.directory.modified_ms * _NS_PER_MS


def _bytes(item: Listed) -> int:
    return 0 if item.segment is None else item.segment.range.length_bytes


def _json_line(name: str, item: Listed) -> str:
    return json.dumps(describe.listed(name, item))


def _short_line(name: str, item: Listed) -> str:
    return printable(name) + ("/" if item.kind is EntryKind.DIRECTORY else "")


def _cells(name: str, item: Listed) -> Sequence[str]:
    segment = item.segment
    if segment is None:
        modified = output.clock_time(item.directory.modified_ms) if item.directory is not None else "-"
        flag, sizes = "d", ["-", "-", "-"]
    else:
        modified = output.clock_time(stat.modified_ns(segment) // _NS_PER_MS)
        flag = "S" if segment.sealed else "o"
        sizes = [*map(output.size, (segment.range.length_bytes, segment.local.bytes, segment.cold.bytes))]
    suffix = f"  (sealed by policy, continues in {printable(item.successor)})" if item.successor is not None else ""
    return (f"{flag} {sizes[0]:>10}", *sizes[1:], modified, _short_line(name, item) + suffix)
