"""The policy: what there is, the disk and the time in, actions out; the disk presses at watermarks and at the floor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiering.reference_plan import Plan
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.options.policy import Policy
from tierfs.base.words.types import MIB, ObjectId, ReadPriority, SegmentId
from tierfs.engine.chunkstore.local_files import DiskBytes
from tierfs.engine.metadata.records import ChunkRecord
from tierfs.tiering.candidates import OffloadAction
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import ColdCopy, DiskView, EvictAction, PendingObject, SegmentSummary, disk_view

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


LAG_MS = 4 * HOUR_MS
LOCAL_ONLY = Policy(read_priority=ReadPriority.LOCAL_ONLY)
WAITS = Policy(offload_after_s=60)
COLD_IN_TURN = (
    view(1, copies=(ColdCopy(NOW_MS - 30, 10), ColdCopy(NOW_MS - 10, 10))),
    view(2, copies=(ColdCopy(NOW_MS - 20, 10),)),
)
HELD_BACK = (view(1, policy=WAITS, pending=(pending(1, 10, MINUTE_MS - 1), pending(1, 20, MINUTE_MS, 10))),)
ALONE_HERE = (
    view(1, pending=(pending(1, 10, 9),), active_since_ms=NOW_MS, active_bytes=30),
    view(2, pending=(pending(2, 20, 1),), active_since_ms=NOW_MS, active_bytes=60),
    view(3, active_since_ms=NOW_MS, active_bytes=5),
)


def unoffloaded(limit: int) -> DiskView:
    return DiskView(0, 0, high_used_bytes=1000, high_local_bytes=1000, high_unoffloaded_bytes=limit)


def filled(used_bytes: int) -> DiskView:
    """A filesystem that others filled, too."""
    return DiskView(used_bytes, 1, high_used_bytes=900, high_local_bytes=10**9, high_unoffloaded_bytes=9)


def aged(age_ms: int) -> SegmentSummary:
    return view(1, active_since_ms=NOW_MS - age_ms, active_bytes=5)


ROWS: dict[str, tuple[Sequence[SegmentSummary], DiskView, tuple[int, ...], list[int], list[tuple[int, int]]]] = {
    "nothing to do": ([], ROOMY, (), [], []),
    "an active chunk, just too young": ([aged(10 * MINUTE_MS - 1)], ROOMY, (), [], []),
    "an active chunk ends at its age": ([aged(10 * MINUTE_MS)], ROOMY, (1,), [], []),
    "complete chunks go at once, the oldest first": (
        [view(1, pending=(pending(1, 10, 5),)), view(2, pending=(pending(2, 20, 9), pending(2, 30, 0, 20)))],
        ROOMY,
        (),
        [20, 10, 30],
        [],
    ),
    "offload-after holds chunks back": (HELD_BACK, unoffloaded(30), (), [20], []),
    "until the disk presses": (HELD_BACK, unoffloaded(29), (), [20, 10], []),
    # 125 bytes are on this disk alone, 75 too many; 30 of them can go now
    "above the watermark the largest go first, and large active chunks end": (
        ALONE_HERE,
        unoffloaded(50),
        (2,),
        [20, 10],
        [],
    ),
    "at the watermark": (ALONE_HERE, unoffloaded(125), (), [10, 20], []),
    "cold bytes go after the lag": (
        [
            view(1, copies=(ColdCopy(NOW_MS - LAG_MS, 5), ColdCopy(NOW_MS - LAG_MS + 1, 7))),
            view(2, copies=(ColdCopy(NOW_MS - LAG_MS + 1, 7),)),
        ],
        ROOMY,
        (),
        [],
        [(1, LAG_MS)],
    ),
    "at the local watermark": (COLD_IN_TURN, full(100), (), [], []),
    "above it the lag is waived for what was cold first": (COLD_IN_TURN, full(101), (), [], [(1, 30)]),
    "as far as one chunk goes": (COLD_IN_TURN, full(110), (), [], [(1, 30)]),
    "and beyond": (COLD_IN_TURN, full(111), (), [], [(1, 30), (2, 20)]),
    "at a filesystem's watermark": (COLD_IN_TURN, filled(900), (), [], []),
    "a full filesystem presses, no matter who filled it": (COLD_IN_TURN, filled(901), (), [], [(1, 30)]),
}


@pytest.mark.parametrize(("segments", "disk", "rolls", "offloads", "evictions"), ROWS.values(), ids=ROWS)
def test_what_there_is_decides(
    segments: Sequence[SegmentSummary],
    disk: DiskView,
    rolls: tuple[int, ...],
    offloads: list[int],
    evictions: list[tuple[int, int]],
) -> None:
    """Rolls by segment, offloads by size, evictions by segment and how long their bytes must have been cold."""
    todo = plan(segments, disk, NOW_MS)
    assert (todo.rolls, sizes(todo)) == (rolls, offloads)
    assert todo.evictions == tuple(EvictAction(SegmentId(number), NOW_MS - age_ms) for number, age_ms in evictions)


@pytest.mark.parametrize("disk", [ROOMY, full(500), filled(1000)])
def test_local_only_is_never_evicted(disk: DiskView) -> None:
    assert plan([view(1, policy=LOCAL_ONLY, copies=(ColdCopy(0, 10),))], disk, NOW_MS).evictions == ()


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


GIB = 1024 * MIB
FLOOR = 64 * MIB
EMPTYISH = BackgroundSettings(high_watermark_percent=99, unoffloaded_watermark_percent=99)


def planned(free_bytes: int, local_bytes: int, *segments: SegmentSummary) -> Plan:
    """The plan with so much free space of 1 GiB that has a floor of 64 MiB."""
    disk = DiskBytes(size=GIB, used=GIB - free_bytes, free=free_bytes)
    return plan(segments, disk_view(disk, local_bytes, FLOOR, EMPTYISH), NOW_MS)


def cold(number: int, mebibytes: int) -> SegmentSummary:
    return view(number, copies=(ColdCopy(NOW_MS, mebibytes * MIB),))


def active(number: int, mebibytes: int) -> SegmentSummary:
    return view(number, active_since_ms=NOW_MS, active_bytes=mebibytes * MIB)


@pytest.mark.parametrize(
    ("excess", "rolled"), [(0, ()), (1, (2,)), (60, (2,)), (61, (2, 3)), (90, (2, 3)), (91, (2, 3))]
)
def test_wholly_cold_active_chunks_end_where_copies_make_too_little_room(excess: int, rolled: tuple[int, ...]) -> None:
    """The largest first; not those that are to stay local, nor those with bytes here alone."""
    segments = (
        view(1, active_since_ms=NOW_MS, active_bytes=500),
        view(2, active_since_ms=NOW_MS, active_cold_bytes=60),
        view(3, active_since_ms=NOW_MS, active_cold_bytes=30),
        view(4, policy=LOCAL_ONLY, active_since_ms=NOW_MS, active_cold_bytes=99),
        view(5, copies=(ColdCopy(NOW_MS - 1, 10),)),
    )
    todo = plan(segments, full(100 + 10 + excess), NOW_MS)
    assert todo.rolls == rolled
    assert [action.segment_id for action in todo.evictions] == [5]


@pytest.mark.parametrize(
    ("free_mebibytes", "evicted"),
    # Well above the floor; just above it, where the next append would be refused again; below it.
    [(200, []), (65, [1]), (64, [1]), (63, [1])],
)
def test_below_the_floor_for_appends_cold_bytes_go_although_the_watermark_is_not_reached(
    free_mebibytes: int, evicted: list[int]
) -> None:
    evictions = planned(free_mebibytes * MIB, 50 * MIB, cold(1, 50)).evictions
    assert [action.segment_id for action in evictions] == evicted


def test_pressure_takes_copies_of_the_trash_first_and_the_oldest_removal_before_others() -> None:
    trash = [replace(cold(number, 10), removed_ms=NOW_MS - number) for number in (1, 2, 3)]
    old = view(4, copies=(ColdCopy(NOW_MS - 1000, 10 * MIB),))
    assert planned(200 * MIB, 40 * MIB, *trash, old).evictions == ()
    for excess, gone in ((5, {3}), (15, {3, 2}), (35, {1, 2, 3, 4})):
        free_bytes = FLOOR + 20 * GIB // 1024 + GIB // 50 - 20 * MIB - excess * MIB
        evictions = planned(free_bytes, 40 * MIB, *trash, old).evictions
        assert {action.segment_id for action in evictions} == gone
        assert {action.cold_before_ms for action in evictions if action.segment_id != 4} == {NOW_MS}


def test_what_root_alone_may_use_is_not_free() -> None:
    disk = DiskBytes(size=GIB, used=GIB // 2, free=10 * MIB)
    assert disk_view(disk, 50 * MIB, FLOOR, EMPTYISH).excess_bytes >= FLOOR - disk.free


@pytest.mark.parametrize(("cold_mebibytes", "rolls"), [(200, ()), (10, (2,))])
def test_active_chunks_end_when_evicting_cold_bytes_does_not_reach_the_floor(
    cold_mebibytes: int, rolls: tuple[int, ...]
) -> None:
    todo = planned(10 * MIB, (cold_mebibytes + 101) * MIB, cold(1, cold_mebibytes), active(2, 100), active(3, 1))
    assert todo.rolls == rolls
    assert [action.segment_id for action in todo.evictions] == [1]


def test_bytes_on_this_disk_alone_go_out_before_their_time_when_the_floor_is_near() -> None:
    slow = view(1, policy=Policy(offload_after_s=3600), pending=(pending(1, 30 * MIB, 0),))
    assert planned(200 * MIB, 30 * MIB, slow).offloads == ()
    assert sizes(planned(10 * MIB, 30 * MIB, slow)) == [30 * MIB]
