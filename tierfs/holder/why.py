"""Why bytes of a segment are where they are: the policy, the condition, the time or the failure that keeps them there.

The reasons are those of the planner: both read the same views.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from tierfs import policy
from tierfs.holder.failures import EVICT, PACK, of_object, of_segment
from tierfs.metadata import policies
from tierfs.metadata.policies import PolicyCache
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import owns_bucket
from tierfs.metadata.tables import FAILURES
from tierfs.metadata.transaction import ReadTransaction
from tierfs.tiering.candidates import cold_copies, placed_cold, sealed_local_chunks
from tierfs.tiering.snapshot import view_of
from tierfs.types import ByteRange, SegmentKind

_MS_PER_S = 1000

_MOST_CHUNKS = 64
"""Chunks of each kind that are told, from the segment's beginning: the holder plans no more of them at once."""


class _Cause(NamedTuple):
    why: str
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Reason:
    """What keeps some bytes of a segment on the local disk."""

    range: ByteRange
    cold: bool
    """Whether they are cold too, so that only their local copy stays."""
    why: str
    until_ms: int = 0
    """Time at which it ends by itself for all of them; 0 for none."""


def reasons(txn: ReadTransaction, segment: SegmentRecord, *, now_ms: int, held: bool) -> list[Reason]:
    """Return the reasons for the local bytes of a segment, in offset order; none once all of them are cold only.

    `held`: a process does the store's background work. Of a long segment only its beginning is explained.
    """
    if not segment.local.count:
        return []
    if not txn.store.cold_location_id:
        whole = ByteRange(segment.local.first_chunk, segment.length)
        return [Reason(whole, cold=False, why="the store has no cold tier")]
    found = sorted(_Explaining(txn, segment, now_ms, held=held).all(), key=lambda reason: reason.range.start)
    if not owns_bucket(txn.store):
        found = [Reason(one.range, one.cold, "this store may not change its bucket") for one in found]
    return _joined(found)


class _Explaining:
    """One segment's reasons, chunk by chunk."""

    def __init__(self, txn: ReadTransaction, segment: SegmentRecord, now_ms: int, *, held: bool) -> None:
        self._txn = txn
        self._segment = segment
        self._now_ms = now_ms
        self._held = held
        self._rules = policies.in_force(txn, segment)
        self._view, _ = view_of(txn, segment, PolicyCache(), lambda _: False)

    def all(self) -> Iterator[Reason]:
        """Yield them kind by kind."""
        yield from self._copies()
        yield from self._unpublished()
        for pending in self._view.pending:
            start = pending.action.range.start
            cause = self._failure(of_object((self._segment.id, start))) or self._waits(pending.ended_ms)
            yield Reason(pending.action.range, False, *cause)
        if self._view.active_since_ms:
            yield self._active()

    def _copies(self) -> Iterator[Reason]:
        published = self._txn.store.journal.published_sequence
        copies = cold_copies(
            sealed_local_chunks(self._txn, self._segment),
            placed_cold(self._txn, self._segment),
            published_sequence=published,
            start_offset=self._segment.start_offset,
        )
        failure = self._failure(of_segment(EVICT, self._segment.id))
        for chunk, cold_since_ms in islice(copies, _MOST_CHUNKS):
            yield Reason(chunk.range, True, *(failure or self._stays(cold_since_ms)))

    def _unpublished(self) -> Iterator[Reason]:
        published = self._txn.store.journal.published_sequence
        for placed in islice(placed_cold(self._txn, self._segment), _MOST_CHUNKS):
            if placed.object.linked_sequence > published:
                yield Reason(placed.range, True, "the bucket's journal does not name the cold copy yet")

    def _stays(self, cold_since_ms: int) -> _Cause:
        lag_s = self._view.policy.deletion_lag_s
        if self._view.keeps_local:
            return _Cause(self._told("read_priority"))
        if lag_s is None:
            return _Cause(f"{self._told('deletion_lag')}: until the disk needs room, or tierfs evict")
        return self._until("deletion_lag", cold_since_ms + lag_s * _MS_PER_S)

    def _waits(self, ended_ms: int) -> _Cause:
        after_s = self._view.policy.offload_after_s
        if after_s is not None:
            return self._until("offload_after", ended_ms + after_s * _MS_PER_S)
        above = self._view.policy.offload_above_bytes
        other = "" if above is None else f", {self._told('offload_above_bytes')}"
        return _Cause(f"{self._told('offload_after')}: until the disk needs room{other}, or tierfs offload")

    def _active(self) -> Reason:
        segment, view = self._segment, self._view
        if segment.kind is SegmentKind.LEDGER:
            return Reason(segment.range, False, "the ledger is open: it moves as a whole once it is closed")
        grown = ByteRange(segment.length - view.active_bytes, segment.length)
        why = f"its chunk is appended to: until {self._told('chunk_bytes')} or {self._told('chunk_age')}"
        return Reason(grown, False, why, view.active_since_ms + view.policy.chunk_age_s * _MS_PER_S)

    def _until(self, key: str, until_ms: int) -> _Cause:
        if until_ms > self._now_ms:
            return _Cause(self._told(key), until_ms)
        failure = self._failure(PACK)
        if failure is not None:
            return _Cause(f"it is due, but small objects wait: {failure.why}", failure.until_ms)
        if self._held:
            return _Cause("it is due: the holder does it next")
        return _Cause("it is due, and nobody does it: tierfs mount, or tierfs daemon")

    def _failure(self, what: str) -> _Cause | None:
        row = self._txn.get(FAILURES, what.encode())
        if row is None:
            return None
        return _Cause(f"it failed, {row.attempts} so far: {row.error}", row.next_try_ms)

    def _told(self, key: str) -> str:
        """Return a policy as `policy show` has it: name, value and origin."""
        found = self._rules.effective(key)
        return f"{key} = {policy.format(key, found.value)} ({found.origin})"


def _joined(found: list[Reason]) -> list[Reason]:
    """Join neighbours with one reason; the time is that of the last to end."""
    joined: list[Reason] = []
    for reason in found:
        last = joined[-1] if joined else None
        if last is None or (last.range.end, last.cold, last.why) != (reason.range.start, reason.cold, reason.why):
            joined.append(reason)
            continue
        whole = ByteRange(last.range.start, reason.range.end)
        joined[-1] = Reason(whole, last.cold, last.why, max(last.until_ms, reason.until_ms))
    return joined
