"""Define tierfs follow: append files as they grow, through their rotations."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.system import service_manager
from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.follow.follower import LogFollower
    from tierfs.app.follow.journal import JournalFollower
    from tierfs.app.follow.listing import LogState
    from tierfs.app.follow.sources import LogSource
    from tierfs.app.follow.summary import FollowSummary
    from tierfs.app.store import Store


@command("follow")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--into", metavar="DIR", help="Target directory in the store.")
@click.option(
    "--journal",
    "unit",
    is_flag=False,
    flag_value="",
    metavar="[UNIT]",
    help="Follow the journal of systemd instead, or a unit's entries, as lines of JSON: DIR/journal, or DIR/UNIT.",
)
@click.option("--journal-directory", metavar="PATH", default="", help="With --journal: read the journal files in PATH.")
@click.option("--once", is_flag=True, help="Append what is there now, and end: for cron.")
@click.option("--background", is_flag=True, help="Leave it to the mount or daemon of the store, also after a restart.")
@click.option("--stop", is_flag=True, help="End what --background started in the directory; with PATHs, for these.")
@click.option(
    "--list", "lists", is_flag=True, help="List the files that are followed: their segments, and how far they lag."
)
def follow(
    session: Session,
    paths: tuple[str, ...],
    into: str | None,
    unit: str | None,
    journal_directory: str,
    once: bool,
    background: bool,
    stop: bool,
    lists: bool,
) -> None:
    """Append files as they grow: each line is in its segment once, through rotation and after a kill.

    A PATH is a file, a directory with all files below it, or a quoted pattern such as '/var/log/*.log'. A file becomes
    DIR/<file name>; one below a directory, or that matches a pattern, DIR/<relative path>. Files that appear later are
    followed too. A rotated file (app.log.1, app.log-20261129.gz) is read to its end, and its log continues in the same
    segment. Rotated files that are older than the first run are not read.

    The place in each file is recorded in the commit that appends its lines. Lines are appended whole; a last one
    without an end after 5 s. The files are never changed. Lines that were deleted before they were read are reported:
    here, in `--list`, and in `tierfs status`.

    Runs until SIGTERM or Ctrl-C. On a full disk it waits for room. With --background the mount or daemon follows until
    --stop; status shows it.
    """
    if once + background + stop + lists > 1:
        raise click.UsageError("use one of --once, --background, --stop, --list")
    if lists:
        if paths:
            raise click.UsageError("--list takes no PATH")
        _list(session, into)
        return
    if stop:
        if into is None:
            raise click.UsageError("--stop needs --into")
        _stop(session, paths, into)
        return
    if into is None or bool(paths) is (unit is not None):
        raise click.UsageError("specify what to follow, and --into: tierfs follow PATH... --into DIR")
    if unit is not None:
        if background:
            raise click.UsageError("--background does not support --journal: run it as a service")
        _follow_journal(session, unit, into, journal_directory, once=once)
        return
    from tierfs.app.follow.follower import LogFollower
    from tierfs.app.follow.sources import sources_of

    sources = sources_of(paths)
    with session.open_store() as store:
        target = store.segment_of_path(into)
        with closing(LogFollower(store, sources, target, session)) as follower:
            files = output.count(len(follower.paths), "file")
            if background:
                _set_background(store, target, sources, background=True)
                session.done(
                    {"logs": len(follower.paths)}, f"following {files} into {printable(into)} in the background"
                )
                if not store.is_held:
                    session.note("no mount or daemon is running: nothing is appended until one starts")
                return
            if once:
                follower.run_once()
            else:
                session.note(f"following {files} into {printable(into)}; Ctrl-C ends it")
                with _ending(follower):
                    follower.run()
            summary = follower.summary
    _report(session, summary, fails=once)


def _follow_journal(session: Session, unit: str, into: str, directory: str, *, once: bool) -> None:
    from tierfs.app.follow.journal import JournalFollower

    with session.open_store() as store:
        follower = JournalFollower(store, unit, store.segment_of_path(into), session, directory=directory)
        if once:
            follower.run_once()
        else:
            session.note(f"following {unit or 'the journal'} into {printable(into)}; Ctrl-C ends it")
            with _ending(follower):
                follower.run()
    _report(session, follower.summary, fails=once)


def _set_background(store: Store, into: str, sources: Sequence[LogSource], *, background: bool) -> None:
    from tierfs.app.follow import beginnings, in_background

    in_background.choose(store, beginnings.recorded(store, into, sources), background=background)


def _stop(session: Session, paths: Sequence[str], into: str) -> None:
    """Let the holder follow these paths no more; without any, nothing into the directory."""
    from tierfs.app.follow import in_background

    with session.open_store() as store:
        wanted = {os.fsencode(os.path.abspath(path)) for path in paths}
        rows = in_background.chosen(store, store.segment_of_path(into))
        ended = [row for row in rows if not paths or row.path in wanted]
        in_background.choose(store, ended, background=False)
    shown = [os.fsdecode(row.path) for row in ended]
    lines = [f"stopped following {printable(path)}" for path in shown]
    session.done({"stopped": shown}, "\n".join(lines or [f"nothing is followed into {printable(into)}"]))


@contextmanager
def _ending(follower: LogFollower | JournalFollower) -> Iterator[None]:
    """End the follower at SIGTERM and SIGINT, after the commit under way; a second signal ends the process.

    The service manager is notified of both ends of the block.
    """

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        follower.stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    service_manager.begin(in_foreground=True)
    service_manager.notify_ready()
    try:
        yield
    finally:
        service_manager.notify_stopping()
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
