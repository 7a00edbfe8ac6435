"""Define tierfs replica: create a read-only store that follows another's bucket."""

from __future__ import annotations

from typing import Any

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.parameter_types import Duration
from tierfs.faces.cli.place_options import place_options, require_place, server_options
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session


@command("replica")
@place_options("Bucket to follow.", "Another place to follow; URLs as for init.", "Cold directory to follow.")
@server_options()
@click.option("--standby", is_flag=True, help="Take the bucket over when its owner shows no sign of life.")
@click.option(
    "--takeover-after",
    type=Duration(least_s=1),
    metavar="TIME",
    help="With --standby: how long the owner may show none.",
)
@click.option(
    "--check", metavar="COMMAND", help="With --standby: program that must exit with 0 before a takeover, like a ping."
)
@click.option("--refresh", is_flag=True, help="Update the replica given by --store now.")
def replica(
    session: Session, refresh: bool, standby: bool, takeover_after: float | None, check: str | None, **where: Any
) -> None:
    """Create a read-only store in the directory given by --store, which must be missing or empty.

    It shows the content of another store's bucket: segments end where their cold bytes end. Its mount or daemon
    checks for changes every 5 seconds (background.replica_refresh_s). It writes nothing to the bucket, so read-only
    credentials are enough.

    With --standby it also takes over the bucket by itself, as described in docs/standby.md. This needs credentials that
    may write. tierfs standby shows its state.
    """
    if standby != (takeover_after is not None) or (check and not standby):
        raise click.UsageError("--standby needs --takeover-after TIME; --takeover-after and --check need --standby")
    if refresh:
        if standby or where["bucket"] is not None or any(where.values()):
            raise click.UsageError("--refresh takes no place: a replica has its bucket")
        with session.open_store() as store:
            from tierfs.app.replica import refresh as refresh_replica

            with progress_line(session) as show:
                done = refresh_replica(store, show)
        text = f"nothing new after slot {done.slot}"
        if done.started_over:
            text = f"restarted from the newest checkpoint, up to slot {done.slot}"
        elif done.entries:
            text = f"{output.count(done.entries, 'journal entry')}, up to slot {done.slot}"
        session.done(done, text)
        return
    place, path = require_place("to follow", **where), session.require_store_path()
    with progress_line(session) as show:
        if takeover_after is not None:
            from tierfs.app.standby_orders import create_standby

            report = create_standby(path, place, round(takeover_after), check or "", show)
        else:
            from tierfs.app.recovery.replica import create_replica

            report = create_replica(path, place, show)
    session.warn_text(report.warnings)
    text = f"{printable(str(report.path))} follows {printable(report.cold_url)}"
    session.done(report, f"{text} (store {report.store_id}, epoch {report.store_epoch}), up to slot {report.slot}")
