"""Consolidating the segments below a path: what there is to do, a bounded number of objects at once, a report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from tierfs import names
from tierfs.background import consolidation_policy
from tierfs.background.consolidate import Consolidate, Consolidated
from tierfs.background.consolidation_plan import ConsolidateAction, Eligible, SegmentChunks, plan
from tierfs.background.objects import ChunksMoved
from tierfs.config import OffloadSettings
from tierfs.errors import Conflict, TierfsError
from tierfs.metadata import chains, directories, policies
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.transaction import ReadTransaction
from tierfs.parallel import Meter, OnProgress, Pool
from tierfs.types import LocationId, SegmentId, Tier

_PASSES = 8
"""Times a segment is planned anew: very many tiny chunks become one in two, and others may move them."""

_WINDOW_CHUNKS = 10_000
"""Chunks of a segment planned at once: some 18 MB. Neighbours on both sides of a border are joined in a later pass."""


@dataclass(frozen=True, slots=True)
class ConsolidateReport:
    """What a consolidation did, or would do."""

    segments: int = 0
    """Whose chunks changed."""
    objects_before: int = 0
    """Chunks that were replaced."""
    objects_after: int = 0
    bytes: int = 0
    """Of new objects."""
    client_bytes: int = 0
    """How many of them went through this machine; the server copied the rest."""
    merged_chunks: int = 0
    """Chunks that became part of their neighbour, as both were parts of one object; no byte moved for it."""
    journal_entries: int = 0

    def plus(self, action: ConsolidateAction, done: Consolidated) -> ConsolidateReport:
        """With one more action."""
        if action.merges:
            return replace(self, merged_chunks=self.merged_chunks + len(action.chunks) - 1)
        return replace(
            self,
            objects_before=self.objects_before + len(action.chunks),
            objects_after=self.objects_after + 1,
            bytes=self.bytes + done.bytes,
            client_bytes=self.client_bytes + done.client_bytes,
        )


@dataclass(frozen=True, slots=True)
class Window:
    """What there is to do among neighbouring chunks of a segment, and where the next ones begin."""

    actions: tuple[ConsolidateAction, ...] = ()
    next_offset: int | None = None


def asked_for(
    txn: ReadTransaction,
    segment: SegmentRecord,
    location_id: LocationId,
    settings: OffloadSettings,
    start: int = 0,
    window_chunks: int = _WINDOW_CHUNKS,
) -> Window:
    """What can be consolidated from `start` on, however few chunks it is. Adopted objects may be copied too."""
    object_bytes = policies.effective(txn, segment).object_bytes
    eligible = Eligible(location_id, txn.store.journal.published_sequence, foreign=True)
    join = consolidation_policy.when_asked(object_bytes)
    found = list(islice(chains.chunks(txn, segment.id, Tier.COLD, max(start, segment.start_offset)), window_chunks))
    placed = tuple(PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk in found if not chunk.lost)
    known = SegmentChunks(segment.id, segment.range, placed)
    actions = tuple(plan(known, eligible, join, consolidation_policy.relocation(settings)))
    return Window(actions, found[-1].end_offset if len(found) == window_chunks else None)


class Consolidation:
    """One run of the command; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        consolidate: Consolidate,
        location_id: LocationId,
        settings: OffloadSettings,
        report: OnProgress,
    ) -> None:
        self._metadata = metadata
        self._consolidate = consolidate
        self._location_id = location_id
        self._settings = settings
        self._meter = Meter(report)
        self._lock = threading.Lock()
        self._changed: set[SegmentId] = set()
        self._error: TierfsError | None = None
        self.done = ConsolidateReport()

    def would_do(self, segments: Sequence[tuple[str, SegmentId]]) -> ConsolidateReport:
        """What `run` would do first; nothing is changed. How many bytes go through here shows only by doing it."""
        for _, segment_id in segments:
            for actions in self._windows(segment_id):
                for action in actions:
                    self._count(action, Consolidated(0 if action.merges else action.range.length_bytes))
        return replace(self.done, segments=len(self._changed))

    def run(self, segments: Sequence[tuple[str, SegmentId]], publish: Callable[[], int]) -> ConsolidateReport:
        """Consolidate until there is nothing more to do; all is tried, then the first error raised.

        `publish` is called before each pass, as only what the journal names is touched, and at the end.
        """
        entries = publish()
        for _ in range(_PASSES):
            with Pool(self._settings.objects_in_parallel, "tierfs-consolidate") as pool:
                segments = [one for one in segments if self._run_segment(pool, *one)]
            entries += publish()
            if not segments:
                break
        if segments and self._error is None:
            self._error = Conflict(f"{names.printable(segments[0][0])} keeps changing", remedy="run the command again")
        if self._error is not None:
            raise self._error
        return replace(self.done, segments=len(self._changed), journal_entries=entries)

    def _run_segment(self, pool: Pool, name: str, segment_id: SegmentId) -> bool:
        """Whether there may be more to do."""
        return any([self._run_actions(pool, name, actions) for actions in self._windows(segment_id)])

    def _run_actions(self, pool: Pool, name: str, actions: Sequence[ConsolidateAction]) -> bool:
        """Whether it makes sense to look at the segment again."""
        copies = [action for action in actions if not action.merges]
        self._meter.total_bytes += sum(action.range.length_bytes for action in copies)
        for action in actions:
            if action.merges:  # before the others, which count on it
                self._try(name, action)
        return bool(actions) and all(pool.run(partial(self._try, name), copies))

    def _windows(self, segment_id: SegmentId) -> Iterator[Sequence[ConsolidateAction]]:
        """The actions of one window after another, each planned when the one before is done."""
        start: int | None = 0
        while start is not None:
            with self._metadata.read() as txn:
                segment = directories.segment(txn, segment_id)
                if segment is None:
                    return
                window = asked_for(txn, segment, self._location_id, self._settings, start, _WINDOW_CHUNKS)
            yield window.actions
            start = window.next_offset

    def _try(self, name: str, action: ConsolidateAction) -> bool:
        """Whether it makes sense to look at the segment again."""

        try:
            done = self._consolidate.run(action, partial(self._meter, item=name))
        except ChunksMoved:
            return True
        except TierfsError as exc:
            with self._lock:
                self._error = self._error or exc
            return False
        self._count(action, done)
        return True

    def _count(self, action: ConsolidateAction, done: Consolidated) -> None:
        with self._lock:
            self._changed.add(action.segment_id)
            self.done = self.done.plus(action, done)
