"""Warnings of a store: its cold tier, its clock and its fence."""

from __future__ import annotations

import os
from pathlib import Path

from tierfs.base.system.clock import TOLERANCE_S, ClockReading
from tierfs.base.words import names
from tierfs.base.words.errors import TierfsError, WrongColdTier
from tierfs.engine.metadata import store_ownership
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.journal_state import JournalState
from tierfs.engine.metadata.records import LocationRecord, StoreRecord
from tierfs.tiering import quota
from tierfs.tiering.garbage.clocks import ACCEPT


def standing_warnings(
    store: Path, location: LocationRecord | None, record: StoreRecord, unknown_owner: TierfsError | None
) -> tuple[str, ...]:
    """Return the warnings of the fence and the cold tier; `unknown_owner` is the error of asking for the owner."""
    warnings: list[str] = []
    if record.journal.fenced_by_epoch:
        warnings.append(str(store_ownership.fenced(record)))
    cold_url = location.url if location is not None else None
    if isinstance(unknown_owner, WrongColdTier):
        warnings.append(f"{unknown_owner}; {unknown_owner.remedy}")
    elif unknown_owner is not None:
        warnings.append(f"whether the bucket is still this store's is unknown: {unknown_owner}")
    elif record.journal.wrong_place:
        warnings.append(record.journal.wrong_place)
    shared = shared_filesystem_warning(store, cold_url)
    if shared:
        warnings.append(shared)
    advisory = advisory_fence_warning(location)
    if advisory:
        warnings.append(advisory)
    warnings += kept_objects_warning(location, record.journal)
    return tuple(warnings)


def quota_warning(use: quota.ColdUse, refused: FailureRecord | None) -> list[str]:
    """Return that nothing is offloaded any more, if the quota of the cold tier is why."""
    if not use.keeps_out(refused):
        return []
    return [f"the cold tier has {use}: offloading is paused; the local disk will fill up; {quota.REMEDY}"]


def clock_warning(now: ClockReading, record: StoreRecord) -> list[str]:
    """Return why timed deletions wait although nothing fails: the clock was set, back or ahead, since a change."""
    behind_s = (record.last_wall_ms - now.wall_ms) // 1000
    ahead_s = (record.clock_seen.ahead_ms(now) or 0) // 1000
    if behind_s > TOLERANCE_S:
        off = f"{behind_s:,} s earlier than the store's newest change"
    elif ahead_s > TOLERANCE_S:
        off = f"{ahead_s:,} s later than the time since this machine's boot"
    else:
        return []
    return [f"the clock is {off}: set it, or if it is right now: {ACCEPT}"]


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
        return "there is no cold tier: this disk has the only copy"
    if not cold_url.startswith("file:"):
        return None
    cold = store / names.to_os(cold_url.removeprefix("file:"))
    try:
        shared = os.stat(store).st_dev == os.stat(cold).st_dev
    except OSError as exc:
        return f"cannot access the cold tier {cold}: {exc.strerror}"
    if shared:
        return "the cold tier is on the store's own filesystem: it does not protect against losing the disk"
    return None
