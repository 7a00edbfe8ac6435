"""ConsolidationWatch: finds what the background writer consolidates next.

It is kept current from the database's own list of changes. Chunks that are large enough at the beginning of a segment
stay so: each look begins at the first small chunks of the last one. A new holder, or a change of a directory's policy,
looks at everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import LocationId, SegmentId, Tier
from tierfs.engine.metadata import chains, directories, policies
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering import consolidate_plan as policy
from tierfs.tiering.changed_segments import ChangedSegments
from tierfs.tiering.consolidate_plan import ConsolidateAction, Eligible, SegmentChunks, plan
from tierfs.tiering.snapshot import SLICE_S

# Most segments looked at per call.
_LOOKS = 500

# Chunks of a segment looked at per call: some 60 ms and 4 MiB. A segment of 100,000 takes 50 calls; all of it in one
# call took seconds of the interpreter, again for each object made, and 15 ms of every read meanwhile.
_WATCH_WINDOW_CHUNKS = 2000


@dataclass(slots=True)
class _Progress:
    """How far a segment was looked at."""

    largest_bytes: int
    """Largest length of a small chunk then: with another policy the segment is looked at from its beginning."""
    settled: int = 0
    """Offset up to which its chunks are large enough."""
    reached: int | None = None
    """Offset at which the next look continues, if it is too long for one."""


class ConsolidationWatch:
    """Finder of the next consolidation of a store. One thread at a time."""

    def __init__(self, metadata: MetadataStore, location_id: LocationId, settings: OffloadSettings) -> None:
        self._metadata = metadata
        self._location_id = location_id
        self._settings = settings
        self._changed = ChangedSegments(metadata, lambda row: row is not None and policy.may_have_work(row))
        self._seen_transaction = -1
        self._progress: dict[SegmentId, _Progress] = {}
        """Of segments that need not be looked at from their beginning."""
        self.more = False
        """Whether the last call ended with segments left to look at."""

    def next(self, may_try: Callable[[SegmentId], bool]) -> ConsolidateAction | None:
        """Return an action for a segment that `may_try` allows; None if there is none yet.

        Raises DataLoss for a segment whose records are damaged; the next call continues with the others. Costs
        microseconds while nothing was committed, else a slice of time; `more` is set if that was too short.
        """
        newest, queue = self._metadata.last_transaction_id(), self._changed.queue
        self.more = False
        if newest == self._seen_transaction and not queue and not self._changed.passes:
            return None
        self._changed.refresh()
        self._seen_transaction = newest
        started_s = self._metadata.clock.monotonic_s()
        for looks, segment_id in enumerate(self._candidates(), 1):
            if not may_try(segment_id):
                continue
            action = self._action_for(segment_id)
            if action is not None:
                return action
            del queue[segment_id]
            progress = self._progress.get(segment_id)
            is_long = progress is not None and progress.reached is not None
            if is_long:
                queue[segment_id] = None  # after the others
            if is_long or looks >= _LOOKS or self._metadata.clock.monotonic_s() - started_s >= SLICE_S:
                self.more = True
                return None
        return None

    def _action_for(self, segment_id: SegmentId) -> ConsolidateAction | None:
        try:
            with self._metadata.read() as txn:
                return self._look_at(txn, segment_id)
        except DataLoss:  # any other error is met by all segments, and this one stays to be looked at
            del self._changed.queue[segment_id]  # its next change brings it back; the others must not wait for that
            raise

    def is_known(self, segment_id: SegmentId) -> bool:
        """Return whether a segment is queued, or may be: a pass over all has not reached every one yet."""
        return segment_id in self._changed.queue or self._changed.passes

    def _candidates(self) -> Iterator[SegmentId]:
        """Yield the segments to look at: queued ones, then those of a pass over all as it reaches them."""
        yield from list(islice(self._changed.queue, _LOOKS))
        while self._changed.passes:
            yield from self._changed.scan()

    def _look_at(self, txn: ReadTransaction, segment_id: SegmentId) -> ConsolidateAction | None:
        segment = directories.living_segment(txn, segment_id)
        if segment is None or not policy.may_have_work(segment):
            self._progress.pop(segment_id, None)
            return None
        join = policy.unasked(segment, policies.effective(txn, segment).object_bytes, self._settings)
        progress = self._progress.pop(segment_id, None)
        if progress is None or progress.largest_bytes != join.largest_bytes:
            progress = _Progress(join.largest_bytes)
        begin = progress.settled if progress.reached is None else progress.reached
        cold, full = self._chunks(txn, segment, begin)
        published = txn.store.journal.published_sequence
        eligible = Eligible(self._location_id, published, foreign=False)
        action = next(plan(cold, eligible, join, policy.relocation(self._settings)), None)
        progress.reached = None
        if action is None:
            large = _end_of_large(cold, join.largest_bytes)
            if begin == progress.settled and large:
                progress.settled = large
            reached = large if large > begin else cold.chunks[-1].chunk.start_offset if cold.chunks else begin
            if full and reached > begin:
                progress.reached = reached
            linked = (placed.object.linked_sequence for placed in cold.chunks)
            if unnamed := [sequence for sequence in linked if sequence > published]:
                self._changed.wait_for(segment_id, min(unnamed))
        if progress.settled or progress.reached is not None:
            self._progress[segment_id] = progress
        return action

    def _chunks(self, txn: ReadTransaction, segment: SegmentRecord, begin: int) -> tuple[SegmentChunks, bool]:
        """Return the first chunk, whose head may be cut off, with a window from `begin` on; and whether it was full."""
        first = islice(chains.chunks(txn, segment.id, Tier.COLD, segment.start_offset), 1)
        following = chains.chunks(txn, segment.id, Tier.COLD, max(segment.start_offset, begin))
        window = list(islice(following, _WATCH_WINDOW_CHUNKS))
        chunks = {chunk.start_offset: chunk for chunk in (*first, *window)}
        placed = tuple(PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk in chunks.values() if not chunk.lost)
        return SegmentChunks(segment.id, segment.range, placed), len(window) == _WATCH_WINDOW_CHUNKS


def _end_of_large(cold: SegmentChunks, largest_bytes: int) -> int:
    """Return the offset at which the small chunks at the end begin; 0 when all are small."""
    large = (item.chunk.end_offset for item in reversed(cold.chunks) if cold.live(item).length_bytes > largest_bytes)
    return next(large, 0)
