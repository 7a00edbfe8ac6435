"""The health of a store at one instant: its status, its mounts, and its problems. Every report begins with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tierfs.app import describe
from tierfs.app.mount_stats import WaitingMount, waiting_at
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.mounts import MountState, state_of
from tierfs.base.words.errors import TierfsError
from tierfs.upkeep.holder.lock import mounts_of
from tierfs.upkeep.holder.problem import Problem
from tierfs.upkeep.holder.problems import problems_of
from tierfs.upkeep.holder.status import StoreStatus, store_status

if TYPE_CHECKING:
    from tierfs.reading.spending import UserBudget


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """A store and its mounts at one instant."""

    report: StoreStatus
    mounts: Mapping[str, MountState]
    waiting: Sequence[WaitingMount]
    problems: Sequence[Problem]
    """Worst first."""
    budgets: Sequence[UserBudget]
    """The hourly budgets of users who have spent any of them."""

    def data(self) -> dict[str, Any]:
        """Return the status for programs."""
        states = {
            "mounts": [*self.mounts],
            "dead_mounts": self.points(MountState.DEAD),
            "silent_mounts": self.points(MountState.SILENT),
            "covered_mounts": self.points(MountState.COVERED),
        }
        return (
            describe.store_status(self.report, self.problems)
            | states
            | {
                "waiting": self.waiting,
                "read_budgets": self.budgets,
            }
        )

    def points(self, wanted: MountState) -> list[str]:
        """Return the mount points of one state."""
        return [point for point, state in self.mounts.items() if state is wanted]


def health_of(store: Store, unknown_owner: TierfsError | None) -> StoreHealth:
    """Look at a store and the mounts of this host; a mount that does not answer takes two seconds.

    `unknown_owner`: what `owner_watch.ask` returned, which asks the bucket.
    """
    allowed = store.settings.cold.allowed_locations
    report = store_status(store.metadata, store.files, store.paths.holder, store.path, unknown_owner, allowed=allowed)
    mounts = {str(mount.mountpoint): state_of(mount) for mount in mounts_of(store.path)}
    alive = [point for point, state in mounts.items() if state is MountState.ALIVE]
    waiting = [reads for point in alive if (reads := waiting_at(point)) is not None]
    budgets = store.limits.budgets
    problems = problems_of(
        report,
        floor_bytes=store.settings.write.free_space_floor_bytes,
        now_ms=store.clock.now_ms(),
        mounts=mounts,
        waiting=map(str, waiting),
        budgets=budgets,
    )
    return StoreHealth(report, mounts, waiting, problems, budgets)
