"""Define tierfs follow: append files as they grow, through their rotations."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.follow.follower import FollowSummary, LogFollower
    from tierfs.app.follow.listing import LogState


@command("follow")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--into", metavar="DIR", help="Target directory in the store.")
@click.option("--once", is_flag=True, help="Append what is there now, and end: for cron.")
@click.option(
    "--list", "lists", is_flag=True, help="List the files that are followed: their segments, and how far they lag."
)
def follow(session: Session, paths: tuple[str, ...], into: str | None, once: bool, lists: bool) -> None:
    """Append files as they grow: each line is in its segment once, through rotation and after a kill.

    A PATH is a file, a directory with all files below it, or a quoted pattern such as '/var/log/*.log'. A file becomes
    DIR/<file name>; one below a directory, or that matches a pattern, DIR/<relative path>. Files that appear later are
    followed too. A rotated file (app.log.1, app.log-20261129.gz) is read to its end, and its log continues in the same
    segment. Rotated files that are older than the first run are not read.

    The place in each file is recorded in the commit that appends its lines. Lines are appended whole; a last one
    without an end after 5 s. The files are never changed. Lines that were deleted before they were read are reported:
    here, in `--list`, and in `tierfs status`.

    Runs until SIGTERM or Ctrl-C. On a full disk it waits for room.
    """
    if lists:
        if paths or once:
            raise click.UsageError("--list takes no PATH, and no option but --into")
        _list(session, into)
        return
    if not paths or into is None:
        raise click.UsageError("specify what to follow, and --into: tierfs follow PATH... --into DIR")
    from tierfs.app.follow.follower import LogFollower

    with (
        session.open_store() as store,
        closing(LogFollower(store, paths, store.segment_of_path(into), session)) as follower,
    ):
        if once:
            follower.run_once()
        else:
            number = output.count(len(follower.paths), "file")
            session.note(f"following {number} into {printable(into)}; Ctrl-C ends it")
            with _ending(follower):
                follower.run()
        summary = follower.summary
    _report(session, summary, fails=once)


@contextmanager
def _ending(follower: LogFollower) -> Iterator[None]:
    """End the follower at SIGTERM and SIGINT, after the commit under way; a second signal ends the process."""

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        follower.stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(session: Session, summary: FollowSummary, *, fails: bool) -> None:
    failed = sorted(summary.failed.items())
    data = {
        "logs": summary.logs,
        "bytes": summary.bytes,
        "gaps": summary.gaps,
        "errors": errors.parts(failed, "path"),
    }
    gaps = f"; {output.count(summary.gaps, 'gap')}" if summary.gaps else ""
    session.done(data, f"appended {output.size(summary.bytes)} of {output.count(summary.logs, 'file')}{gaps}")
    if fails:
        errors.report_parts(session, failed, None)


def _list(session: Session, into: str | None) -> None:
    from tierfs.app.follow.listing import states

    with session.open_store(looks=True) as store:
        below = store.segment_of_path(into) if into is not None else ""
        rows = list(states(store, below))
    if session.json:
        session.rows(rows, [])
        return
    cells = [("FILE", "SEGMENT", "LAG", "", "STATE")] if rows else []
    cells += [_cells(row) for row in rows]
    session.rows([], output.lines(cells, "<", "<", ">", ">", "<"))


def _cells(row: LogState) -> tuple[str, str, str, str, str]:
    lag_s = "" if not row.lag_bytes else f"{row.lag_s or 0:.0f} s"
    lag = "?" if row.lag_bytes is None else output.size(row.lag_bytes)
    state = row.state if not row.gaps else f"{row.state}, {output.count(row.gaps, 'gap')}"
    return printable(row.path), printable(row.segment), lag, lag_s, state
