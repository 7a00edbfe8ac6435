"""The problems of a store, from its status: one list for all its reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from tierfs.base.system.mounts import SILENT, SILENT_REMEDY, MountState
from tierfs.base.words import units
from tierfs.base.words.names import printable
from tierfs.tiering.garbage.clocks import ACCEPT
from tierfs.upkeep.holder.failures import CLOCKS, LOOK, OWNER, QUOTA
from tierfs.upkeep.holder.problem import Problem, ProblemKind, worst_first
from tierfs.upkeep.holder.store_warnings import RECONNECT, RESTORE_PLACE

if TYPE_CHECKING:
    from tierfs.engine.metadata.holder_records import FailureRecord
    from tierfs.reading.spending import UserBudget
    from tierfs.upkeep.holder.status import StoreStatus

_DAMAGE = "DataLoss"
_NOT_OURS = "WrongColdTier"
_MS_PER_S = 1000

# Longer than a round of background work with its longest pause between attempts, 5 minutes (a guess).
_UNPUBLISHED_S = 600

# Of bytes that are late: more than an upload with its retries takes (a guess).
_LATE_S = 3600

_REMEDIES = {
    ProblemKind.DAMAGED: "to list the damage: tierfs check; to repair: tierfs check --read --repair",
    ProblemKind.UNREADABLE_RECORDS: "tierfs check, then with the mount or daemon stopped: tierfs check --repair",
    ProblemKind.CLOCK: f"set the clock: timedatectl; if it is right now: {ACCEPT}",
    ProblemKind.OWNER_UNKNOWN: RECONNECT,
    ProblemKind.WRONG_COLD_TIER: RESTORE_PLACE,
    ProblemKind.STUCK: "fix the cause in the error; the work then continues automatically",
}

_START = "start a mount (tierfs mount) or a daemon (tierfs daemon)"


def problems_of(
    status: StoreStatus,
    *,
    floor_bytes: int,
    now_ms: int,
    mounts: Mapping[str, MountState] | None = None,
    waiting: Iterable[str] = (),
    budgets: Iterable[UserBudget] = (),
) -> list[Problem]:
    """Return the problems of a store and its mounts, worst first.

    `floor_bytes`: free space below which appends fail; `mounts` by mount point; `waiting`: sentences about reads that
    wait; `budgets`: what users have read.
    """
    return worst_first(
        [
            *status.standing,
            *_bytes(status),
            *_disk(status, floor_bytes),
            *_work(status),
            *_journal(status, now_ms),
            *_failures(status.troubles, {problem.kind for problem in status.standing}),
            *_deletions(status),
            *_gaps(status),
            *_standby(status),
            *_budgets(budgets),
            *_mounts(mounts or {}),
            *(Problem(ProblemKind.READS_WAIT, text, "check the server or the disk") for text in waiting),
        ]
    )


def _bytes(status: StoreStatus) -> Iterator[Problem]:
    """Yield what cannot be read, or not from every copy."""
    endangered = status.endangered
    if endangered.lost_bytes:
        text = f"{units.size(endangered.lost_bytes)} without a verified copy"
        yield Problem(ProblemKind.LOST, text, "to list them: tierfs check")
    if endangered.suspect_bytes:
        tiers = {"local": endangered.suspect_local_bytes, "cold": endangered.suspect_cold_bytes}
        parts = [f"{units.size(suspect_bytes)} {tier}" for tier, suspect_bytes in tiers.items() if suspect_bytes]
        text = f"{' and '.join(parts)}: a copy was missing or damaged"
        remedy = "to check again: tierfs check /; to repair: tierfs check --read --repair"
        yield Problem(ProblemKind.SUSPECT, text, remedy)
    for place in endangered.unreachable:
        text = f"{units.size(place.bytes)} in {printable(place.url)}: {place.why}"
        yield Problem(ProblemKind.NOT_REACHABLE, text, "mount it, then: tierfs check /")


def _disk(status: StoreStatus, floor_bytes: int) -> Iterator[Problem]:
    if status.local_free_bytes < floor_bytes:
        free, floor = units.size(status.local_free_bytes), units.size(floor_bytes)
        text = f"{free} free on the disk: appends fail below {floor}"
        yield Problem(ProblemKind.DISK_FULL, text, "free space there, or drop local copies: tierfs evict")


def _work(status: StoreStatus) -> Iterator[Problem]:
    """Yield what waits although nothing failed."""
    if status.cold_url is None or status.journal.fenced_by_epoch or status.journal.replica:
        return
    backlog = status.backlog
    waits = backlog.pending_bytes + backlog.active_bytes
    if status.holder is None and (waits or status.journal.unpublished):
        parts = [f"{units.size(waits)} to offload"] if waits else []
        if status.journal.unpublished:
            parts.append(f"{units.count(status.journal.unpublished, 'change')} of the metadata")
        text = f"no process does the background work: {' and '.join(parts)} are only on this disk"
        yield Problem(ProblemKind.NO_HOLDER, text, _START)
    if backlog.late_s >= _LATE_S:
        text = f"the oldest byte that should be offloaded is {units.format_duration(_hours(backlog.late_s))} late"
        yield Problem(
            ProblemKind.OFFLOAD_LATE, text, "see the reason: tierfs info SEGMENT; or offload now: tierfs offload"
        )
    if status.overdue_bytes:
        text = f"{units.size(status.overdue_bytes)} kept after their retention: {status.overdue_reason}"
        yield Problem(
            ProblemKind.OVERDUE, text, "offload them: tierfs offload; or change the policy: tierfs config PATH"
        )


def _hours(length_s: int) -> int:
    """Return a time in whole hours, for people."""
    return length_s // 3600 * 3600


def _journal(status: StoreStatus, now_ms: int) -> Iterator[Problem]:
    """Yield that a running holder does not publish; without one, `_work` has the changes."""
    journal = status.journal
    if status.holder is None or journal.fenced_by_epoch or journal.replica or not journal.queued_ms:
        return
    since_ms = max(journal.queued_ms, status.holder.since_ms)
    if now_ms - since_ms >= _UNPUBLISHED_S * _MS_PER_S:
        minutes = (now_ms - since_ms) // (60 * _MS_PER_S)
        changes = units.count(journal.unpublished, "change")
        text = f"{changes} of the metadata are not in the cold tier since {minutes} min; a recovery would lack them"
        yield Problem(ProblemKind.UNPUBLISHED, text, "see the stuck work below, or publish now: tierfs offload")


def _failures(rows: Iterable[FailureRecord], standing: Set[ProblemKind]) -> Iterator[Problem]:
    """Yield one problem for all failed work of a kind, with the error of the first; what is `standing` says more."""
    by_kind: dict[ProblemKind, list[FailureRecord]] = {}
    for row in rows:
        by_kind.setdefault(_kind_of(row), []).append(row)
    for kind, failed in by_kind.items():
        if kind in standing or kind is ProblemKind.QUOTA:  # once more fits, the holder forgets what was refused
            continue
        others = f" (and {units.count(len(failed) - 1, 'other')})" if len(failed) > 1 else ""
        what = printable(failed[0].name or failed[0].what)
        yield Problem(kind, f"{what}: {printable(failed[0].error)}{others}", _REMEDIES[kind])


def _kind_of(row: FailureRecord) -> ProblemKind:
    if row.what == QUOTA:
        return ProblemKind.QUOTA
    if row.what == CLOCKS:
        return ProblemKind.CLOCK
    if row.what == OWNER:
        return ProblemKind.WRONG_COLD_TIER if row.error_kind == _NOT_OURS else ProblemKind.OWNER_UNKNOWN
    if row.what.startswith(f"{LOOK} "):
        return ProblemKind.UNREADABLE_RECORDS
    return ProblemKind.DAMAGED if row.error_kind == _DAMAGE else ProblemKind.STUCK


def _deletions(status: StoreStatus) -> Iterator[Problem]:
    if status.garbage_errors:
        text = f"objects cannot be deleted: {printable(status.garbage_errors[0])}"
        yield Problem(ProblemKind.GARBAGE_KEPT, text, "check the permissions of the bucket")


def _gaps(status: StoreStatus) -> Iterator[Problem]:
    """Yield one problem for all gaps in followed logs, with the newest."""
    if status.gaps:
        gap = status.gaps[-1]
        others = f" (and {units.count(len(status.gaps) - 1, 'other gap')})" if len(status.gaps) > 1 else ""
        text = (
            f"{printable(gap.segment)}: lines may be missing before offset {gap.offset}: {printable(gap.why)}{others}"
        )
        yield Problem(ProblemKind.GAP, text, "keep more rotated files, or run tierfs follow all the time")


def _budgets(budgets: Iterable[UserBudget]) -> Iterator[Problem]:
    """Yield one problem for all users who have spent their budget, with the one who waits longest."""
    spent = [budget for budget in budgets if budget.wait_s]
    if spent:
        from tierfs.reading.spending import spent_error

        others = f" (and {units.count(len(spent) - 1, 'other user')})" if len(spent) > 1 else ""
        error = spent_error(spent[0])
        yield Problem(ProblemKind.READ_BUDGET, f"{error}{others}", error.remedy or "")


def _standby(status: StoreStatus) -> Iterable[Problem]:
    if not status.standby.after_s:
        return ()
    from tierfs.upkeep.holder.standby_problems import standby_problems

    return standby_problems(status)


def _mounts(states: Mapping[str, MountState]) -> Iterator[Problem]:
    for path, state in states.items():
        point = printable(path)
        if state is MountState.DEAD:
            text = f"{point}: its process has exited; every access below it fails"
            yield Problem(ProblemKind.STALE_MOUNT, text, f"tierfs umount {point}")
        elif state is MountState.SILENT:
            yield Problem(ProblemKind.SILENT_MOUNT, f"{point}: its process {SILENT}", f"{SILENT_REMEDY} {point}")
        elif state is MountState.COVERED:
            text = f"{point}: another filesystem is mounted over it"
            yield Problem(ProblemKind.COVERED_MOUNT, text, f"see: findmnt {point}; umount {point}")
