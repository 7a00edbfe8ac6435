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
            return None
        join = policy.unasked(segment, policies.effective(txn, segment).object_bytes, self._settings)
        found = self._chunks(txn, segment)
        eligible = Eligible(self._location_id, txn.store.journal.published_sequence, foreign=False)
        action = next(plan(found, eligible, join, policy.relocation(self._settings)), None)
        if action is None:
            self._remember(segment, found, join.largest_bytes, eligible.published_sequence)
        return action

    def _chunks(self, txn: ReadTransaction, segment: SegmentRecord) -> SegmentChunks:
        """The first chunk, whose head may be cut off, and those from the first small one on."""
        first = itertools.islice(chains.chunks(txn, segment.id, Tier.COLD, segment.start_offset), 1)
        settled = self._settled.get(segment.id, 0)
        rest = chains.chunks(txn, segment.id, Tier.COLD, max(segment.start_offset, settled))
        chunks = {chunk.start_offset: chunk for chunk in (*first, *rest) if not chunk.lost}
        placed = tuple(PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk in chunks.values())
        return SegmentChunks(segment.id, segment.range, placed)

    def _remember(self, segment: SegmentRecord, found: SegmentChunks, largest_bytes: int, published: int) -> None:
        """Where the next look begins, and whether it is due when more is published."""
        large = [one.chunk.end_offset for one in found.chunks if found.live(one).length_bytes > largest_bytes]
        if large:
            self._settled[segment.id] = large[-1]
        if any(one.object.linked_sequence > published for one in found.chunks):
            self._waiting.add(segment.id)
