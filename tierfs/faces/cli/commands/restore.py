"""Define tierfs restore: bring back what was removed, or the store of a backup."""

from __future__ import annotations

from pathlib import Path

import click

from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.names import join, printable, split
from tierfs.faces.cli import output
from tierfs.faces.cli.commands.trash import removed_data
from tierfs.faces.cli.group import command
from tierfs.faces.cli.paths import paths_argument
from tierfs.faces.cli.progress import changing
from tierfs.faces.cli.session import Session


@command("restore")
@paths_argument(metavar="NAME|FILE...")
@click.option("--as", "to", metavar="NEW", help="Restore it under another name.")
@click.option("--id", "removal_id", type=int, metavar="ID", help="Id of the removal, as in: tierfs ls --removed")
@click.option("--from-bucket", is_flag=True, help="Restore a segment from its backup, not from the trash.")
@click.option("--yes", is_flag=True, help="Restore from a backup even if bytes are missing; they are recorded as lost.")
def restore(
    session: Session, paths: tuple[str, ...], to: str | None, removal_id: int | None, from_bucket: bool, yes: bool
) -> None:
    """Restore removed segments or directories from the trash, or a segment from its backup in the bucket.

    Of several removals of a name, the newest is restored, or the one of --id. If the name is in use, specify another
    with --as. A segment that is not in the trash is restored from its newest backup, made by tierfs backup --to-bucket,
    or from the backup given as dumps/...; its objects must exist. --from-bucket ignores an older segment of that name
    in the trash.

    For a store directory without metadata, FILE is a backup of all metadata, and the store is created from it; the
    directory can contain chunk files.
    """
    from tierfs.app import verbs
    from tierfs.base.system.store_paths import StorePaths
    from tierfs.faces.cli.commands.backup import restore_segment, restore_store

    one_name = to is not None or removal_id is not None
    if len(paths) > 1 and one_name:
        raise InvalidRequest("--as and --id take a single name", remedy="restore them one after the other")
    if from_bucket and one_name:
        raise click.UsageError("--from-bucket and --as or --id are mutually exclusive")
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
                raise NotFound(f"{missing}; {exc}", remedy=missing.remedy) from exc
