"""Define tierfs rm: remove segments and directories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tierfs.base.bytes.progress import doing
from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import as_word, printable
from tierfs.faces.cli import output
from tierfs.faces.cli.commands.trash import now_option, removal_data, until
from tierfs.faces.cli.confirm import ask, is_terminal
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import dry_run_option, yes_option
from tierfs.faces.cli.paths import each_name, names_of, paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.engine.segments.delete import Deletion


@command("rm")
@paths_argument(metavar="PATH...")
@click.option("-r", "-R", "--recursive", is_flag=True, help="Remove a directory and everything below it.")
@now_option
@click.option("-f", "--force", is_flag=True, help="Like --yes; also ignore names that do not exist.")
@click.option("-i", "--interactive", is_flag=True, hidden=True, expose_value=False)  # the default: --yes and -f win
@dry_run_option("Show the segments to remove, and change nothing.")
@yes_option
def rm(
    session: Session, paths: tuple[str, ...], recursive: bool, now: bool, force: bool, dry_run: bool, yes: bool
) -> None:
    """Remove segments, or with -r directories.

    Removed segments stay in the trash for the time of their policy trash_age (default: 1 day); until then tierfs
    restore restores them. With --now, or after that time, local files are deleted at once and cold objects after a
    grace period. Objects that tierfs did not write are kept.
    """
    from tierfs.app import verbs
    from tierfs.engine.segments import delete, trash

    removed = False

    def work(name: str) -> None:
        nonlocal removed
        try:
            with progress_line(session) as show, store.metadata.read() as txn:
                show(doing("counting segments and bytes"))
                entry, plan = delete.plan(txn, name, recursive=recursive)
                age_s = 0 if now else trash.age_s(txn, entry)
        except NotFound:
            if force:
                return
            raise
        if age_s:
            plan = replace(plan, trash_due_ms=store.clock.now_ms() + age_s * 1000)
        if dry_run:
            data = {"path": name, "removed": False, **removal_data(plan)}
            session.result(data, f"would remove {_describe(name, plan)}")
            return
        if not (yes or force):
            ask("rm", f"remove {_describe(name, plan)}?")
        with progress_line(session) as show:
            show(doing("removing"))
            deletion = verbs.delete(store, name, recursive=recursive, now=now, report=show)
        removed = True
        way = f" with: tierfs restore {as_word(name)}" if deletion.trash_due_ms else ""
        data = {"path": name, "removed": True, **removal_data(deletion)}
        session.done(data, f"removed {_describe(name, deletion)}{way}")

    with session.open_store() as store:
        names, code = names_of(session, store, paths, missing_ok=force)
        if len(names) > 1 and not (yes or force or dry_run or is_terminal()):
            ask("rm", f"remove {output.count(len(names), 'path')}?")  # refuses once, and not for each
        try:
            each_name(session, names, code, work)
        finally:
            if removed:
                # Once for all: each publication is a request to the bucket.
                with progress_line(session) as show:
                    session.note_unpublished(verbs.settle(store, show))


def _describe(name: str, deletion: Deletion) -> str:
    segments, chunks = output.count(deletion.segments, "segment"), output.count(deletion.cold_chunks, "chunk")
    return f"{printable(name)}: {segments}, {output.tiers(deletion)} in {chunks}{until(deletion)}"
