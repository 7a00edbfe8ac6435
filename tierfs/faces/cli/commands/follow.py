"""Define tierfs follow: append files as they grow, through their rotations."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import service_manager
from tierfs.base.words.errors import TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.follow.follower import LogFollower
    from tierfs.app.follow.journal import JournalFollower
    from tierfs.app.follow.listing import LogState
    from tierfs.app.follow.server import AdminServer
    from tierfs.app.follow.sources import LogSource
    from tierfs.app.follow.summary import FollowSummary
    from tierfs.app.follow.target import FollowTarget
    from tierfs.app.store import Store

_STDERR_FD = 2


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
@click.option("--to", metavar="URL", help="Send to the tierfs admin of another host, as in https://logs.example:9160.")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="TIERFS_TOKEN_FILE",
    help="With --to: the server's token [env: TIERFS_TOKEN_FILE].",
)
@click.option(
    "--ca-bundle",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --to: authorities that the server's certificate may be of, in PEM [default: the system's].",
)
@click.option("--sender", metavar="NAME", help="With --to: the name of this host [default: host name and machine id].")
def follow(session: Session, **typed: Any) -> None:
    """Append files as they grow: each line is in its segment once, through rotation and after a kill.

    A PATH is a file, a directory with all files below it, or a quoted pattern such as '/var/log/*.log'. A file becomes
    DIR/<file name>; one below a directory, or that matches a pattern, DIR/<relative path>. Files that appear later are
    followed too. A rotated file (app.log.1, app.log-20261129.gz) is read to its end, and its log continues in the same
    segment. Rotated files that are older than the first run are not read.

    The place in each file is recorded in the commit that appends its lines. Lines are appended whole; a last one
    without an end after 5 s. The files are never changed. Lines that were deleted before they were read are reported:
    here, in `--list`, and in `tierfs status`.

    Runs until SIGTERM or Ctrl-C. On a full disk it waits for room. With --background the mount or daemon follows until
    --stop; status shows it. With --to the lines go to the store of another host, which has the places in the files too:
    there is no state on this host. It waits while the server does not answer.
    """
    _run(session, _Typed(**typed))


@dataclass(frozen=True, slots=True)
class _Typed:
    """The command line."""

    paths: tuple[str, ...]
    into: str | None
    unit: str | None
    """Of the journal; "" for all of it."""
    journal_directory: str
    once: bool
    background: bool
    stop: bool
    lists: bool
    to: str | None
    token_file: Path | None
    ca_bundle: Path | None
    sender: str | None


def _run(session: Session, typed: _Typed) -> None:
    if typed.once + typed.background + typed.stop + typed.lists > 1:
        raise click.UsageError("use one of --once, --background, --stop, --list")
    if typed.to is None and (typed.ca_bundle is not None or typed.sender is not None):
        raise click.UsageError("--ca-bundle and --sender need --to")
    if typed.to is not None and (typed.background or typed.stop):
        raise click.UsageError("--to supports no --background and --stop: run it as a service (tierfs-follow@.service)")
    if typed.lists:
        if typed.paths:
            raise click.UsageError("--list takes no PATH")
        _list(session, typed)
        return
    if typed.stop:
        if typed.into is None:
            raise click.UsageError("--stop needs --into")
        _stop(session, typed.paths, typed.into)
        return
    if typed.into is None or bool(typed.paths) is (typed.unit is not None):
        raise click.UsageError("specify what to follow, and --into: tierfs follow PATH... --into DIR")
    if typed.background:
        if typed.unit is not None:
            raise click.UsageError("--background does not support --journal: run it as a service")
        _begin_in_background(session, typed.paths, typed.into)
        return
    from tierfs.app.follow.target import TargetUnavailable

    try:
        summary = _follow(session, typed, typed.into)
    except TargetUnavailable as exc:
        remedy = exc.remedy or "start tierfs admin there, or correct --to; the next run continues"
        raise Unavailable(str(exc), remedy=remedy) from exc
    _report(session, summary, fails=typed.once)


def _follow(session: Session, typed: _Typed, into: str) -> FollowSummary:
    """Follow files or the journal, once or until a signal."""
    if not typed.once:
        service_manager.begin(in_foreground=True)
        if typed.to is not None:
            service_manager.notify_ready()  # a service that waits for its server runs
    with _target(session, typed, into) as target, closing(target):
        if typed.unit is not None:
            from tierfs.app.follow.journal import JournalFollower

            journal = JournalFollower(target, typed.unit, target.into, session, directory=typed.journal_directory)
            _run_follower(session, journal, target, typed.unit or "the journal", typed)
            return journal.summary
        from tierfs.app.follow.follower import LogFollower
        from tierfs.app.follow.sources import sources_of

        with closing(LogFollower(target, sources_of(typed.paths), session)) as follower:
            _run_follower(session, follower, target, output.count(len(follower.paths), "file"), typed)
            return follower.summary


def _run_follower(
    session: Session, follower: LogFollower | JournalFollower, target: FollowTarget, what: str, typed: _Typed
) -> None:
    if typed.once:
        follower.run_once()
        return
    session.note(f"following {what} into {printable(typed.into or '/')}; Ctrl-C ends it")
    with _ending(follower), _reloading(session, target):
        follower.run()


@contextmanager
def _target(session: Session, typed: _Typed, into: str) -> Iterator[FollowTarget]:
    """Open the store that the lines go to."""
    stop = threading.Event() if typed.once else service_manager.WatchedStop()
    if typed.to is not None:
        from tierfs.app.follow.remote import RemoteTarget, default_sender

        sender = typed.sender or default_sender()
        yield RemoteTarget(_server(typed), into, sender, session, stop=stop, waits=not typed.once)
        return
    from tierfs.app.follow.local import LocalTarget

    with session.open_store() as store:
        yield LocalTarget(store, store.segment_of_path(into), session, stop=stop)


def _server(typed: _Typed) -> AdminServer:
    from tierfs.app.follow.server import AdminServer, ServerAddress

    return AdminServer(ServerAddress.parse(typed.to or "", typed.token_file, typed.ca_bundle))


def _begin_in_background(session: Session, paths: tuple[str, ...], into: str) -> None:
    """Let the holder of the store follow paths from now on."""
    from tierfs.app.follow.follower import LogFollower
    from tierfs.app.follow.local import LocalTarget
    from tierfs.app.follow.sources import sources_of

    sources = sources_of(paths)
    with session.open_store() as store:
        target = store.segment_of_path(into)
        with closing(LogFollower(LocalTarget(store, target, session), sources, session)) as follower:
            count = len(follower.paths)
            _set_background(store, target, sources, background=True)
        text = f"following {output.count(count, 'file')} into {printable(into)} in the background"
        session.done({"logs": count}, text)
        if not store.is_held:
            session.note("no mount or daemon is running: nothing is appended until one starts")


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
    service_manager.notify_ready()
    try:
        yield
    finally:
        service_manager.notify_stopping()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _reloading(session: Session, target: FollowTarget) -> Iterator[None]:
    """Read settings, credentials and certificates again at SIGHUP, as a mount does; in a terminal it ends as others."""
    if os.isatty(_STDERR_FD) or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        yield
        return

    def reload(_: int, __: Any) -> None:
        service_manager.notify_reloading()
        try:
            target.reload()
        except TierfsError as exc:
            session.warn(f"SIGHUP: reload failed: {exc}")
        service_manager.notify_ready()

    before = signal.signal(signal.SIGHUP, reload)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


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


def _list(session: Session, typed: _Typed) -> None:
    from tierfs.app.follow import listing

    if typed.to is not None:
        from tierfs.app.follow.remote import default_sender

        with closing(_server(typed)) as server:
            rows = listing.states_at(server, typed.into or "", typed.sender or default_sender())
    else:
        with session.open_store(looks=True) as store:
            below = store.segment_of_path(typed.into) if typed.into is not None else ""
            rows = list(listing.states(store, below))
    if session.json:
        session.rows(rows, [])
        return
    cells = [("FILE", "SEGMENT", "LAG", "", "STATE")] if rows else []
    cells += [_cells(row) for row in rows]
    session.rows([], output.lines(cells, "<", "<", ">", ">", "<"))


def _cells(row: LogState) -> tuple[str, str, str, str, str]:
    from tierfs.app.follow.listing import SENT

    lag_s = "" if not row.lag_bytes else f"{row.lag_s or 0:.0f} s"
    lag = "?" if row.lag_bytes is None else output.size(row.lag_bytes)
    state = f"{row.state} by {row.sender}" if row.state == SENT else row.state
    state = state if not row.gaps else f"{state}, {output.count(row.gaps, 'gap')}"
    return printable(row.path), printable(row.segment), lag, lag_s, state
