"""Define tierfs tree: draw the names below a directory, from the metadata alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import click

from tierfs.app import describe
from tierfs.app.store import Store
from tierfs.base.words.names import join, printable, split
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import directories
from tierfs.engine.segments import stat
from tierfs.engine.segments.stat import Listed
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import human_option
from tierfs.faces.cli.paths import each, paths_argument
from tierfs.faces.cli.session import Session

_BRANCH, _LAST_BRANCH = "├── ", "└── "
_BELOW, _BELOW_LAST = "│   ", "    "


@command("tree")
@paths_argument(optional=True, metavar="[PATH]...")
@human_option
@click.option("-a", "--all", is_flag=True, hidden=True, expose_value=False)  # no name begins with a dot of its own
@click.option("-L", "--max-depth", type=click.IntRange(1), metavar="N", help="Show at most N levels below PATH.")
@click.option("-d", "only_directories", is_flag=True, help="Show directories only.")
def tree(session: Session, paths: tuple[str, ...], max_depth: int | None, only_directories: bool) -> None:
    """Draw the names below each PATH; without PATH, all names of the store. With --json one object per line."""

    def work(name: str) -> None:
        top = join(split(name))
        with store.metadata.read() as txn:
            kind = directories.must_find(txn, top).kind
        counts = Counter[EntryKind]([kind] if kind is EntryKind.SEGMENT else [])
        if not session.json:
            click.echo(output.path(top))
        below = _below(store, top, "", max_depth, only_directories=only_directories)
        for lead, path, item in below if kind is EntryKind.DIRECTORY else ():
            counts[item.kind] += 1
            slash = "/" if item.kind is EntryKind.DIRECTORY else ""
            click.echo(json.dumps(describe.listed(path, item)) if session.json else lead + printable(item.name) + slash)
        if not session.json:
            sums = [output.count(counts[EntryKind.DIRECTORY], "directory")]
            sums += [] if only_directories else [output.count(counts[EntryKind.SEGMENT], "segment")]
            session.done({}, f"\n{', '.join(sums)}")

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)


def _below(
    store: Store, path: str, indent: str, levels: int | None, *, only_directories: bool
) -> Iterator[tuple[str, str, Listed]]:
    """Yield what is below a path: the beginning of its line, its full name, and itself. Raises NotFound.

    Each directory has a snapshot of its own, which ends before its lines are printed: a pager may be slow.
    """
    with store.metadata.read() as txn:
        items = [item for item in stat.listing(txn, path) if item.kind is EntryKind.DIRECTORY or not only_directories]
    for number, item in enumerate(items, 1):
        is_last = number == len(items)
        inner = f"{path}/{item.name}" if path else item.name
        yield indent + (_LAST_BRANCH if is_last else _BRANCH), inner, item
        if item.kind is EntryKind.DIRECTORY and levels != 1:
            deeper = indent + (_BELOW_LAST if is_last else _BELOW)
            left = None if levels is None else levels - 1
            yield from _below(store, inner, deeper, left, only_directories=only_directories)
