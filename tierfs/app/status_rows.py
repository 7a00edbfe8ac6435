"""The status of a store as labelled rows of text, by subject, for `tierfs status` and the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tierfs.app.health import StoreHealth
from tierfs.base.system.mounts import SILENT, SILENT_REMEDY, MountState
from tierfs.base.words import units
from tierfs.base.words.names import printable
from tierfs.base.words.stored_size import StoredSize
from tierfs.base.words.texts import clock_time, cold_place, tiers
from tierfs.base.words.types import RequestState
from tierfs.engine.metadata.holder_records import FailureRecord, RequestRecord
from tierfs.engine.segments.endangered import Endangered
from tierfs.upkeep.holder.follow_lag import FollowLag
from tierfs.upkeep.holder.status import (
    AdoptionStatus,
    BacklogStatus,
    FollowStatus,
    GapStatus,
    JournalStatus,
    StoreStatus,
    TierStatus,
)
from tierfs.upkeep.holder.uncompressed import Uncompressed

# A label and a text.
Row = tuple[str, str]

if TYPE_CHECKING:
    from tierfs.reading.spending import UserBudget

_NO_HOLDER = "none running; data moves only when you run a command; to start it: tierfs daemon, or tierfs mount"

# Gaps that are shown, the newest, and budgets.
_MOST_ROWS = 20


def rows(seen: StoreHealth) -> list[Row]:
    """Return all rows."""
    report = seen.report
    return [
        *store_rows(report),
        *tier_rows(report),
        *backlog_rows(report),
        *cold_work_rows(report),
        *holder_rows(report),
        *_endangered(report.endangered),
        *mount_rows(seen),
        *failure_rows(report),
    ]


def store_rows(report: StoreStatus) -> list[Row]:
    """Return the store, its cold tier and the number of its names."""
    return [
        ("store", f"{printable(report.path)} ({report.store_id}, epoch {report.store_epoch})"),
        ("cold tier", cold_place(report.cold_url, Path(report.path)) + _address(report.cold_address)),
        *([("archive place", printable(report.archive_url))] if report.archive_url else []),
        ("names", f"{units.count(report.segments, 'segment')} in {units.count(report.directories, 'directory')}"),
        ("bytes", units.size(report.bytes)),
    ]


def tier_rows(report: StoreStatus) -> list[Row]:
    """Return what each tier has."""
    return [
        ("local", f"{_tier(report.local)}; {units.size(report.local_free_bytes)} free on the disk"),
        ("cold", _tier(report.cold)),
        *([("compressed", _compressed(report.compressed))] if report.compressed.plain_bytes else []),
        *([("archive", _archived(report))] if report.archived_objects else []),
        *([("cold quota", _use(report))] if report.cold_use.quota_bytes else []),
    ]


def backlog_rows(report: StoreStatus) -> list[Row]:
    """Return the bytes that are on the local disk alone, and why."""
    reasons = [("waits" if row.kind.moves else "stays", row) for row in report.backlog.reasons]
    return [
        ("not offloaded", units.size(report.not_offloaded_bytes)),
        *((moves, f"{units.size(row.bytes)}: {printable(row.why)}") for moves, row in reasons),
        ("oldest not offloaded", _oldest(report.backlog)),
    ]


def cold_work_rows(report: StoreStatus) -> list[Row]:
    """Return what is on its way to the cold tier, or out of it."""
    left = f", {report.uploads_left} to clean up after a process that was killed" if report.uploads_left else ""
    return [
        ("journal", _journal(report)),
        ("uploads", f"{report.uploads_in_flight} in flight{left}"),
        ("garbage", f"{units.count(report.garbage, 'object')}, {units.size(report.garbage_bytes)}"),
        *([("not compressed", _uncompressed(report.uncompressed))] if report.uncompressed.bytes else []),
    ]


def holder_rows(report: StoreStatus) -> list[Row]:
    """Return the process that does the background work, and what it repeats and will delete."""
    shown = [("background work", str(report.holder or _NO_HOLDER))]
    shown += _standby_rows(report)
    trash = report.trash
    if trash.removals:
        due = clock_time(trash.next_due_ms)
        shown.append(("trash", f"{units.count(trash.segments, 'segment')}, {tiers(trash)}; next deletion {due}"))
    if report.next_expiry_ms:
        shown.append(("next expiry", f"{clock_time(report.next_expiry_ms)}, by retention_age"))
    if report.overdue_bytes:
        overdue = f"{units.size(report.overdue_bytes)} kept after their retention: {report.overdue_reason}"
        shown.append(("overdue", overdue))
    shown += [("adopts", _adoption(adoption, held=report.holder is not None)) for adoption in report.adoptions]
    shown += [("follows", _follow(each, held=report.holder is not None)) for each in report.follows]
    shown += [("follow lag", _lag(lag)) for lag in (report.follow_lag,) if lag is not None and lag.lagging]
    shown += [("gap", _gap(gap)) for gap in report.gaps[-_MOST_ROWS:]]
    return shown


def _standby_rows(report: StoreStatus) -> Iterator[Row]:
    note, is_replica = report.standby, report.journal.replica
    if not note.after_s and note.taken is None:
        return
    from tierfs.app.standby_rows import after_takeover, summary

    if not report.journal.fenced_by_epoch:
        for line in summary(note, report.standby_age_s, is_replica=is_replica, is_held=report.holder is not None):
            yield "standby", line
    if note.taken is not None and not is_replica:
        yield "takeover", after_takeover(note.taken)


def mount_rows(seen: StoreHealth) -> list[Row]:
    """Return the mounts of this host, and the reads that wait."""
    return [
        *(("mount", printable(point)) for point in seen.points(MountState.ALIVE)),
        *(("waiting", str(reads)) for reads in seen.waiting),
        *map(_budget, seen.budgets[:_MOST_ROWS]),
        *(
            ("stale mount", f"{printable(point)}: its process has exited: tierfs umount {point}")
            for point in seen.points(MountState.DEAD)
        ),
        *(
            ("silent mount", f"{printable(point)}: its process {SILENT}: {SILENT_REMEDY} {point}")
            for point in seen.points(MountState.SILENT)
        ),
        *(
            ("covered mount", f"{printable(point)}: another filesystem is mounted over it")
            for point in seen.points(MountState.COVERED)
        ),
    ]


def failure_rows(report: StoreStatus) -> list[Row]:
    """Return the work that failed or was requested, and the deletions that failed."""
    return [
        *(("stuck", failure_text(failure)) for failure in report.troubles),
        *(("request", request_text(request)) for request in report.requests),
        *(("garbage error", printable(error)) for error in report.garbage_errors),
    ]


def _archived(report: StoreStatus) -> str:
    return f"{units.size(report.archived_bytes)} of the cold bytes in {units.count(report.archived_objects, 'object')}"


def _uncompressed(plain: Uncompressed) -> str:
    held = f"{units.size(plain.bytes)} in {units.count(plain.segments, 'segment')}"
    least = "" if plain.is_all else "at least "
    return f"{least}{held}, against their policy; to compress them: tierfs consolidate --compress"


def _adoption(adoption: AdoptionStatus, *, held: bool) -> str:
    next_ms = adoption.last_ms + adoption.every_s * 1000
    when = f"next {clock_time(next_ms)}" if held else "waits for a mount or daemon: tierfs mount, tierfs daemon"
    if not adoption.allowed:
        when = "paused since the recovery of the store: run tierfs adopt to continue"
    every = units.format_duration(adoption.every_s)
    place = f"{printable(adoption.url)} as {adoption.layout} into {printable(adoption.into)}"
    return f"{place} every {every}; last {clock_time(adoption.last_ms)}, {when}"


def _follow(follow: FollowStatus, *, held: bool) -> str:
    waits = "" if held else ", waits for a mount or daemon: tierfs mount, tierfs daemon"
    return f"{printable(follow.path)} into {printable(follow.into) or '/'}{waits}"


def _lag(lag: FollowLag) -> str:
    waits = f", waiting for {units.format_duration(round(lag.longest_s))}" if lag.longest_s >= 1 else ""
    worst = f"{units.size(lag.worst_bytes)} of {printable(lag.worst)}"
    return f"{units.size(lag.bytes)} of {lag.lagging} of {units.count(lag.logs, 'log')}{waits}; most: {worst}"


def _budget(budget: UserBudget) -> tuple[str, str]:
    from tierfs.reading.spending import name_of, told

    return "read budget", f"{printable(name_of(budget.uid))}: {told(budget)}"


def _gap(gap: GapStatus) -> str:
    when = clock_time(gap.since_ms)
    return f"{printable(gap.segment)}: lines may be missing before offset {gap.offset}, {when}: {printable(gap.why)}"


def _endangered(endangered: Endangered) -> Iterator[tuple[str, str]]:
    """Yield rows for lost, suspect and unreachable bytes, if there are any."""
    if endangered.lost_bytes:
        yield "lost", f"{units.size(endangered.lost_bytes)}, without a verified copy; to list them: tierfs check"
    if endangered.suspect_bytes:
        local, cold = units.size(endangered.suspect_local_bytes), units.size(endangered.suspect_cold_bytes)
        advice = "to check again: tierfs check /; to repair: tierfs check --read --repair"
        yield "suspect", f"{local} local, {cold} cold: a copy was missing or damaged; {advice}"
    for place in endangered.unreachable:
        yield "not reachable", f"{units.size(place.bytes)} in {printable(place.url)}: {place.why}"


def _use(report: StoreStatus) -> str:
    use = report.cold_use
    parts = f"{units.size(use.object_bytes)} of objects, {units.size(use.garbage_bytes)} not deleted yet"
    making = f", {units.size(use.making_bytes)} being uploaded" if use.making_bytes else ""
    return f"{units.size(use.bytes)} of {units.size(use.quota_bytes)}: {parts}{making}"


def _oldest(backlog: BacklogStatus) -> str:
    if not (backlog.pending_bytes or backlog.active_bytes):
        return "-"
    waiting, active = units.size(backlog.pending_bytes), units.size(backlog.active_bytes)
    since = f"since {clock_time(backlog.oldest_ms)}; " if backlog.oldest_ms else ""
    return f"{since}{waiting} wait to be offloaded, {active} in active chunks"


def failure_text(failure: FailureRecord) -> str:
    """Describe work that failed in one line."""
    size = f" ({units.size(failure.bytes)})" if failure.bytes else ""
    times = units.count(failure.attempts, "time")
    since = clock_time(failure.since_ms)
    verb, _, rest = failure.what.partition(" ")
    _, has_start, start = rest.rpartition(" ")
    what = f"{verb} {failure.name}" + (f" from {start}" if has_start else "") if failure.name else failure.what
    failed = f"failed {times} since" if failure.attempts else "since"  # nothing was tried: it was noticed
    return f"{printable(what)}{size}: {failed} {since}: {printable(failure.error)}"


def request_text(request: RequestRecord) -> str:
    """Describe work that was requested in one line."""
    state = RequestState(request.state).name.lower()
    done = f", {units.size(request.done_bytes)} of {units.size(request.total_bytes)}" if request.total_bytes else ""
    if request.total_items:
        done = f", {request.done_items:,} of {units.count(request.total_items, request.noun)}{done}"
    return f"{request.id}: {request.verb} {printable(request.path) or '/'}: {state}{done}"


def _address(address: Mapping[str, str]) -> str:
    """Return where the server of the place is; nothing for a directory and for AWS by its defaults."""
    endpoint = f" at {printable(address['endpoint_url'])}" if "endpoint_url" in address else ""
    others = [f"{name} {printable(address[name])}" for name in ("region", "profile") if name in address]
    return endpoint + (f" ({', '.join(others)})" if others else "")


def _tier(tier: TierStatus) -> str:
    return f"{units.size(tier.bytes)} in {units.count(tier.chunks, 'chunk')}"


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
    changes = units.count(journal.unpublished, "change")
    how = (
        ""
        if report.holder or journal.fenced_by_epoch
        else ": to write them, run tierfs offload, or start a mount or daemon"
    )
    return f"{changes} not in the cold tier yet{how} ({place})"


def _compressed(held: StoredSize) -> str:
    return f"{units.size(held.plain_bytes)} of the cold objects, {held}; saves {units.size(held.saved_bytes)}"


def _fencer(journal: JournalStatus) -> str:
    """Return the owner that fenced the store, as far as known."""
    if journal.old_backup:
        return " of its own (this store is an old backup, or a copy of it is in use)"
    host = f" on {printable(journal.fencer.host)}" if journal.fencer.host else ""
    since = f" since {clock_time(journal.fencer.since_ms)}" if journal.fencer.since_ms else ""
    return host + since
