"""The work of a store without a cold tier, without the loop that repeats it (loop.py): no trio in commands.

Bytes are kept as long as policy says, sealed segments continue in their successors, removed ones are taken apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierfs.garbage.collect import Collector
from tierfs.garbage.orphans import OrphanFinder
from tierfs.garbage.strays import StrayFiles
from tierfs.parallel import OnProgress, unseen
from tierfs.reading.suspects import Suspects
from tierfs.retention.clocks import ClockCheck
from tierfs.retention.retention import Expired, Retention
from tierfs.segments import delete, trash
from tierfs.segments.engine import Engine
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView
from tierfs.tiering.snapshot import SLICE_S, Snapshots
from tierfs.types import LocationId, Tier

# Nothing can be moved, so that nothing presses.
_ROOMY = DiskView(0, 0, high_used_bytes=1 << 62, high_local_bytes=1 << 62, high_unoffloaded_bytes=1 << 62)


@dataclass(frozen=True, slots=True)
class AloneTools:
    """The components of a holder without a cold tier; made by the composition root."""

    engine: Engine
    collector: Collector
    retention: Retention
    """Does not wait for an offload."""
    clocks: ClockCheck


class AloneWork:
    """The tasks of such a holder. One thread at a time."""

    def __init__(self, tools: AloneTools) -> None:
        self._tools = tools
        self._metadata = tools.engine.metadata
        self._planner = Planner()
        self._snapshots = Snapshots(self._metadata, self._planner)
        self.suspects = Suspects(self._metadata, tools.engine.files, tools.collector.storage_of)
        self._strays = StrayFiles(self._metadata, OrphanFinder(self._metadata, tools.engine.files, None, LocationId(0)))
        self._complete = True
        """Whether the last look saw everything that had changed."""

    def look(self) -> bool:
        """End chunks that are old enough to expire some day, in one slice; return False when more is left to look at.

        Raises what is wrong with a segment once all others were looked at.
        """
        if self._complete:
            self._snapshots.try_again(lambda _: True)
        self._complete = self._snapshots.refresh(slice_s=SLICE_S)
        for segment_id in self._planner.next(_ROOMY, self._metadata.clock.now_ms()).rolls:
            view = self._planner.view_of(segment_id)
            if view is not None and (view.policy.retention_age_s or view.policy.retention_bytes):
                self._tools.engine.roll(segment_id)
        for error in self._snapshots.failed.values() if self._complete else ():
            raise error
        return self._complete

    def collect(self, report: OnProgress = unseen) -> None:
        """End removals that are due if the clock is trusted, take apart what was removed, and delete its files."""
        with self._metadata.read() as txn:
            trash_is_due = trash.is_due(txn, self._metadata.clock.now_ms())
        if trash_is_due and self._tools.clocks.reason() is None:
            trash.end_due(self._metadata)
        delete.dismantle_removed(self._metadata, cold_due_ms=self._metadata.clock.now_ms(), report=report)
        self._tools.collector.collect(tiers=(Tier.LOCAL,), report=report)

    def collect_strays(self) -> bool:
        """Look at a few chunk files for those that killed writers left; return whether more are to be looked at."""
        return self._strays.step() is not None

    def end_lifetimes(self) -> Expired:
        """Seal what policy seals; take away what it no longer keeps, if the clock is trusted."""
        self._tools.retention.seal()
        self._tools.clocks.require()
        return self._tools.retention.expire()
