"""Define tierfs archive: move cold objects to another storage class or to the archive place, or back."""

from __future__ import annotations

import click

from tierfs.app.store import Store
from tierfs.base.words.names import as_word
from tierfs.base.words.storage_classes import is_restored_first
from tierfs.base.words.types import IN_PLACE
from tierfs.faces.cli import output
from tierfs.faces.cli.options import dry_run_option
from tierfs.faces.cli.paths import each_command
from tierfs.faces.cli.progress import perform_shown
from tierfs.faces.cli.session import Session


@each_command("archive", "[PATH]...")
@click.option(
    "--class", "storage_class", metavar="CLASS", help="Storage class, or place  [default: the policy archive_class]"
)
@click.option("--back", is_flag=True, help="Move the objects back to the storage class of new objects.")
@dry_run_option("Show the objects to move, and change nothing.")
def archive(session: Session, store: Store, name: str, storage_class: str | None, back: bool, dry_run: bool) -> None:
    """Move the cold objects below each PATH to another storage class of the bucket now; without PATH, all objects.

    The class place is the archive place of the store, another directory or bucket: tierfs config archive.place=URL.
    A mount or daemon does the same when the policy archive_after says so. The server copies the objects, or, between
    two places, this machine; each copy is proved before it replaces the old object, which is deleted after the grace
    period. Classes such as DEEP_ARCHIVE must restore an object before it can be read: see tierfs thaw.

    Objects that segments outside of PATH have parts of stay, and so do ledgers and adopted objects. --back needs
    objects that can be read: run tierfs thaw first.
    """
    from tierfs.tiering.archive import classes
    from tierfs.upkeep.holder.verbs import ARCHIVE, DRY_RUN, STORAGE_CLASS, flags

    with store.metadata.read() as txn:
        chosen = classes.chosen(txn, name, storage_class, back=back)
    done = perform_shown(session, store, ARCHIVE, name, {STORAGE_CLASS: chosen, **flags({DRY_RUN: dry_run})})
    to = _told(chosen)
    lines = []
    if done.objects:
        lines.append(
            f"{'would move' if dry_run else 'moved'} {output.count(done.objects, 'object')} to {to},"
            f" {output.size(done.bytes)}"
        )
    if done.client_bytes:
        lines.append(f"  {output.size(done.client_bytes)} passed through this machine")
    if done.shared:
        lines.append(f"kept {output.count(done.shared, 'object')}: segments elsewhere have parts of them")
    text = "\n".join(lines) or f"nothing to move to {to} below {output.path(name)}"
    session.done({"path": name, "storage_class": chosen, "dry_run": dry_run, **output.fields(done)}, text)
    if done.objects and is_restored_first(chosen) and not dry_run:
        session.note(f"to read them again: tierfs thaw --wait {as_word(name or '/')}")


def _told(storage_class: str) -> str:
    if storage_class == IN_PLACE:
        return "the archive place"
    return storage_class or "the storage class of new objects"
