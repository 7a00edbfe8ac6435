"""Consolidation by a command: plan the segments below a path, and make a bounded number of objects in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter, OnProgress
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, DataLoss, TierfsError
from tierfs.base.words.types import LocationId, SegmentId, Tier
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata.directories import Named
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.message_rows import message
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering import consolidate_plan
from tierfs.tiering.consolidate import Consolidate, Consolidated
from tierfs.tiering.consolidate_plan import ConsolidateAction, Eligible, SegmentChunks, plan
from tierfs.tiering.objects import ChunksMoved

# Plans per segment: very many tiny chunks become one in two passes, and other processes may move them.
_PASSES = 8

# Chunks of a segment in one plan: some 18 MB. Neighbours on both sides of a border are joined in a later pass.
_WINDOW_CHUNKS = 10_000


@dataclass(frozen=True, slots=True)
class ConsolidateReport:
    """Result of a consolidation, done or planned."""

    segments: int = 0
    """Segments whose chunks changed."""
    objects_before: int = 0
    """Chunks that were replaced."""
    objects_after: int = 0
    bytes: int = 0
    """Stored bytes of new objects; the plain ones when it was only planned."""
    client_bytes: int = 0
    """Bytes of them that went through this machine; the server copied the rest."""
    merged_chunks: int = 0
    """Chunks that became part of their neighbour, as both were parts of one object; no byte moved."""
    journal_entries: int = 0


@dataclass(frozen=True, slots=True)
class CompressReport(ConsolidateReport):
    """Result of a consolidation that compresses as well, done or planned. The sums of `ConsolidateReport` are of all
    objects, also of those that are compressed."""

    compressed_objects: int = 0
    """New objects that are compressed."""
    plain_bytes: int = 0
    """Bytes of the segments in them."""
    stored_bytes: int = 0
    """Bytes that they have; 0 when it was only planned."""
    kept_plain_bytes: int = 0
    """Bytes that stay plain, because compressing them saves too little."""

    def without_compression(self) -> ConsolidateReport:
        """Return the sums of all objects alone."""
        return ConsolidateReport(**{each.name: getattr(self, each.name) for each in fields(ConsolidateReport)})

    def plus(self, action: ConsolidateAction, done: Consolidated) -> CompressReport:
        """Return the sum with one more action."""
        if action.merges:
            return replace(self, merged_chunks=self.merged_chunks + len(action.chunks) - 1)
        if done.kept_plain_bytes:
            return replace(self, kept_plain_bytes=self.kept_plain_bytes + done.kept_plain_bytes)
        compressed = int(action.compresses)
        return replace(
            self,
            compressed_objects=self.compressed_objects + compressed,
            plain_bytes=self.plain_bytes + compressed * action.range.length_bytes,
            stored_bytes=self.stored_bytes + compressed * done.bytes,
            objects_before=self.objects_before + len(action.chunks),
            objects_after=self.objects_after + 1,
            bytes=self.bytes + done.bytes,
            client_bytes=self.client_bytes + done.client_bytes,
        )


def asked_for(
    txn: ReadTransaction,
    segment: SegmentRecord,
    location_id: LocationId,
    settings: OffloadSettings,
    start: int = 0,
    *,
    compress: bool = False,
) -> tuple[tuple[ConsolidateAction, ...], int | None]:
    """Plan all that can be consolidated from `start` on, however few chunks; adopted objects may be copied too.

    `compress`: plain chunks are compressed, too, where the policy asks for it. Return the actions of a window of
    chunks, and the offset of the next window, None after the last one.
    """
    policy = policies.effective(txn, segment)
    eligible = Eligible(location_id, txn.store.journal.published_sequence, foreign=True)
    join = consolidate_plan.when_asked(policy.object_bytes)
    chunks = list(islice(chains.chunks(txn, segment.id, Tier.COLD, max(start, segment.start_offset)), _WINDOW_CHUNKS))
    placed = tuple(PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk in chunks if not chunk.lost)
    cold = SegmentChunks(segment.id, segment.range, placed)
    relocate = consolidate_plan.relocation(settings)
    actions = tuple(plan(cold, eligible, join, relocate, policy if compress else None))
    return actions, chunks[-1].end_offset if len(chunks) == _WINDOW_CHUNKS else None


class Consolidation:
    """One run of the command; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        consolidate: Consolidate,
        location_id: LocationId,
        settings: OffloadSettings,
        report: OnProgress,
        *,
        compress: bool = False,
    ) -> None:
        self._compress = compress
        self._metadata = metadata
        self._consolidate = consolidate
        self._location_id = location_id
        self._settings = settings
        self._meter = Meter(report)
        self._lock = threading.Lock()
        self._changed: set[SegmentId] = set()
        self._error: TierfsError | None = None
        self.done = CompressReport()

    def would_do(self, pages: Iterable[Sequence[Named]]) -> CompressReport:
        """Report the first pass of `run` and change nothing. Only a run measures `client_bytes` and `stored_bytes`."""
        for name, segment_id in self._with_cold(pages):
            for actions in self._windows(segment_id):
                for action in actions:
                    self._count(action, Consolidated(0 if action.merges else action.range.length_bytes))
            self._meter(0, name, 1)
        return replace(self.done, segments=len(self._changed), stored_bytes=0)

    def run(self, pages: Iterable[Sequence[Named]], publish: Callable[[], int]) -> CompressReport:
        """Consolidate until nothing is left to do; raise the first error after all actions were attempted.

        Of the segments, which come in pages, it remembers those that it changes.

        `publish` is called before each pass, because only chunks that the journal names are changed, and at the end.
        """
        entries = publish()
        left: list[Named] = []
        for _ in range(_PASSES):
            with Pool(self._settings.objects_in_parallel, "tierfs-consolidate") as pool:
                left = [named for named in self._with_cold(pages) if self._run_segment(pool, *named)]
            entries += publish()
            if not left:
                break
            pages = [left]
        if left and self._error is None:
            self._error = Conflict(f"{names.printable(left[0][0])} keeps changing", remedy="run the command again")
        if self._error is not None:
            raise self._error
        return replace(self.done, segments=len(self._changed), journal_entries=entries)

    def _with_cold(self, pages: Iterable[Sequence[Named]]) -> Iterator[Named]:
        """Yield the segments that have cold bytes, and count them as met."""
        for page in pages:
            with self._metadata.read() as txn:
                chosen = [named for named in page if _may_have_cold(txn, named[1])]
            self._meter.total_items += len(chosen)
            yield from chosen

    def _run_segment(self, pool: Pool, name: str, segment_id: SegmentId) -> bool:
        """Carry out a segment's actions; return whether there may be more to do. Keeps the error of damaged records."""
        again = False
        try:
            again = any([self._run_actions(pool, name, actions) for actions in self._windows(segment_id)])
        except DataLoss as exc:  # the other segments are still consolidated, and all is published
            self._error = self._error or exc
        self._meter(0, name, 1)
        return again

    def _run_actions(self, pool: Pool, name: str, actions: Sequence[ConsolidateAction]) -> bool:
        """Carry out the actions of one window; return whether the segment is worth planning again."""
        copies = [action for action in actions if not action.merges]
        self._meter.total_bytes += sum(action.range.length_bytes for action in copies)
        for action in actions:
            if action.merges:  # before the others, which build on it
                self._try(name, action)
        return bool(actions) and all(pool.run(partial(self._try, name), copies))

    def _windows(self, segment_id: SegmentId) -> Iterator[Sequence[ConsolidateAction]]:
        """Yield the actions of one window after another, each planned when the one before is done."""
        start: int | None = 0
        while start is not None:
            with self._metadata.read() as txn:
                segment = directories.living_segment(txn, segment_id)
                if segment is None:
                    return
                actions, start = asked_for(
                    txn, segment, self._location_id, self._settings, start, compress=self._compress
                )
            yield actions

    def _try(self, name: str, action: ConsolidateAction) -> bool:
        """Carry out one action; return whether the segment is worth planning again."""
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
            if not done.kept_plain_bytes:
                self._changed.add(action.segment_id)
            self.done = self.done.plus(action, done)


def _may_have_cold(txn: ReadTransaction, segment_id: SegmentId) -> bool:
    """Return whether a segment has cold bytes, or a damaged row, which its plan reports."""
    if txn.get_raw(SEGMENTS.name, tables.u64(segment_id)) is None:
        return False
    row = message(txn, SEGMENTS, tables.u64(segment_id))
    return row is None or bool(row.cold.count)
