"""Define tierfs mkdir: create empty directories."""

from __future__ import annotations

import click

from tierfs.base.words.errors import AlreadyExists, NotFound
from tierfs.base.words.names import as_word, join, printable, split
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import directories
from tierfs.engine.segments import create
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import each_name, paths_argument
from tierfs.faces.cli.progress import changing
from tierfs.faces.cli.session import Session


@command("mkdir")
@paths_argument("names", metavar="DIR...")
@click.option("-p", "--parents", is_flag=True, help="Also create missing directories above; accept existing ones.")
def mkdir(session: Session, names: tuple[str, ...], parents: bool) -> None:
    """Create empty directories. A segment does not need one: its directories are created with it."""
    with session.open_store() as store:

        def work(typed: str) -> None:
            name = join(split(store.segment_of_path(typed)))
            with store.metadata.write() as txn:
                there, above = directories.find(txn, name), name.rpartition("/")[0]
                if there is not None and not (parents and there.kind is EntryKind.DIRECTORY):
                    raise AlreadyExists(f"{printable(name) or '/'} exists")
                if not parents and not directories.exists(txn, above):
                    remedy = f"create it too: tierfs mkdir -p {as_word(name)}"
                    raise NotFound(f"{printable(above)} does not exist", remedy=remedy)
                create.make_directory(txn, name)
            if there is None:
                session.done({"directory": name}, f"created {printable(name)}/")

        with changing(session, store, "creating directories"):
            each_name(session, names, 0, work)
