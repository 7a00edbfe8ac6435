"""Define tierfs rm and tierfs restore, and the lines with which ls and gc show the trash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.bytes.progress import doing
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.names import as_word, join, printable, split
from tierfs.base.words.types import EntryKind
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command, each_name, names_of, paths_argument
from tierfs.faces.cli.options import ask, dry_run_option, is_terminal, yes_option
from tierfs.faces.cli.progress import changing, progress_line
from tierfs.faces.cli.session import QUIET, Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.engine.segments.delete import Deletion
    from tierfs.engine.segments.trash import Removed

# Of the commands by which a person removes.
now_option = click.option("--now", is_flag=True, help="Delete for good, without the trash.")


@command("rm")
@paths_argument(metavar="PATH...")
@click.option("-r", "-R", "--recursive", is_flag=True, help="Remove a directory and everything below it.")
@now_option
@click.option("-f", "--force", is_flag=True, help="As --yes, and what does not exist is no error.")
@dry_run_option("Show the segments to remove, and change nothing.")
@yes_option
def rm(
    session: Session, paths: tuple[str, ...], recursive: bool, now: bool, force: bool, dry_run: bool, yes: bool
) -> None:
    """Remove segments, or with -r directories.

    What is removed stays in the trash for the time of its policy trash_age (1 day unless set), and comes back with
    tierfs restore. With --now, or after that time, local files are deleted at once and cold objects after a grace
    period. Objects that tierfs did not write are kept.
    """
    from tierfs.app import verbs
    from tierfs.engine.segments import delete, trash

    removed = False

    def work(name: str) -> None:
        nonlocal removed
        try:
            with progress_line(session) as show, store.metadata.read() as txn:
                show(doing("counting what is below"))
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


def until(deletion: Deletion) -> str:
    """Return how long what was removed can be restored, as the end of a line."""
    due_ms = deletion.trash_due_ms
    return f"; it can be restored until {output.clock_time(due_ms)}" if due_ms else "; for good"


def removal_data(deletion: Deletion) -> dict[str, object]:
    """Return the effect of a removal as JSON data."""
    data = output.fields(deletion)
    return {**data, "trash_until": output.timestamp(data.pop("trash_due_ms"))}


@command("restore")
@paths_argument(metavar="NAME|FILE...")
@click.option("--as", "to", metavar="NEW", help="Restore it under another name.")
@click.option("--id", "removal_id", type=int, metavar="ID", help="The removal that ls --removed lists with this id.")
@click.option("--from-bucket", is_flag=True, help="Restore a segment from its backup, whatever is in the trash.")
@click.option("--yes", is_flag=True, help="Restore from a backup even if some of its bytes are gone: they are lost.")
def restore(
    session: Session, paths: tuple[str, ...], to: str | None, removal_id: int | None, from_bucket: bool, yes: bool
) -> None:
    """Bring back a segment or directory that was removed, from the trash or from its backup in the bucket.

    Of several removals of one name the newest is restored, unless --id names another. A name that is taken is refused:
    give another one with --as. A segment that the trash does not have comes back from the newest backup that tierfs
    backup --to-bucket made of it, or from the one that is named as dumps/...; its objects must exist. The trash may
    have an older segment of that name: --from-bucket passes it by.

    In the directory of a store that has no metadata, FILE is a backup of all of them, and the store is made of it; the
    directory may have chunk files.
    """
    from tierfs.app import verbs
    from tierfs.base.system.store_paths import StorePaths
    from tierfs.faces.cli.commands.backup import restore_segment, restore_store

    one_name = to is not None or removal_id is not None
    if len(paths) > 1 and one_name:
        raise InvalidRequest("--as and --id are for one name", remedy="restore one after the other")
    if from_bucket and one_name:
        raise click.UsageError("--as and --id are of the trash, and --from-bucket passes it by")
    path = session.require_store_path()
    if len(paths) == 1 and not StorePaths(path.absolute()).metadata.exists() and Path(paths[0]).is_file():
        restore_store(session, path, paths[0])
        return
    done = []
    absent: list[tuple[str, NotFound]] = []
    with session.open_store() as store:
        names = [join(split(store.segment_of_path(typed))) for typed in paths]
        if from_bucket:
            for name in names:
                restore_segment(session, store, name, accept_loss=yes)
            return
        with changing(session, store, "restoring"):
            for typed, name in zip(paths, names, strict=True):
                try:
                    done.append(verbs.restore(store, name, to=to or "", removal_id=removal_id))
                except NotFound as exc:
                    if Path(typed).is_file():
                        restore_store(session, path, typed)  # which tells why not: this store has metadata
                    if one_name or store.cold_location_id is None:
                        raise
                    absent.append((name, exc))
        if done:
            data = [{"restored_as": name, **removed_data(removed)} for name, removed in done]
            sums = [(name, removed.removal) for name, removed in done]
            lines = [
                f"{printable(name)}: {output.count(of.segments, 'segment')}, {output.tiers(of)}" for name, of in sums
            ]
            session.done({"restored": data}, "\n".join(f"restored {line}" for line in lines))
        for name, missing in absent:
            try:
                restore_segment(session, store, name, accept_loss=yes)
            except NotFound as exc:
                raise NotFound(f"{missing}, and {exc}", remedy=missing.remedy) from exc


def removed_data(removed: Removed) -> dict[str, Any]:
    """Return what is in the trash as JSON data."""
    sums = "path segments directories bytes local_bytes cold_bytes uncovered_bytes active_bytes"
    times = "removed=removed_ms until=due_ms"
    return output.fields(removed, "id kind=entry.kind") | output.fields(removed.removal, f"{times} {sums}")


def list_removed(session: Session, store: Store, path: str) -> None:
    """Print what is in the trash, at and below a path as it was before."""
    from tierfs.engine.segments import trash

    with store.metadata.read() as txn:
        shown = [each for each in trash.removed(txn) if not path or f"{each.removal.path}/".startswith(f"{path}/")]
    header = ("id", "until (UTC)", "bytes", "local", "cold", "name")
    cells: list[tuple[str, ...]] = [header] if shown and session.verbosity > QUIET else []
    for each in shown:
        sums = each.removal
        sizes = map(output.size, (sums.bytes, sums.local_bytes, sums.cold_bytes))
        cells.append((str(each.id), output.clock_time(sums.due_ms), *sizes, shown_name(each)))
    session.rows(map(removed_data, shown), output.lines(cells, ">", "<", ">10", ">10", ">10", "<"))


def shown_name(removed: Removed) -> str:
    """Return the name before the removal, with the number of segments of a directory."""
    path = printable(removed.removal.path)
    if removed.entry.kind is EntryKind.SEGMENT:
        return path
    return f"{path}/ ({output.count(removed.removal.segments, 'segment')})"
