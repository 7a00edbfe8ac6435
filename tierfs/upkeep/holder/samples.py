"""The sampled metrics of a store: its status in figures, its problems by kind, and what its process knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tierfs
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.metrics import MetricName, Sampled
from tierfs.base.system.mounts import state_of
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import followed
from tierfs.engine.metadata.store import MetadataStore
from tierfs.upkeep.holder.lock import mounts_of
from tierfs.upkeep.holder.problem import ProblemKind
from tierfs.upkeep.holder.problems import problems_of
from tierfs.upkeep.holder.standby_note import Phase
from tierfs.upkeep.holder.status import BacklogStatus, StoreStatus, age_s, store_status

if TYPE_CHECKING:
    from tierfs.reading.spending import UserBudget

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Watched:
    """A store that is sampled."""

    metadata: MetadataStore
    files: ChunkFiles
    path: Path
    holder_path: Path
    floor_bytes: Callable[[], int]
    """Free space below which appends fail, by the settings of now."""
    allowed: Callable[[], str]
    """The setting cold.allowed_locations of now."""
    budgets: Callable[[], Sequence[UserBudget]]
    """The budgets of users who have spent any of them, as far as it was saved."""


def samples_of(
    store: Watched, *, holds: bool, backlog: BacklogStatus | None, uptime_s: float, waiting: Iterable[str] = ()
) -> dict[MetricName, Sampled]:
    """Return the sampled metrics of a process that may hold the store. In any thread; it asks the store's mounts.

    `waiting`: sentences about reads of this process that wait. Asks no server, and reads no record of a segment.
    """
    now_ms, floor_bytes, allowed = store.metadata.clock.now_ms(), store.floor_bytes(), store.allowed()
    status = store_status(store.metadata, store.files, store.holder_path, store.path, allowed=allowed, brief=True)
    mounts = {str(mount.mountpoint): state_of(mount) for mount in mounts_of(store.path)}
    budgets = store.budgets()
    problems = problems_of(
        status, floor_bytes=floor_bytes, now_ms=now_ms, mounts=mounts, waiting=waiting, budgets=budgets
    )
    by_kind = dict.fromkeys(map(str, ProblemKind), 0.0)
    for problem in problems:
        by_kind[problem.kind] += 1
    with store.metadata.read() as txn:
        gaps = followed.gap_count(txn)
    samples: dict[MetricName, Sampled] = {
        MetricName.BUILD_INFO: {tierfs.__version__: 1},
        MetricName.UPTIME: uptime_s,
        MetricName.HOLDER: int(holds),
        MetricName.PROBLEMS: by_kind,
        MetricName.DISK_FLOOR: floor_bytes,
        MetricName.FOLLOW_GAPS: gaps,
        MetricName.BUDGETS_SPENT: sum(budget.wait_s > 0 for budget in budgets),
        **_of_status(status),
    }
    samples |= _of_standby(status, is_blocked=by_kind[ProblemKind.STANDBY_BLOCKED] > 0)
    if (lag := status.follow_lag) is not None:
        samples[MetricName.FOLLOW_LAG_BYTES] = {"all": lag.bytes, "worst": lag.worst_bytes}
        samples[MetricName.FOLLOW_LAG_SECONDS] = lag.longest_s
    if backlog is not None:
        samples[MetricName.BACKLOG_BYTES] = backlog.pending_bytes
        samples[MetricName.BACKLOG_AGE] = age_s(now_ms, backlog)
    return samples


def _of_standby(status: StoreStatus, *, is_blocked: bool) -> dict[MetricName, Sampled]:
    """Return what is known of an owner's silence, by its standby, and by itself if it has one."""
    note, is_standby = status.standby, status.journal.replica
    if not note.after_s or status.journal.fenced_by_epoch or not (is_standby or note.phase is Phase.OWNER):
        return {}
    samples: dict[MetricName, Sampled] = {MetricName.STANDBY_TAKEOVER: note.after_s}
    silent_s = note.silent_s if is_standby else status.standby_age_s
    if silent_s is not None:
        samples[MetricName.STANDBY_SILENT] = silent_s
    if is_standby:
        samples[MetricName.STANDBY_BLOCKED] = int(is_blocked)
    return samples


def _of_status(status: StoreStatus) -> dict[MetricName, Sampled]:
    objects = status.cold_objects
    samples: dict[MetricName, Sampled] = {
        MetricName.HELD: int(status.holder is not None),
        MetricName.STUCK: len(status.troubles),
        MetricName.FENCED: int(status.journal.fenced_by_epoch > 0),
        MetricName.SEGMENTS: status.segments,
        MetricName.TIER_BYTES: {"local": status.local.bytes, "cold": status.cold.bytes},
        MetricName.NOT_OFFLOADED: status.not_offloaded_bytes,
        MetricName.TRASH_BYTES: status.trash.bytes,
        MetricName.GARBAGE_BYTES: status.garbage_bytes,
        MetricName.DISK_FREE: status.local_free_bytes,
        MetricName.UNPUBLISHED: status.journal.unpublished,
        MetricName.LOST_BYTES: status.endangered.lost_bytes,
        MetricName.SUSPECT_BYTES: status.endangered.suspect_bytes,
        MetricName.COLD_OBJECT_BYTES: {"plain": objects.plain_bytes, "stored": objects.stored_bytes},
        MetricName.SAVED_BYTES: status.compressed.saved_bytes,
        MetricName.COLD_USED_BYTES: status.cold_use.bytes,
    }
    if status.cold_use.quota_bytes:
        samples[MetricName.COLD_QUOTA_BYTES] = status.cold_use.quota_bytes
    if status.journal.published_ms:
        samples[MetricName.LAST_PUBLISH] = status.journal.published_ms / _MS_PER_S
    return samples
