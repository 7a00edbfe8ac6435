"""tierfs replica: a store that follows a bucket which another one owns."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.progress import progress_bar
from tierfs.cli.session import Session
from tierfs.names import printable


@command("replica")
@click.option("--bucket", metavar="s3://B/PREFIX", help="The bucket to follow.")
@click.option("--cold-dir", type=click.Path(path_type=Path), metavar="DIR", help="The directory to follow.")
@click.option("--endpoint-url", metavar="URL", help="The S3 server, where it is not AWS.")
@click.option("--region", metavar="R", help="The bucket's region.")
@click.option("--profile", metavar="P", help="The profile of ~/.aws that has the credentials.")
@click.option("--refresh", is_flag=True, help="Bring the replica that --store names up to date now.")
def replica(session: Session, bucket: str | None, cold_dir: Path | None, refresh: bool, **where: str | None) -> None:
    """Make a read-only store in the directory that --store names, which must be missing or empty.

    It shows what the bucket of another store holds: segments end where their cold bytes do. A mount or
    daemon of it looks for news every 5 seconds (background.replica_refresh_s). It writes nothing to the
    bucket, so credentials that may only read are enough.
    """
    if refresh:
        if bucket is not None or cold_dir is not None or any(where.values()):
            raise click.UsageError("--refresh stands alone: a replica knows what it follows")
        _refresh(session)
        return
    if (bucket is None) == (cold_dir is None):
        raise click.UsageError("name what to follow with either --bucket or --cold-dir")
    if bucket is None and any(where.values()):
        given = next(key for key, value in where.items() if value).replace("_", "-")
        raise click.UsageError(f"--{given} needs --bucket")
    path = session.require_store_path()
    from tierfs.initialize import ColdChoice
    from tierfs.recovery.follow import create_replica

    choice = ColdChoice(bucket_url=bucket, cold_dir=cold_dir, none=False, **where)
    with progress_bar(session, "replica") as show:
        report = create_replica(path, choice, show)
    if not session.json:
        for warning in report.warnings:
            session.warn(warning)
    place = f"{printable(str(report.path))} follows {printable(report.cold_url)}"
    session.done(
        {**asdict(report), "path": str(report.path)},
        f"{place} (store {report.store_id}, epoch {report.store_epoch}), up to slot {report.slot}",
    )


def _refresh(session: Session) -> None:
    with session.open_store() as store:
        from tierfs.composition.holding import refresh

        found = refresh(store)
    if found.started_over:
        said = f"started over from the newest checkpoint, up to slot {found.slot}"
    elif found.entries:
        said = f"{format.count(found.entries, 'entry')} new, up to slot {found.slot}"
    else:
        said = f"nothing new behind slot {found.slot}"
    session.done(asdict(found), said)
