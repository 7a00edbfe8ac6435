"""Finding cold chunks to consolidate without being asked, kept current by the database's own list of changes.

What is large enough at the beginning of a segment stays so: each look begins where the last one found small
chunks. A new holder, or a change of a directory's policy, looks at everything once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from tierfs.background import consolidation_policy as policy
from tierfs.background.consolidation_plan import ConsolidateAction, Eligible, SegmentChunks, plan
from tierfs.background.snapshot import SLICE_S
from tierfs.background.touched import TouchedSegments
from tierfs.config import OffloadSettings
from tierfs.errors import TierfsError
from tierfs.metadata import chains, directories, policies
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.messages import messages
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import LocationId, SegmentId, Tier

_SCAN_ROWS = 500
"""Segments read per transaction by a pass over all: some 2 ms."""

_LOOKS = 500
"""Segments looked at per call at most."""

_WINDOW_CHUNKS = 2000
"""Chunks of a segment looked at per call: some 60 ms and 4 MiB. A segment of 100,000 is looked at in 50 calls; all of
it at once took seconds of the interpreter, anew for each object made, and 15 ms of every read meanwhile."""


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
        self._scan_from: bytes | None = None
        """Key of the next segment of a pass over all; None when there is no such pass."""
        self._again = False
        """Whether another pass follows, as policies changed in the middle of this one."""
        self.pending: dict[SegmentId, None] = {}
        """To be looked at, in this order."""
        self.more = False
        """Whether the last call ended before it had looked at all."""

    def next(self, may_try: Callable[[SegmentId], bool]) -> ConsolidateAction | None:
        """Something to do for a segment that `may_try` allows; None when there is nothing, or not yet.

        Raises DataLoss for a segment whose records are damaged; the next call goes on with the others.
        Costs microseconds while nothing was committed, else a slice of time: `more` then says whether it was too short.
        """
        newest = self._metadata.last_transaction_id()
        self.more = False
        if newest == self._seen_transaction and not self.pending and self._scan_from is None:
            return None
        self._refresh()
        self._seen_transaction = newest
        started_s = self._metadata.clock.monotonic_s()
        for looks, segment_id in enumerate(self._candidates(), 1):
            if not may_try(segment_id):
                continue
            action = self._looked_at(segment_id)
            if action is not None:
                return action
            del self.pending[segment_id]
            if segment_id in self._reached:
                self.pending[segment_id] = None  # behind the others
            long = segment_id in self._reached or self._metadata.clock.monotonic_s() - started_s >= SLICE_S
            if long or looks >= _LOOKS:
                self.more = True
                return None
        return None

    def _looked_at(self, segment_id: SegmentId) -> ConsolidateAction | None:
        try:
            with self._metadata.read() as txn:
                return self._look_at(txn, segment_id)
        except TierfsError:
            del self.pending[segment_id]  # its next change brings it back; the others must not wait for that
            raise

    def is_known(self, segment_id: SegmentId) -> bool:
        """Whether a segment is to be looked at, or may be: a pass over all has not met every one yet."""
        return segment_id in self.pending or self._scan_from is not None

    def _candidates(self) -> Iterator[SegmentId]:
        """Segments to look at; those of a pass over all as they are met."""
        yield from list(itertools.islice(self.pending, _LOOKS))
        while self._scan_from is not None:
            with self._metadata.read() as txn:
                rows = list(itertools.islice(messages(txn, SEGMENTS, self._scan_from), _SCAN_ROWS))
            self._scan_from = rows[-1][0] + b"\0" if len(rows) == _SCAN_ROWS else b"" if self._again else None
            self._again = self._again and len(rows) == _SCAN_ROWS
            found = [SegmentId(row.id) for _, row in rows if row is not None and policy.may_have_work(row)]
            self.pending.update(dict.fromkeys(found))
            yield from found

    def _refresh(self) -> None:
        touched = self._touched.since_last()
        self.pending.update(dict.fromkeys(sorted(touched.segments)))
        for segment_id in touched.own_policies:
            self._settled.pop(segment_id, None)
            self._reached.pop(segment_id, None)
        if touched.everything:
            self._settled.clear()
            self._reached.clear()
            self._again = self._scan_from is not None
            self._scan_from = self._scan_from or b""
        with self._metadata.read() as txn:
            published = txn.store.journal.published_sequence
        if published != self._published:
            self._published = published
            self.pending.update(dict.fromkeys(sorted(self._waiting)))
            self._waiting.clear()

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
