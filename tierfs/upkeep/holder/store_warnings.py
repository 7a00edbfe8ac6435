"""Problems of a store that stay until they are solved: its cold tier, its clock and its fence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tierfs.base.system.clock import TOLERANCE_S, ClockReading
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError, WrongColdTier
from tierfs.engine.metadata import allowed_places, store_ownership
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.journal_state import JournalState
from tierfs.engine.metadata.records import LocationRecord, StoreRecord
from tierfs.tiering import quota
from tierfs.tiering.garbage.clocks import ACCEPT
from tierfs.upkeep.holder.problem import Problem, ProblemKind

# What to do about the place of the cold tier.
ADD_PLACE = "to add one: tierfs config cold.url=URL"
OTHER_DISK = "to move it: tierfs move --to DIR-ON-ANOTHER-DISK"
RECONNECT = "restore the connection; appends continue meanwhile"
RESTORE_PLACE = "mount it, or restore the directory"

_SAVE = "save the bytes that are only on this disk: tierfs status lists them, each with its command"

_ONLY_COPY = "there is no cold tier: this disk has the only copy"
_SAME_DISK = "the cold tier is on the store's own filesystem: it does not protect against losing the disk"

# Kinds whose sentence has the remedy at its end, in `warnings`.
_JOINED = {ProblemKind.WRONG_COLD_TIER: "; ", ProblemKind.QUOTA: "; ", ProblemKind.CLOCK: ": "}


def standing_problems(
    store: Path, location: LocationRecord | None, record: StoreRecord, unknown_owner: TierfsError | None
) -> Iterator[Problem]:
    """Yield the problems of the fence and the cold tier; `unknown_owner` is the error of asking for the owner."""
    if record.journal.fenced_by_epoch:
        fence = store_ownership.fenced(record)
        if store_ownership.is_old_backup(record) or record.journal.fencer.moved_to:
            yield Problem(ProblemKind.OLD_COPY, str(fence), fence.remedy or "")
        else:
            yield Problem(ProblemKind.FENCED, str(fence), _SAVE)
    if isinstance(unknown_owner, WrongColdTier):
        yield Problem(ProblemKind.WRONG_COLD_TIER, str(unknown_owner), unknown_owner.remedy or "")
    elif unknown_owner is not None:
        text = f"whether the bucket is still this store's is unknown: {unknown_owner}"
        yield Problem(ProblemKind.OWNER_UNKNOWN, text, RECONNECT)
    elif record.journal.wrong_place:
        text, _, remedy = record.journal.wrong_place.partition("; ")
        yield Problem(ProblemKind.WRONG_COLD_TIER, text, remedy)
    shared = shared_filesystem_warning(store, location.url if location is not None else None)
    if shared is not None:
        kind, remedy = of_place(shared)
        yield Problem(kind, shared, remedy)
    advisory = advisory_fence_warning(location)
    if advisory:
        yield Problem(ProblemKind.WEAK_FENCE, advisory, "let only one machine open the store")
    for kept in kept_objects_warning(location, record.journal):
        yield Problem(ProblemKind.NO_DELETIONS, kept, "with a key that has the permission: tierfs gc --delete")


def refused_places(places: Iterable[LocationRecord], allowed: str) -> Iterator[Problem]:
    """Yield the places that only the journal names and this host does not allow: a new owner could not read there."""
    for place in places:
        refused = allowed_places.refusal(place, allowed)
        if refused is not None:
            yield Problem(ProblemKind.NOT_ALLOWED, str(refused), refused.remedy or "")


def as_warning(problem: Problem) -> str:
    """Return a problem as one line: some have their remedy in the sentence."""
    joined = _JOINED.get(problem.kind)
    return problem.text if joined is None else f"{problem.text}{joined}{problem.remedy}"


def quota_problem(use: quota.ColdUse, refused: FailureRecord | None) -> list[Problem]:
    """Return that nothing is offloaded any more, if the quota of the cold tier is why."""
    if not use.keeps_out(refused):
        return []
    text = f"the cold tier has {use}: offloading is paused; the local disk will fill up"
    return [Problem(ProblemKind.QUOTA, text, quota.REMEDY)]


def clock_problem(now: ClockReading, record: StoreRecord) -> list[Problem]:
    """Return why timed deletions wait although nothing fails: the clock was set, back or ahead, since a change."""
    behind_s = (record.last_wall_ms - now.wall_ms) // 1000
    ahead_s = (record.clock_seen.ahead_ms(now) or 0) // 1000
    if behind_s > TOLERANCE_S:
        off = f"{behind_s:,} s earlier than the store's newest change"
    elif ahead_s > TOLERANCE_S:
        off = f"{ahead_s:,} s later than the time since this machine's boot"
    else:
        return []
    return [Problem(ProblemKind.CLOCK, f"the clock is {off}", f"set it, or if it is right now: {ACCEPT}")]


def of_place(warning: str) -> tuple[ProblemKind, str]:
    """Return the kind and the remedy of a warning of `shared_filesystem_warning`."""
    if warning == _ONLY_COPY:
        return ProblemKind.NO_COLD_TIER, ADD_PLACE
    if warning == _SAME_DISK:
        return ProblemKind.SAME_DISK, OTHER_DISK
    return ProblemKind.COLD_TIER_AWAY, RESTORE_PLACE


def advisory_fence_warning(location: LocationRecord | None) -> str | None:
    """Return why a second owner of the bucket would go unnoticed, or None."""
    if location is None or location.create_only_put:
        return None
    if location.url.startswith("s3:"):
        return "the server ignores If-None-Match: two owners of one bucket are not prevented"
    return "the place overwrites existing names: only an advisory lease prevents two owners"


def kept_objects_warning(location: LocationRecord | None, state: JournalState | None = None) -> list[str]:
    """Return what stays in the bucket because the key may not delete."""
    if state is not None and state.superseded_kept:
        kept = f"{state.superseded_kept:,} superseded objects of the journal"
        return [f"{kept} cannot be deleted, and are listed by tierfs gc: {state.superseded_error}"]
    if location is None or not location.keeps_objects:
        return []
    return [
        "the key has no permission to delete: removed or superseded objects stay in the bucket, "
        "and are listed by tierfs gc"
    ]


def shared_filesystem_warning(store: Path, cold_url: str | None) -> str | None:
    """Return why a cold tier in a directory is no protection, or None."""
    if cold_url is None:
        return _ONLY_COPY
    if not cold_url.startswith("file:"):
        return None
    cold = store / names.to_os(cold_url.removeprefix("file:"))
    try:
        shared = os.stat(store).st_dev == os.stat(cold).st_dev
    except OSError as exc:
        return f"cannot access the cold tier {cold}: {exc.strerror}"
    if shared:
        return _SAME_DISK
    return None
