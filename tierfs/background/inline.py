"""Cold work done inside a command: the holder's lock for as long as it takes, then the same tasks.

Every run first resolves what a crash left (intents, a publish under way), and ends with publishing and
collecting, so that the next command finds nothing to repair.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from tierfs import names
from tierfs.background import ballast, evict
from tierfs.background.checkpoint import Checkpointer
from tierfs.background.cold import ColdTier
from tierfs.background.collect import Collected, Collector
from tierfs.background.evict import Evicted
from tierfs.background.holder import hold
from tierfs.background.offload import ChunksMoved, Offload
from tierfs.background.planning import OffloadAction, offload_actions
from tierfs.background.publish import Publisher
from tierfs.config import OffloadSettings
from tierfs.errors import Conflict, NotFound, TierfsError
from tierfs.metadata import chains, directories, policies
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.segments.engine import Engine
from tierfs.types import ReadPriority, SegmentId, Tier

_REPLANS = 3
"""Times a plan is made anew because chunks moved under it; somebody else made progress each time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long command is."""

    done_bytes: int
    total_bytes: int
    item: str


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class OffloadReport:
    """What an offload did."""

    segments: int = 0
    objects: int = 0
    bytes: int = 0
    already_cold_bytes: int = 0
    journal_entries: int = 0


@dataclass(frozen=True, slots=True)
class EvictReport:
    """What an evict dropped, what it kept, and why."""

    chunks: int = 0
    bytes: int = 0
    kept_bytes: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Reason -> bytes kept for it."""


@dataclass(frozen=True, slots=True)
class InlineTools:
    """What inline work uses; made by the composition root."""

    engine: Engine
    cold: ColdTier
    offload: Offload
    publisher: Publisher
    checkpointer: Checkpointer
    collector: Collector
    settings: OffloadSettings
    holder_path: Path
    ballast_path: Path


class InlineWork:
    """offload, evict and what follows a delete, as commands run them."""

    def __init__(self, tools: InlineTools) -> None:
        self._tools = tools
        self._metadata = tools.engine.metadata

    def offload(self, path: str, report: Report) -> OffloadReport:
        """Make every byte below `path` that is acknowledged now cold and named by the journal.

        Rolls active chunks first. Raises NotFound, Conflict naming the store's holder, Fenced, and the
        first error of an upload after all others were done; what succeeded stays.
        """
        with hold(self._tools.holder_path, self._metadata.clock):
            self._tools.offload.abandon_intents()
            segments = self._segments(path)
            for _, segment in segments:
                self._tools.engine.roll(segment.id)
            done = self._upload(segments, report)
            return replace(done, journal_entries=self._finish())

    def evict(self, path: str, *, force: bool, dry_run: bool, report: Report) -> EvictReport:
        """Drop the local bytes below `path` that are safely cold, whatever the deletion lag says.

        Segments under an effective `local-only` priority are kept unless `force`.
        """
        if dry_run:
            return self._evict(path, force=force, dry_run=True, report=report)
        with hold(self._tools.holder_path, self._metadata.clock):
            self._finish()
            dropped = self._evict(path, force=force, dry_run=False, report=report)
            self._collect()
            return dropped

    def settle(self) -> Collected:
        """Publish what is queued and delete what is due. Raises Conflict when somebody holds the store."""
        with hold(self._tools.holder_path, self._metadata.clock):
            self._tools.offload.abandon_intents()
            self._tools.publisher.publish()
            self._tools.checkpointer.checkpoint_if_due()
            return self._collect()

    def _segments(self, path: str) -> list[tuple[str, SegmentRecord]]:
        with self._metadata.read() as txn:
            entry = directories.find(txn, path)
            if entry is None:
                raise NotFound(f"{names.printable(path)} does not exist")
            return list(directories.segments_below(txn, entry, names.join(names.split(path))))

    def _upload(self, segments: list[tuple[str, SegmentRecord]], report: Report) -> OffloadReport:
        total = sum(segment.local.bytes for _, segment in segments)
        return _Upload(self._tools, report, total).run([(name, segment.id) for name, segment in segments])

    def _finish(self) -> int:
        entries = self._tools.publisher.publish()
        self._tools.checkpointer.checkpoint_if_due()
        self._collect()
        return entries

    def _collect(self) -> Collected:
        return ballast.with_room(self._tools.ballast_path, self._tools.collector.collect)

    def _evict(self, path: str, *, force: bool, dry_run: bool, report: Report) -> EvictReport:
        segments = self._segments(path)
        total = sum(segment.local.bytes for _, segment in segments)
        seen, result = 0, EvictReport()
        for name, segment in segments:
            dropped, reason = self._evict_segment(segment, force=force, dry_run=dry_run)
            result = _with(result, segment, dropped, reason)
            seen += segment.local.bytes
            report(Progress(seen, total, name))
        return result

    def _evict_segment(self, segment: SegmentRecord, *, force: bool, dry_run: bool) -> tuple[Evicted, str]:
        """What was dropped, and why the rest stays."""
        now_ms = self._metadata.clock.now_ms()
        with self._metadata.read() as txn:
            if not force and policies.effective(txn, segment).read_priority is ReadPriority.LOCAL_ONLY:
                return Evicted(), "read priority is local-only (--force overrides)"
            if dry_run:
                return evict.would_evict(txn, segment, cold_before_ms=now_ms), "not cold yet"
        room = self._tools.ballast_path
        dropped = ballast.with_room(room, lambda: evict.evict(self._metadata, segment.id, cold_before_ms=now_ms))
        return dropped, "not cold yet"


