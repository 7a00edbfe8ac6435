"""The uploads of one `offload` command: a bounded number at once, all of them tried, the first error kept."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from tierfs import names
from tierfs.background.candidates import objects_to_make
from tierfs.background.offload import ChunksMoved, Offload
from tierfs.background.planning import OffloadAction
from tierfs.errors import Conflict, TierfsError
from tierfs.metadata import directories
from tierfs.metadata.store import MetadataStore
from tierfs.types import SegmentId

_REPLANS = 3
"""Times a plan is made anew because chunks moved under it; somebody else made progress each time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long command is."""

    done_bytes: int
    total_bytes: int
    item: str


Report = Callable[[Progress], None]

Named = list[tuple[str, SegmentId]]
"""Segments with their full names."""


@dataclass(frozen=True, slots=True)
class OffloadReport:
    """What an offload did."""

    segments: int = 0
    objects: int = 0
    bytes: int = 0
    already_cold_bytes: int = 0
    journal_entries: int = 0


class Upload:
    """One run; used once."""

    def __init__(
        self, metadata: MetadataStore, offload: Offload, in_parallel: int, report: Report, total_bytes: int
    ) -> None:
        self._metadata = metadata
        self._offload = offload
        self._in_parallel = in_parallel
        self._report = report
        self._total = total_bytes
        self._running: dict[Future[int], tuple[str, SegmentId]] = {}
        self._moved: dict[SegmentId, str] = {}
        self._uploaded: set[SegmentId] = set()
        self._error: TierfsError | None = None
        self.done = OffloadReport()

    def run(self, list_segments: Callable[[], Named]) -> OffloadReport:
        """Upload what is not cold; segments whose chunks moved meanwhile are planned anew.

        They may have moved to another segment by concat, so `list_segments` is then asked again.
        """
        segments = list_segments()
        with ThreadPoolExecutor(self._in_parallel, "tierfs-offload") as pool:
            for _ in range(_REPLANS):
                for name, segment_id in segments:
                    self._start(pool, name, segment_id)
                while self._running:
                    self._reap()
                segments = self._moved_meanwhile(list_segments)
                if not segments:
                    break
        if segments and self._error is None:
            self._error = Conflict(f"{names.printable(segments[0][0])} keeps changing", remedy="run the command again")
        if self._error is not None:
            raise self._error
        cold = max(0, self._total - self.done.bytes)
        return replace(self.done, segments=len(self._uploaded), already_cold_bytes=cold)

    def _moved_meanwhile(self, list_segments: Callable[[], Named]) -> Named:
        """What to look at once more."""
        moved, self._moved = self._moved, {}
        with self._metadata.read() as txn:
            gone = any(directories.segment(txn, segment_id) is None for segment_id in moved)
        return list_segments() if gone else [(name, segment_id) for segment_id, name in moved.items()]

    def _start(self, pool: ThreadPoolExecutor, name: str, segment_id: SegmentId) -> None:
        for action in self._plan(segment_id):
            while len(self._running) >= self._in_parallel:
                self._reap()
            self._running[pool.submit(self._offload.run, action)] = (name, segment_id)

    def _plan(self, segment_id: SegmentId) -> list[OffloadAction]:
        with self._metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                return []
            return list(objects_to_make(txn, segment))

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
