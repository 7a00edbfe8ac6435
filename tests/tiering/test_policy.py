"""The policy: what there is and the time in, actions out."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tests.tiering.reference_plan import Plan
from tierfs.metadata.records import ChunkRecord
from tierfs.policy import Policy
from tierfs.tiering.candidates import OffloadAction
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import ColdCopy, DiskView, EvictAction, PendingObject, SegmentSummary
from tierfs.types import ObjectId, ReadPriority, SegmentId

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ROOMY = DiskView(used_bytes=0, local_bytes=0, high_used_bytes=1000, high_local_bytes=1000, high_unoffloaded_bytes=1000)


def pending(segment_id: int, size: int, age_ms: int, start: int = 0) -> PendingObject:
    chunk = ChunkRecord(start_offset=start, length=size, object_id=ObjectId(1))
    return PendingObject(OffloadAction(SegmentId(segment_id), (chunk,)), NOW_MS - age_ms)


def view(segment_id: int, **fields: object) -> SegmentSummary:
    policy = fields.pop("policy", Policy(read_priority=ReadPriority.LOCAL_FIRST))
    return SegmentSummary(id=SegmentId(segment_id), policy=policy, local_bytes=0, **fields)  # type: ignore[arg-type]


def full(local_bytes: int) -> DiskView:
    return DiskView(0, local_bytes, high_used_bytes=10**9, high_local_bytes=100, high_unoffloaded_bytes=1000)


def plan(segments: Iterable[SegmentSummary], disk: DiskView, now_ms: int) -> Plan:
    """Return the actions of a planner of these segments, in the reference's form."""
    planner = Planner()
    for segment in segments:
        planner.put(segment)
    todo = planner.next(disk, now_ms)
    offloads = []
    while taken := planner.take_offloads():
        offloads += taken
    return Plan(todo.rolls, tuple(offloads), todo.evictions)


def sizes(todo: Plan) -> list[int]:
    return [found.bytes for found in todo.offloads]


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert plan([], ROOMY, NOW_MS) == Plan()


def test_active_chunks_end_at_their_age() -> None:
    young = view(1, active_since_ms=NOW_MS - 10 * MINUTE_MS + 1, active_bytes=5)
    old = view(2, active_since_ms=NOW_MS - 10 * MINUTE_MS, active_bytes=5)
    assert plan([young, old], ROOMY, NOW_MS).rolls == (2,)


def test_complete_chunks_are_offloaded_at_once_oldest_first() -> None:
    segments = [view(1, pending=(pending(1, 10, 5),)), view(2, pending=(pending(2, 20, 9), pending(2, 30, 0, 20)))]
    assert sizes(plan(segments, ROOMY, NOW_MS)) == [20, 10, 30]


def test_offload_after_holds_chunks_back_until_the_disk_presses() -> None:
    policy = Policy(offload_after_s=60)
    segments = [view(1, policy=policy, pending=(pending(1, 10, MINUTE_MS - 1), pending(1, 20, MINUTE_MS, 10)))]
    assert sizes(plan(segments, ROOMY, NOW_MS)) == [20]
    tight = DiskView(0, 0, high_used_bytes=1000, high_local_bytes=1000, high_unoffloaded_bytes=29)
    assert sizes(plan(segments, tight, NOW_MS)) == [20, 10]


def test_above_the_unoffloaded_watermark_the_largest_go_first_and_large_active_chunks_end() -> None:
    tight = DiskView(0, 0, high_used_bytes=1000, high_local_bytes=1000, high_unoffloaded_bytes=50)
    segments = [
        view(1, pending=(pending(1, 10, 9),), active_since_ms=NOW_MS, active_bytes=30),
        view(2, pending=(pending(2, 20, 1),), active_since_ms=NOW_MS, active_bytes=60),
        view(3, active_since_ms=NOW_MS, active_bytes=5),
    ]
    todo = plan(segments, tight, NOW_MS)  # 125 bytes are on this disk alone, 75 too many; 30 of them can go now
    assert sizes(todo) == [20, 10]
    assert todo.rolls == (2,)


def test_cold_bytes_go_after_the_lag() -> None:
    lag_ms = 4 * HOUR_MS
    segments = [
        view(1, copies=(ColdCopy(NOW_MS - lag_ms, 5), ColdCopy(NOW_MS - lag_ms + 1, 7))),
        view(2, copies=(ColdCopy(NOW_MS - lag_ms + 1, 7),)),
    ]
    assert plan(segments, ROOMY, NOW_MS).evictions == (EvictAction(SegmentId(1), NOW_MS - lag_ms),)


def test_pressure_waives_the_lag_for_what_was_cold_first() -> None:
    segments = [
        view(1, copies=(ColdCopy(NOW_MS - 30, 10), ColdCopy(NOW_MS - 10, 10))),
        view(2, copies=(ColdCopy(NOW_MS - 20, 10),)),
    ]
    assert plan(segments, full(100), NOW_MS).evictions == ()
    assert plan(segments, full(101), NOW_MS).evictions == (EvictAction(SegmentId(1), NOW_MS - 30),)
    assert plan(segments, full(115), NOW_MS).evictions == (
        EvictAction(SegmentId(1), NOW_MS - 30),
        EvictAction(SegmentId(2), NOW_MS - 20),
    )


def test_a_full_filesystem_presses_whoever_filled_it() -> None:
    disk = DiskView(
        used_bytes=901, local_bytes=1, high_used_bytes=900, high_local_bytes=10**9, high_unoffloaded_bytes=9
    )
    assert plan([view(1, copies=(ColdCopy(NOW_MS, 1),))], disk, NOW_MS).evictions != ()


def test_local_only_is_never_evicted() -> None:
    policy = Policy(read_priority=ReadPriority.LOCAL_ONLY)
    assert plan([view(1, policy=policy, copies=(ColdCopy(0, 10),))], full(500), NOW_MS).evictions == ()


@given(
    ages=st.lists(st.lists(st.integers(0, 8 * HOUR_MS), max_size=5), min_size=1, max_size=5),
    local_bytes=st.integers(0, 300),
)
def test_pressure_frees_enough_and_not_a_chunk_more(ages: list[list[int]], local_bytes: int) -> None:
    size = 10
    segments = [
        view(number, copies=tuple(ColdCopy(NOW_MS - age, size) for age in sorted(found, reverse=True)))
        for number, found in enumerate(ages, 1)
    ]
    todo = plan(segments, full(local_bytes), NOW_MS)
    cutoffs = {action.segment_id: action.cold_before_ms for action in todo.evictions}
    gone = [c for s in segments for c in s.copies if c.cold_since_ms <= cutoffs.get(s.id, -1)]
    early = [c for c in gone if NOW_MS - c.cold_since_ms < 4 * HOUR_MS]
    freed, excess = size * len(gone), max(0, local_bytes - 100)
    everything = size * sum(map(len, ages))
    assert freed >= min(excess, everything)
    # Equal times cannot be told apart, so ties of the last one may go with it.
    last = max((c.cold_since_ms for c in early), default=0)
    assert not early or freed - size * sum(c.cold_since_ms == last for c in early) < excess
