"""Cold work inside a command that found no holder: the holder's lock for as long as it takes.

Every run first resolves what a crash left, and ends with publishing and collecting, so that the next
command finds nothing to repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierfs.background.collect import Collected
from tierfs.background.consolidation import ConsolidateReport
from tierfs.background.holder import hold
from tierfs.background.managed_offload import PrefixOffloaded
from tierfs.background.segment_restore import SegmentRestored
from tierfs.background.upload import OffloadReport, Report
from tierfs.background.work import ColdWork, EvictReport
from tierfs.clock import Clock
from tierfs.segments.positions import Position


class InlineWork:
    """offload, evict and what follows a delete. Each raises Conflict naming the holder there is."""

    def __init__(self, work: ColdWork, holder_path: Path, clock: Clock) -> None:
        self._work = work
        self._holder_path = holder_path
        self._clock = clock

    def offload(self, path: str, report: Report) -> OffloadReport:
        """See ColdWork.offload."""
        with self._holding():
            return self._work.offload(path, report)

    def offload_prefix(self, path: str, before: Position | None, report: Report) -> PrefixOffloaded:
        """See ColdWork.offload_prefix."""
        with self._holding():
            return self._work.offload_prefix(path, before, report)

    def evict(self, path: str, *, force: bool, dry_run: bool, report: Report) -> EvictReport:
        """See ColdWork.evict; a dry run needs no lock."""
        if dry_run:
            return self._work.evict(path, force=force, dry_run=True, report=report)
        with self._holding():
            return self._work.evict(path, force=force, dry_run=False, report=report)

    def make_room(self, first: str) -> int:
        """See ColdWork.make_room."""
        with self._holding():
            return self._work.make_room(first)

    def consolidate(self, path: str, *, dry_run: bool, report: Report) -> ConsolidateReport:
        """See ColdWork.consolidate; a dry run needs no lock."""
        if dry_run:
            return self._work.consolidate(path, dry_run=True, report=report)
        with self._holding():
            return self._work.consolidate(path, dry_run=False, report=report)

    def collect_all(self, *, grace_s: int) -> Collected:
        """See ColdWork.collect_all."""
        with self._holding():
            return self._work.collect_all(grace_s=grace_s)

    def load_segment(self, wanted: str, *, accept_loss: bool, report: Report) -> SegmentRestored:
        """See ColdWork.load_segment."""
        with self._holding():
            return self._work.load_segment(wanted, accept_loss=accept_loss, report=report)

    def require_ownership(self) -> None:
        """Make certain by one listing that the bucket is ours. Raises Fenced, WrongColdTier."""
        with self._holding():
            self._work.tools.publisher.require_ownership()

    def settle(self) -> Collected:
        """Publish what is queued and delete what is due."""
        with self._holding():
            self._work.publish()
            return self._work.collect()

    @contextmanager
    def _holding(self) -> Iterator[None]:
        with hold(self._holder_path, self._clock):
            self._work.resolve_crashed()
            yield
