"""Finding cold chunks to consolidate without being asked, kept current by the database's own list of changes.

What is large enough at the beginning of a segment stays so: each look begins where the last one found small
chunks. A new holder, or a change of policies, looks at everything once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tierfs.background import consolidation_policy as policy
from tierfs.background.consolidation_plan import ConsolidateAction, Eligible, SegmentChunks, plan
from tierfs.background.touched import TouchedSegments
from tierfs.config import OffloadSettings
from tierfs.metadata import chains, directories, policies
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import LocationId, SegmentId, Tier

_SCAN_BATCH = 5000
"""Segments read per transaction by a pass over all, so that no old snapshot of the database is held for long."""

_LOOKS = 500
"""Segments looked at per call: some 50 ms."""

_WINDOW_CHUNKS = 2000
"""Chunks of a segment looked at per call: some 60 ms and 4 MiB. A segment of 100,000 is looked at in 50 calls; all of
it at once took seconds of the interpreter, anew for each object made, and 15 ms of every read meanwhile."""

PREFIX = "consolidate "


def trouble_of(segment_id: SegmentId) -> str:
    """Under which name the failures of a segment are noted."""
    return f"{PREFIX}{segment_id}"


class ConsolidationWatch:
    """One look after another. One thread at a time."""

    def __init__(self, metadata: MetadataStore, location_id: LocationId, settings: OffloadSettings) -> None:
        self._metadata = metadata
        self._location_id = location_id
        self._settings = settings
        self._touched = TouchedSegments(metadata)
        self._seen_transaction = -1
        self._published = 0
        self._waiting: set[SegmentId] = set()
        """Some of whose chunks the journal does not name yet."""
        self._settled: dict[SegmentId, int] = {}
        """Offset up to which chunks are large enough."""
        self._reached: dict[SegmentId, int] = {}
        """Where the next look at a segment goes on that was too long for one."""
        self.pending: dict[SegmentId, None] = {}
        """To be looked at, in this order."""

    def next(self, may_try: Callable[[SegmentId], bool]) -> ConsolidateAction | None:
        """Something to do for a segment that `may_try` allows; None when there is nothing, or not yet.

        Costs microseconds while nothing was committed.
        """
        newest = self._metadata.last_transaction_id()
        if newest == self._seen_transaction and not self.pending:
            return None
        self._refresh()
        self._seen_transaction = newest
        for segment_id in list(itertools.islice(self.pending, _LOOKS)):
            if not may_try(segment_id):
                continue
            with self._metadata.read() as txn:
                action = self._look_at(txn, segment_id)
            if action is not None:
                return action
            del self.pending[segment_id]
            if segment_id in self._reached:
                self.pending[segment_id] = None  # behind the others
                return None
        return None

    def _refresh(self) -> None:
        changed = self._touched.since_last()
        if changed is None:
            self._scan()
        else:
            self.pending.update(dict.fromkeys(sorted(changed)))
        with self._metadata.read() as txn:
            published = txn.store.journal.published_sequence
        if published != self._published:
            self._published = published
            self.pending.update(dict.fromkeys(sorted(self._waiting)))
            self._waiting.clear()

    def _scan(self) -> None:
        self._settled.clear()
        self._reached.clear()
        after = b""
        while True:
            with self._metadata.read() as txn:
                rows = list(itertools.islice(txn.scan(SEGMENTS, after), _SCAN_BATCH))
            self.pending.update((segment.id, None) for _, segment in rows if policy.may_have_work(segment))
            if len(rows) < _SCAN_BATCH:
                return
            after = rows[-1][0] + b"\0"

    def _look_at(self, txn: ReadTransaction, segment_id: SegmentId) -> ConsolidateAction | None:
        segment = directories.segment(txn, segment_id)
        if segment is None or not policy.may_have_work(segment):
            self._settled.pop(segment_id, None)
            self._reached.pop(segment_id, None)
            return None
        join = policy.unasked(segment, policies.effective(txn, segment).object_bytes, self._settings)
        settled = self._settled.get(segment.id, 0)
        begin = self._reached.pop(segment.id, settled)
        found, full = self._chunks(txn, segment, begin)
        eligible = Eligible(self._location_id, txn.store.journal.published_sequence, foreign=False)
        action = next(plan(found, eligible, join, policy.relocation(self._settings)), None)
        if action is not None:
            return action
        large = _end_of_large(found, join.largest_bytes)
        if begin == settled and large:
            self._settled[segment.id] = large
        if any(one.object.linked_sequence > eligible.published_sequence for one in found.chunks):
            self._waiting.add(segment.id)
        reached = large if large > begin else found.chunks[-1].chunk.start_offset if found.chunks else begin
        if full and reached > begin:
            self._reached[segment.id] = reached
        return None

    def _chunks(self, txn: ReadTransaction, segment: SegmentRecord, begin: int) -> tuple[SegmentChunks, bool]:
        """The first chunk, whose head may be cut off, and a window of those from `begin` on; whether there are more."""
        first = itertools.islice(chains.chunks(txn, segment.id, Tier.COLD, segment.start_offset), 1)
        behind = chains.chunks(txn, segment.id, Tier.COLD, max(segment.start_offset, begin))
        window = list(itertools.islice(behind, _WINDOW_CHUNKS))
        chunks = {chunk.start_offset: chunk for chunk in (*first, *window)}
        placed = tuple(PlacedChunk(one, chains.object_of(txn, one)) for one in chunks.values() if not one.lost)
        return SegmentChunks(segment.id, segment.range, placed), len(window) == _WINDOW_CHUNKS


def _end_of_large(found: SegmentChunks, largest_bytes: int) -> int:
    """Where the small chunks begin that stand at the end; 0 when all are small."""
    large = (one.chunk.end_offset for one in reversed(found.chunks) if found.live(one).length_bytes > largest_bytes)
    return next(large, 0)
