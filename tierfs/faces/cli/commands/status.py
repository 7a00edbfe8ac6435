"""Define tierfs status: `ok` or the problems, then the state. `--check` reduces it to a line and an exit code.

For a fenced store it adds the ranges of bytes that only its disk holds, each with the command that exports it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierfs.app import describe
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.mounts import SILENT, SILENT_REMEDY, MountState, state_of
from tierfs.base.words import units
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import RequestState
from tierfs.faces.cli import output
from tierfs.faces.cli.commands.status_watch import watch
from tierfs.faces.cli.drawing import live
from tierfs.faces.cli.drawing.problems import check_line, failed_line, head
from tierfs.faces.cli.group import command
from tierfs.faces.cli.mount_stats import WaitingMount, waiting_at
from tierfs.faces.cli.output import cold_place
from tierfs.faces.cli.parameter_types import Duration
from tierfs.faces.cli.session import Session, as_json
from tierfs.upkeep.holder.lock import mounts_of
from tierfs.upkeep.holder.problem import Gravity, Problem, worst

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.engine.metadata.holder_records import FailureRecord, RequestRecord
    from tierfs.engine.segments.endangered import Endangered
    from tierfs.upkeep.holder.local_only import LocalOnly
    from tierfs.upkeep.holder.status import (
        AdoptionStatus,
        BacklogStatus,
        FollowStatus,
        GapStatus,
        JournalStatus,
        StoreStatus,
        TierStatus,
    )

_NO_HOLDER = "none running; data moves only when you run a command; to start it: tierfs daemon, or tierfs mount"

# Between two looks of --watch, in seconds, as watch(1) has it.
_INTERVAL_S = "2"

# Ranges in the text output; --json has all.
_SHOWN = 20


def _print_fenced(
    session: Session, data: Mapping[str, Any], text: str, store: Path, ranges: Iterable[LocalOnly]
) -> None:
    """Print the status of a fenced store; ranges are streamed, as there may be many."""
    if session.json:
        click.echo(as_json(data).removesuffix("}") + ', "only_here": [', nl=False)
        for number, run in enumerate(ranges):
            exported = as_json({**output.fields(run), "export": _export(store, run)})
            click.echo((", " if number else "") + exported, nl=False)
        click.echo("]}")
        return
    click.echo(text)
    count = size_bytes = 0
    for run in ranges:
        count, size_bytes = count + 1, size_bytes + run.end - run.start
        if count == 1:
            click.echo("bytes only on this disk; each command writes a range to standard output:")
        if count <= _SHOWN:
            click.echo(f"  {printable(_export(store, run))}")
    if count > _SHOWN:
        click.echo(f"  and {output.count(count - _SHOWN, 'range')} more; all of them: tierfs status --json")
    click.echo(f"only on this disk: {output.size(size_bytes)} in {output.count(count, 'range')}")


def _export(store: Path, run: LocalOnly) -> str:
    """Return the command that writes a range to standard output."""
    command_line = f"tierfs --store {shlex.quote(str(store))} cat {shlex.quote(run.segment)}"
    return f"{command_line} --read-priority local-only --from {run.start} --to {run.end}"


@command("status")
@click.option("--check", is_flag=True, help="Print one line, for cron or Nagios; exit with 0, 1 (warning) or 2.")
@click.option(
    "-w",
    "--watch",
    "interval_s",
    type=Duration(live.SHORTEST_INTERVAL_S),
    is_flag=False,
    flag_value=_INTERVAL_S,
    metavar="[TIME]",
    help=f"Show it again after TIME, in seconds or like 500ms, until q or Ctrl-C.  [default TIME: {_INTERVAL_S}]",
)
def status(session: Session, check: bool, interval_s: float | None) -> None:
    """Show `ok` or the problems, then the store: its tiers, bytes not offloaded yet, the journal, background work.

    The worst problem is first, each with its remedy. --check exits with 0 if all is well, 1 if all problems are
    warnings, and 2 if one is critical or the store cannot be opened.

    --watch shows the status live on a terminal. Without one it is printed again and again; with --json one object per
    line.
    """
    if check:
        if interval_s is not None:
            raise click.UsageError("--check and --watch are mutually exclusive")
        _check(session)
        return
    if interval_s is not None:
        watch(session, interval_s, partial(_seen, session))
        return
    with session.open_store(looks=True) as store:
        seen = _look(store)
        report, text = seen.report, seen.text()
        if not report.journal.fenced_by_epoch:
            session.result(seen.data(), text)
            return
        from tierfs.upkeep.holder.local_only import local_only

        with store.metadata.read() as txn:
            _print_fenced(session, seen.data(), text, store.path, local_only(txn))


def _seen(session: Session) -> tuple[dict[str, Any], str]:
    with session.open_store(looks=True) as store:
        seen = _look(store)
        return seen.data(), seen.text()


def _check(session: Session) -> None:
    """Print the line of --check and exit with its code."""
    try:
        with session.open_store(looks=True) as store:
            seen = _look(store)
    except TierfsError as exc:
        gravity = Gravity.CRITICAL
        remedy = f"; {exc.remedy}" if exc.remedy else ""
        session.result({"check": gravity.label, "error": str(exc), "remedy": exc.remedy}, failed_line(f"{exc}{remedy}"))
    else:
        gravity = worst(seen.problems)
        session.result(seen.data(), check_line(seen.report, seen.problems))
    raise click.exceptions.Exit(int(gravity))


@dataclass(frozen=True, slots=True)
class _Shown:
    """A store and its mounts at one instant."""

    report: StoreStatus
    mounts: Mapping[str, MountState]
    waiting: Sequence[WaitingMount]
    problems: Sequence[Problem]

    def data(self) -> dict[str, Any]:
        """Return the status for programs."""
        states = {
            "mounts": [*self.mounts],
            "dead_mounts": self.points(MountState.DEAD),
            "silent_mounts": self.points(MountState.SILENT),
            "covered_mounts": self.points(MountState.COVERED),
        }
        return describe.store_status(self.report, self.problems) | states | {"waiting": self.waiting}

    def text(self) -> str:
        """Return the status for people."""
        return "\n".join([*head(self.problems, output.painted), "", _status_text(self)])

    def points(self, wanted: MountState) -> list[str]:
        """Return the mount points of one state."""
        return [point for point, state in self.mounts.items() if state is wanted]


def _look(store: Store) -> _Shown:
    from tierfs.upkeep.holder.problems import problems_of
    from tierfs.upkeep.holder.status import store_status

    unknown = store.owner_watch.ask()
    report = store_status(store.metadata, store.files, store.paths.holder, store.path, unknown)
    mounts = {str(mount.mountpoint): state_of(mount) for mount in mounts_of(store.path)}
    alive = [point for point, state in mounts.items() if state is MountState.ALIVE]
    waiting = [reads for point in alive if (reads := waiting_at(point)) is not None]
    problems = problems_of(
        report,
        floor_bytes=store.settings.write.free_space_floor_bytes,
        now_ms=store.clock.now_ms(),
        mounts=mounts,
        waiting=map(str, waiting),
    )
    return _Shown(report, mounts, waiting, problems)


def _status_text(seen: _Shown) -> str:
    """Return the status as a table for people."""
    report = seen.report
    left = f", {report.uploads_left} to clean up after a process that was killed" if report.uploads_left else ""
    reasons = [("waits" if row.kind.moves else "stays", row) for row in report.backlog.reasons]
    rows = [
        ("store", f"{printable(report.path)} ({report.store_id}, epoch {report.store_epoch})"),
        ("cold tier", cold_place(report.cold_url, Path(report.path)) + _address(report.cold_address)),
        ("names", f"{output.count(report.segments, 'segment')} in {output.count(report.directories, 'directory')}"),
        ("bytes", output.size(report.bytes)),
        ("local", f"{_tier(report.local)}; {output.size(report.local_free_bytes)} free on the disk"),
        ("cold", _tier(report.cold)),
        *([("cold quota", _use(report))] if report.cold_use.quota_bytes else []),
        ("not offloaded", output.size(report.not_offloaded_bytes)),
        *((moves, f"{output.size(row.bytes)}: {printable(row.why)}") for moves, row in reasons),
        ("oldest not offloaded", _oldest(report.backlog)),
        ("journal", _journal(report)),
        ("uploads", f"{report.uploads_in_flight} in flight{left}"),
        ("garbage", f"{output.count(report.garbage, 'object')}, {output.size(report.garbage_bytes)}"),
        ("background work", str(report.holder or _NO_HOLDER)),
    ]
    trash = report.trash
    if trash.removals:
        due = output.clock_time(trash.next_due_ms)
        rows.append(("trash", f"{output.count(trash.segments, 'segment')}, {output.tiers(trash)}; next deletion {due}"))
    if report.next_expiry_ms:
        rows.append(("next expiry", f"{output.clock_time(report.next_expiry_ms)}, by retention_age"))
    if report.overdue_bytes:
        overdue = f"{output.size(report.overdue_bytes)} kept after their retention: {report.overdue_reason}"
        rows.append(("overdue", overdue))
    rows += [("adopts", _adoption(adoption, held=report.holder is not None)) for adoption in report.adoptions]
    rows += [("follows", _follow(each, held=report.holder is not None)) for each in report.follows]
    rows += [("gap", _gap(gap)) for gap in report.gaps[-_SHOWN:]]
    rows += _endangered(report.endangered)
    rows += [("mount", printable(point)) for point in seen.points(MountState.ALIVE)]
    rows += [("waiting", str(reads)) for reads in seen.waiting]
    rows += [
        ("stale mount", f"{printable(point)}: its process has exited: tierfs umount {point}")
        for point in seen.points(MountState.DEAD)
    ]
    rows += [
        ("silent mount", f"{printable(point)}: its process {SILENT}: {SILENT_REMEDY} {point}")
        for point in seen.points(MountState.SILENT)
    ]
    rows += [
        ("covered mount", f"{printable(point)}: another filesystem is mounted over it")
        for point in seen.points(MountState.COVERED)
    ]
    rows += [("stuck", _stuck(failure)) for failure in report.troubles]
    rows += [("request", _request(request)) for request in report.requests]
    rows += [("garbage error", printable(error)) for error in report.garbage_errors]
    return output.table(rows)


def _adoption(adoption: AdoptionStatus, *, held: bool) -> str:
    next_ms = adoption.last_ms + adoption.every_s * 1000
    when = f"next {output.clock_time(next_ms)}" if held else "waits for a mount or daemon: tierfs mount, tierfs daemon"
    if not adoption.allowed:
        when = "paused since the recovery of the store: run tierfs adopt to continue"
    every = units.format_duration(adoption.every_s)
    place = f"{printable(adoption.url)} as {adoption.layout} into {printable(adoption.into)}"
    return f"{place} every {every}; last {output.clock_time(adoption.last_ms)}, {when}"


def _follow(follow: FollowStatus, *, held: bool) -> str:
    waits = "" if held else ", waits for a mount or daemon: tierfs mount, tierfs daemon"
    return f"{printable(follow.path)} into {printable(follow.into) or '/'}{waits}"


def _gap(gap: GapStatus) -> str:
    when = output.clock_time(gap.since_ms)
    return f"{printable(gap.segment)}: lines may be missing before offset {gap.offset}, {when}: {printable(gap.why)}"


def _endangered(endangered: Endangered) -> Iterator[tuple[str, str]]:
    """Yield rows for lost, suspect and unreachable bytes, if there are any."""
    if endangered.lost_bytes:
        yield "lost", f"{output.size(endangered.lost_bytes)}, without a verified copy; to list them: tierfs check"
    if endangered.suspect_bytes:
        local, cold = output.size(endangered.suspect_local_bytes), output.size(endangered.suspect_cold_bytes)
        advice = "to check again: tierfs check /; to repair: tierfs check --read --repair"
        yield "suspect", f"{local} local, {cold} cold: a copy was missing or damaged; {advice}"
    for place in endangered.unreachable:
        yield "not reachable", f"{output.size(place.bytes)} in {printable(place.url)}: {place.why}"


def _use(report: StoreStatus) -> str:
    use = report.cold_use
    parts = f"{output.size(use.object_bytes)} of objects, {output.size(use.garbage_bytes)} not deleted yet"
    making = f", {output.size(use.making_bytes)} being uploaded" if use.making_bytes else ""
    return f"{output.size(use.bytes)} of {output.size(use.quota_bytes)}: {parts}{making}"


def _oldest(backlog: BacklogStatus) -> str:
    if not (backlog.pending_bytes or backlog.active_bytes):
        return "-"
    waiting, active = output.size(backlog.pending_bytes), output.size(backlog.active_bytes)
    since = f"since {output.clock_time(backlog.oldest_ms)}; " if backlog.oldest_ms else ""
    return f"{since}{waiting} wait to be offloaded, {active} in active chunks"


def _stuck(failure: FailureRecord) -> str:
    size = f" ({output.size(failure.bytes)})" if failure.bytes else ""
    times = output.count(failure.attempts, "time")
    since = output.clock_time(failure.since_ms)
    verb, _, rest = failure.what.partition(" ")
    _, has_start, start = rest.rpartition(" ")
    what = f"{verb} {failure.name}" + (f" from {start}" if has_start else "") if failure.name else failure.what
    failed = f"failed {times} since" if failure.attempts else "since"  # nothing was tried: it was noticed
    return f"{printable(what)}{size}: {failed} {since}: {printable(failure.error)}"


def _request(request: RequestRecord) -> str:
    state = RequestState(request.state).name.lower()
    done = f", {output.size(request.done_bytes)} of {output.size(request.total_bytes)}" if request.total_bytes else ""
    if request.total_items:
        done = f", {request.done_items:,} of {output.count(request.total_items, request.noun)}{done}"
    return f"{request.id}: {request.verb} {printable(request.path) or '/'}: {state}{done}"


def _address(address: Mapping[str, str]) -> str:
    """Return where the server of the place is; nothing for a directory and for AWS by its defaults."""
    endpoint = f" at {printable(address['endpoint_url'])}" if "endpoint_url" in address else ""
    others = [f"{name} {printable(address[name])}" for name in ("region", "profile") if name in address]
    return endpoint + (f" ({', '.join(others)})" if others else "")


def _tier(tier: TierStatus) -> str:
    return f"{output.size(tier.bytes)} in {output.count(tier.chunks, 'chunk')}"


def _journal(report: StoreStatus) -> str:
    """Return how much of the metadata the cold tier has: what a recovery of the lost store would bring back."""
    journal = report.journal
    if report.cold_url is None:
        return "none: the store has no cold tier"
    if journal.replica:
        return f"a replica, up to slot {journal.slot}"
    place = f"slot {journal.slot}, checkpoint {journal.checkpoint_slot}"
    if journal.fenced_by_epoch:
        place += f"; fenced by epoch {journal.fenced_by_epoch}{_fencer(journal)}"
    if not journal.unpublished:
        return f"up to date ({place})"
    changes = output.count(journal.unpublished, "change")
    how = (
        ""
        if report.holder or journal.fenced_by_epoch
        else ": to write them, run tierfs offload, or start a mount or daemon"
    )
    return f"{changes} not in the cold tier yet{how} ({place})"


def _fencer(journal: JournalStatus) -> str:
    """Return the owner that fenced the store, as far as known."""
    if journal.old_backup:
        return " of its own (this store is an old backup, or a copy of it is in use)"
    host = f" on {printable(journal.fencer.host)}" if journal.fencer.host else ""
    since = f" since {output.clock_time(journal.fencer.since_ms)}" if journal.fencer.since_ms else ""
    return host + since