class _Upload:
    """The uploads of one offload: a bounded number at once, all of them tried, the first error kept."""

    def __init__(self, tools: InlineTools, report: Report, total_bytes: int) -> None:
        self._tools = tools
        self._report = report
        self._total = total_bytes
        self._running: dict[Future[int], tuple[str, SegmentId]] = {}
        self._moved: dict[SegmentId, str] = {}
        self._uploaded: set[SegmentId] = set()
        self._error: TierfsError | None = None
        self.done = OffloadReport()

    def run(self, segments: list[tuple[str, SegmentId]]) -> OffloadReport:
        """Upload what is not cold; segments whose chunks moved meanwhile are planned anew."""
        with ThreadPoolExecutor(self._tools.settings.objects_in_parallel, "tierfs-offload") as pool:
            for _ in range(_REPLANS):
                for name, segment_id in segments:
                    self._start(pool, name, segment_id)
                while self._running:
                    self._reap()
                segments = [(name, segment_id) for segment_id, name in self._moved.items()]
                self._moved = {}
                if not segments:
                    break
        if segments and self._error is None:
            self._error = Conflict(f"{names.printable(segments[0][0])} keeps changing", remedy="run the command again")
        if self._error is not None:
            raise self._error
        cold = max(0, self._total - self.done.bytes)
        return replace(self.done, segments=len(self._uploaded), already_cold_bytes=cold)

    def _start(self, pool: ThreadPoolExecutor, name: str, segment_id: SegmentId) -> None:
        for action in self._plan(segment_id):
            while len(self._running) >= self._tools.settings.objects_in_parallel:
                self._reap()
            self._running[pool.submit(self._tools.offload.run, action)] = (name, segment_id)

    def _plan(self, segment_id: SegmentId) -> list[OffloadAction]:
        with self._tools.engine.metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                return []
            start = _first_local_only(txn, segment)
            local = evict.sealed_local_chunks(txn, segment, start)
            cold = chains.chunks(txn, segment.id, Tier.COLD, start)
            limit = policies.effective(txn, segment).object_bytes
            return list(offload_actions(segment.id, local, cold, limit))

    def _reap(self) -> None:
        finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in finished:
            name, segment_id = self._running.pop(future)
            error = future.exception()
            if error is None:
                size = future.result()
                self._uploaded.add(segment_id)
                self.done = replace(self.done, objects=self.done.objects + 1, bytes=self.done.bytes + size)
                self._report(Progress(self.done.bytes, self._total, name))
            elif isinstance(error, ChunksMoved):
                self._moved[segment_id] = name
            elif isinstance(error, TierfsError):
                self._error = self._error or error
            else:
                raise error


def _first_local_only(txn: ReadTransaction, segment: SegmentRecord) -> int:
    """Where planning starts: behind the cold chain when it has no gaps, else at the beginning."""
    cold = segment.cold
    last = chains.chunk_at(txn, segment.id, Tier.COLD, cold.last_chunk) if cold.count else None
    if last is None or cold.first_chunk > segment.start_offset:
        return segment.start_offset
    gapless = last.end_offset - cold.first_chunk == cold.bytes
    return last.end_offset if gapless else segment.start_offset


def _with(result: EvictReport, segment: SegmentRecord, dropped: Evicted, reason: str) -> EvictReport:
    kept = segment.local.bytes - dropped.bytes
    reasons = dict(result.reasons)
    if kept:
        reasons[reason] = reasons.get(reason, 0) + kept
    return EvictReport(result.chunks + dropped.chunks, result.bytes + dropped.bytes, result.kept_bytes + kept, reasons)
