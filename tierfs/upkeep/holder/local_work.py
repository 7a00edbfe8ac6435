"""The work of any owner's holder, with a cold tier or without one, apart from the loop that repeats it (tasks.py).

Bytes are kept as long as policy says, sealed segments continue in their successors, removed ones are taken apart. It
imports no trio and nothing of the cold tier, so that a command of a store without one starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from tierfs.base.bytes.parallel import Attempts
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.options.config import OffloadSettings
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.words.types import LocationId, Tier
from tierfs.engine.segments import delete, trash
from tierfs.engine.segments.engine import Engine
from tierfs.reading.suspects import Suspects
from tierfs.tiering.garbage import ballast
from tierfs.tiering.garbage.clocks import ClockCheck
from tierfs.tiering.garbage.collect import Collected, Collector
from tierfs.tiering.garbage.orphans import OrphanFinder
from tierfs.tiering.garbage.retention import Expired, Retention
from tierfs.tiering.garbage.strays import StrayFiles
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView
from tierfs.tiering.snapshot import SLICE_S, Snapshots
from tierfs.upkeep.holder.failures import Failures, look

_MS_PER_S = 1000

# Nothing can be moved, so that nothing presses.
_ROOMY = DiskView(0, 0, high_used_bytes=1 << 62, high_local_bytes=1 << 62, high_unoffloaded_bytes=1 << 62)


@dataclass(eq=False)
class LocalWork:
    """The work of a store without a cold tier, and the part of it that every owner does. The caller holds the store."""

    engine: Engine
    collector: Collector
    clocks: ClockCheck
    settings: OffloadSettings
    ballast_path: Path
    metrics: MetricSink

    tiers: ClassVar[tuple[Tier, ...]] = (Tier.LOCAL,)
    """The tiers whose garbage is collected."""

    def __post_init__(self) -> None:
        self.metadata = self.engine.metadata
        self.retention = Retention(self.metadata, self.engine, grace_s=self.settings.grace_s)
        self.suspects = Suspects(self.metadata, self.engine.files, self.collector.storage_of)
        self._strays = StrayFiles(self.metadata, self._orphan_finder())

    def collect(self, report: OnProgress = unseen) -> Collected:
        """End removals that are due, take apart what was removed, and delete the garbage that is due.

        The trash and objects only if the clock is trusted, as people and readers may still need them.
        """
        with self.metadata.read() as txn:
            trash_is_due = trash.is_due(txn, self.metadata.clock.now_ms())
        # Not asked, not trusted: what falls due from now on waits for the next time.
        trusted = (trash_is_due or self.collector.is_due(Tier.COLD)) and self.clocks.trusts()
        if trash_is_due and trusted:
            trash.end_due(self.metadata)
        self._dismantle(report)
        tiers = self.tiers if trusted else (Tier.LOCAL,)
        return ballast.with_room(self.ballast_path, partial(self.collector.collect, tiers=tiers, report=report))

    def tell_clocks(self) -> None:
        """Set the metric on whether timed deletions pause."""
        self.metrics.set_gauge(MetricName.DELETIONS_PAUSED, float(self.clocks.reason() is not None))

    def end_lifetimes(self) -> Expired:
        """Seal what policy seals, and take away what it no longer keeps: by age only if the clock is trusted.

        Raises the first error of a segment, after all others.
        """
        attempts, trusted = Attempts(), self.clocks.trusts()
        sealed = self.retention.seal(attempts, by_age=trusted)
        done = self.retention.expire(attempts) if trusted else Expired()
        self.metrics.count(MetricName.SEALED_BY_POLICY, sealed)
        self.metrics.count(MetricName.RETENTION_BYTES, done.bytes)
        attempts.end()
        return replace(done, sealed=sealed)

    def collect_strays(self) -> bool:
        """Look at a few chunk files for those that killed writers left; return whether more are to be looked at."""
        return self._strays.step() is not None

    def _dismantle(self, report: OnProgress = unseen) -> None:
        """Continue what a crashed `rm` left."""
        due_ms = self.metadata.clock.now_ms() + self.settings.grace_s * _MS_PER_S
        delete.dismantle_removed(self.metadata, cold_due_ms=due_ms, report=report)

    def _orphan_finder(self) -> OrphanFinder:
        return OrphanFinder(self.metadata, self.engine.files, None, LocationId(0))


class ExpiringChunks:
    """Ends active chunks that are old enough to expire some day, where no offload does. One thread at a time."""

    def __init__(self, engine: Engine, failures: Failures) -> None:
        self._engine = engine
        self._failures = failures
        self._planner = Planner()
        self._snapshots = Snapshots(engine.metadata, self._planner)

    def look(self) -> bool:
        """Look at what changed, in one slice, and end chunks; return whether more is left to look at."""
        complete, attempts = look(self._snapshots, self._failures, slice_s=SLICE_S), Attempts()
        for segment_id in self._planner.next(_ROOMY, self._engine.metadata.clock.now_ms()).rolls:
            view = self._planner.view_of(segment_id)
            if view is not None and (view.policy.retention_age_s or view.policy.retention_bytes):
                with attempts.step():
                    self._engine.roll(segment_id)
        attempts.end()
        return not complete
