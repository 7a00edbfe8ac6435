"""When the local disk presses: the watermarks, and the floor below which appends are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tiering.reference_plan import Plan
from tests.tiering.test_policy import NOW_MS, pending, plan, sizes, view
from tierfs.chunkstore.local_files import DiskBytes
from tierfs.config import BackgroundSettings
from tierfs.policy import Policy
from tierfs.tiering.policy import ColdCopy, SegmentSummary, disk_view
from tierfs.types import MIB

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


def test_below_the_floor_for_appends_cold_bytes_go_although_the_watermark_is_not_reached() -> None:
    assert planned(200 * MIB, 50 * MIB, cold(1, 50)).evictions == ()
    assert [action.segment_id for action in planned(63 * MIB, 50 * MIB, cold(1, 50)).evictions] == [1]


def test_eviction_leaves_room_for_appends_above_the_floor() -> None:
    evictions = planned(65 * MIB, 50 * MIB, cold(1, 50)).evictions
    assert [action.segment_id for action in evictions] == [1], "the next append would be refused again"


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
