"""Why bytes of a segment are where they are: the policy, the condition, the time or the failure that keeps them there.

The reasons are those of the planner: both read the same views.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tierfs import policy
from tierfs.metadata import policies
from tierfs.metadata.policies import PolicyCache
from tierfs.metadata.records import FailureRecord, SegmentRecord
from tierfs.metadata.store import owns_bucket
from tierfs.metadata.tables import FAILURES
from tierfs.metadata.transaction import ReadTransaction
from tierfs.precedence import Policies
from tierfs.tiering.policy import SegmentSummary
from tierfs.tiering.snapshot import view_of
from tierfs.types import ByteRange, SegmentKind

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Reason:
    """What keeps some bytes of a segment on the local disk."""

    range: ByteRange
    cold: bool
    """Whether they are cold too, so that only their local copy stays."""
    why: str
    until_ms: int = 0
    """Time at which it ends by itself; 0 for none."""


def reasons(txn: ReadTransaction, segment: SegmentRecord, path: str, *, now_ms: int, held: bool) -> Iterator[Reason]:
    """Yield the reasons for the local bytes of a segment, in offset order; none once all of them are cold only.

    `held`: a process does the store's background work. Of a long segment only the first objects are told, as the holder
    plans no more of them at once.
    """
    if not segment.local.count:
        return
    whole = ByteRange(segment.local.first_chunk, segment.length)
    if not txn.store.cold_location_id:
        yield Reason(whole, cold=False, why="the store has no cold tier")
        return
    if not owns_bucket(txn.store):
        yield Reason(whole, cold=False, why="this store may not change its bucket")
        return
    rules = policies.in_force(txn, segment)
    view, waits_for = view_of(txn, segment, PolicyCache(), lambda _: False)
    yield from _copies(rules, view, whole, now_ms, waits_for=waits_for, held=held)
    failure = next((row for _, row in txn.scan(FAILURES) if row.name == path), None)
    yield from _pending(rules, view, failure, now_ms, held=held)
    if view.active_since_ms:
        yield _active(rules, view, segment)


def _copies(
    rules: Policies, view: SegmentSummary, whole: ByteRange, now_ms: int, *, waits_for: int, held: bool
) -> Iterator[Reason]:
    if waits_for:
        yield Reason(whole, cold=True, why="the bucket's journal does not name all cold copies yet")
    if not view.copies:
        return
    last = view.copies[-1]
    copied = ByteRange(whole.start, whole.start + sum(copy.bytes for copy in view.copies))
    lag_s = view.policy.deletion_lag_s
    if view.keeps_local:
        yield Reason(copied, cold=True, why=_told(rules, "read_priority"))
    elif lag_s is None:
        yield Reason(
            copied, cold=True, why=f"{_told(rules, 'deletion_lag')}: until the disk needs room, or tierfs evict"
        )
    else:
        until_ms = last.cold_since_ms + lag_s * _MS_PER_S
        why = _told(rules, "deletion_lag") if until_ms > now_ms else _next(held=held)
        yield Reason(copied, cold=True, why=why, until_ms=until_ms if until_ms > now_ms else 0)


def _pending(
    rules: Policies, view: SegmentSummary, failure: FailureRecord | None, now_ms: int, *, held: bool
) -> Iterator[Reason]:
    after_s = view.policy.offload_after_s
    for pending in view.pending:
        if failure is not None:
            why = f"{failure.what} failed {failure.attempts} times: {failure.error}"
            yield Reason(pending.action.range, cold=False, why=why, until_ms=failure.next_try_ms)
            continue
        if after_s is None:
            above = view.policy.offload_above_bytes
            other = "" if above is None else f", {_told(rules, 'offload_above_bytes')}"
            why = f"{_told(rules, 'offload_after')}: until the disk needs room{other}, or tierfs offload"
            yield Reason(pending.action.range, cold=False, why=why)
            continue
        until_ms = pending.ended_ms + after_s * _MS_PER_S
        waits = until_ms > now_ms
        why = _told(rules, "offload_after") if waits else _next(held=held)
        yield Reason(pending.action.range, cold=False, why=why, until_ms=until_ms if waits else 0)


def _active(rules: Policies, view: SegmentSummary, segment: SegmentRecord) -> Reason:
    if segment.kind is SegmentKind.LEDGER:
        return Reason(
            ByteRange(0, segment.length), cold=False, why="the ledger is open: it moves as a whole once closed"
        )
    until_ms = view.active_since_ms + view.policy.chunk_age_s * _MS_PER_S
    why = f"its chunk is appended to: until {_told(rules, 'chunk_bytes')} or {_told(rules, 'chunk_age')}"
    return Reason(ByteRange(segment.length - view.active_bytes, segment.length), cold=False, why=why, until_ms=until_ms)


def _next(*, held: bool) -> str:
    return (
        "it is due: the holder does it next"
        if held
        else "it is due, and nobody does it: tierfs mount, or tierfs daemon"
    )


def _told(rules: Policies, key: str) -> str:
    """Return a policy as `policy show` has it: name, value and origin."""
    found = rules.effective(key)
    return f"{key} = {policy.format(key, found.value)} ({found.origin})"
