"""Why bytes of a segment are where they are: the policy, the condition, the time or the failure that keeps them there.

The parts are those that the planner moves; the words are those of waits.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, SegmentKind, Tier
from tierfs.engine.metadata import chains, policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.candidates import (
    action_ended_ms,
    active_since_ms,
    cold_copies,
    objects_to_make,
    placed_cold,
    sealed_local_chunks,
)
from tierfs.upkeep.holder.failures import CLOCKS, EVICT, PUBLISH, of_object, of_segment
from tierfs.upkeep.holder.waits import Cause, Causes, Wait

# Chunks and objects of each kind that are told, from the segment's beginning: the holder plans no more at once.
_MOST_PARTS = 64

# Uploads in flight that are looked through: some 20 at most, and those that killed processes left.
_MOST_UPLOADS = 256


@dataclass(frozen=True, slots=True)
class Reason:
    """What keeps some bytes of a segment on the local disk."""

    range: ByteRange
    cold: bool
    """Whether they are cold too, so that only their local copy stays."""
    kind: Wait
    why: str
    until_ms: int = 0
    """Time at which it ends by itself for all of them; 0 for none."""


def reasons(
    txn: ReadTransaction, segment: SegmentRecord, *, now_ms: int, held: bool, writer: str | None = None
) -> list[Reason]:
    """Return the reasons for the local bytes of a segment, in offset order; none once all of them are cold only.

    `held`: a process does the store's background work. `writer`: the process that appends now. Of a long segment only
    its beginning is explained.
    """
    if not segment.local.count:
        return []
    causes = Causes(txn, now_ms, held=held)
    whole = causes.of_store()
    if whole is not None and whole.kind is Wait.NO_COLD_TIER:
        return [Reason(ByteRange(segment.local.first_chunk, segment.length), False, *whole)]
    parts = sorted(_Explaining(txn, segment, causes, writer).all(), key=lambda reason: reason.range.start)
    if whole is not None:
        parts = [Reason(reason.range, reason.cold, *whole) for reason in parts]
    return _joined(parts)


class _Explaining:
    """One segment's reasons, chunk by chunk."""

    def __init__(self, txn: ReadTransaction, segment: SegmentRecord, causes: Causes, writer: str | None) -> None:
        self._txn = txn
        self._segment = segment
        self._causes = causes
        self._writer = writer
        self._rules = policies.in_force(txn, segment)

    def all(self) -> Iterator[Reason]:
        """Yield them kind by kind."""
        yield from self._copies()
        yield from self._unpublished()
        yield from self._pending()
        yield from self._active()

    def _copies(self) -> Iterator[Reason]:
        published = self._txn.store.journal.published_sequence
        copies = cold_copies(
            sealed_local_chunks(self._txn, self._segment),
            placed_cold(self._txn, self._segment),
            published_sequence=published,
            start_offset=self._segment.start_offset,
        )
        for chunk, cold_since_ms in islice(copies, _MOST_PARTS):
            yield Reason(chunk.range, True, *self._causes.of_copy(self._rules, cold_since_ms, self._evictions()))

    def _evictions(self) -> tuple[str, ...]:
        return of_segment(EVICT, self._segment.id), EVICT, CLOCKS

    def _unpublished(self) -> Iterator[Reason]:
        published = self._txn.store.journal.published_sequence
        row = self._causes.failure(PUBLISH)
        failed = "" if row is None else f": {row.error}"
        why = f"the cold copy is not in the bucket's journal yet{failed}"
        for placed in islice(placed_cold(self._txn, self._segment), _MOST_PARTS):
            if placed.object.linked_sequence > published:
                yield Reason(placed.range, True, Wait.UNPUBLISHED, why, 0 if row is None else row.next_try_ms)

    def _pending(self) -> Iterator[Reason]:
        segment, uploads = self._segment, self._uploads()
        for action in islice(objects_to_make(self._txn, segment, self._rules.values), _MOST_PARTS):
            failures = (of_object((segment.id, action.range.start)),)
            cause = self._causes.of_pending(self._rules, action_ended_ms(self._txn, segment, action), failures)
            if any(span.intersect(action.range) for span in uploads):
                cause = Cause(Wait.UPLOADING, "it is being uploaded")
            yield Reason(action.range, False, *cause)

    def _uploads(self) -> list[ByteRange]:
        """Return the ranges for which an object is being made, if somebody is there to make it."""
        rows = islice(self._txn.scan(INTENTS), _MOST_UPLOADS) if self._causes.held else ()
        return [ByteRange(row.start_offset, row.end_offset) for _, row in rows if row.segment_id == self._segment.id]

    def _active(self) -> Iterator[Reason]:
        segment, rules = self._segment, self._rules
        last = chains.chunk_at(self._txn, segment.id, Tier.LOCAL, segment.local.last_chunk)
        active = last if segment.active else None
        since_ms = active_since_ms(self._txn, segment, active)
        if not since_ms:
            return
        if segment.kind is SegmentKind.LEDGER:
            why = "the ledger is open: it moves as a whole once it is closed"
            yield Reason(segment.range, False, Wait.GROWING, why)
            return
        if active is not None and active.length:
            grown = ByteRange(max(segment.start_offset, active.start_offset), active.end_offset)
            cause = self._causes.of_active(rules, since_ms, self._writer)
            alone = [grown] if segment.growing_bytes == grown.length_bytes else self._not_cold(grown)
            yield from (Reason(part, False, *cause) for part in alone)
            yield from (Reason(part, True, *cause) for part in ranges.gaps(grown, alone))

    def _not_cold(self, span: ByteRange) -> list[ByteRange]:
        """Return the bytes that the cold tier has not acknowledged."""
        if not self._segment.growing_bytes:
            return []
        cold = chains.overlapping(self._txn, self._segment.id, Tier.COLD, span)
        return list(ranges.gaps(span, (chunk.range for chunk in cold if not chunk.lost)))


def _joined(parts: list[Reason]) -> list[Reason]:
    """Join neighbours with one reason; the time is that of the last to end."""
    joined: list[Reason] = []
    for reason in parts:
        last = joined[-1] if joined else None
        if last is None or (last.range.end, last.cold, last.why) != (reason.range.start, reason.cold, reason.why):
            joined.append(reason)
            continue
        whole = ByteRange(last.range.start, reason.range.end)
        joined[-1] = Reason(whole, last.cold, last.kind, last.why, max(last.until_ms, reason.until_ms))
    return joined
