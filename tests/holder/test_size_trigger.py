"""Offload by size at scale: the cost of a changed segment does not grow with the number of the others."""

from __future__ import annotations

from tests.costs import calls
from tierfs.metadata.records import ChunkRecord
from tierfs.policy import Policy
from tierfs.tiering.candidates import OffloadAction
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView, PendingObject, SegmentSummary, StreamPlace
from tierfs.types import ROOT_DIRECTORY, ObjectId, SegmentId

ROOMY = DiskView(0, 0, high_used_bytes=1 << 50, high_local_bytes=1 << 50, high_unoffloaded_bytes=1 << 50)


async def test_thousands_of_segments_are_counted_one_by_one_at_the_cost_of_the_changed_one() -> None:
    planner, policy = Planner(), Policy(offload_after_s=None, offload_above_bytes=3)

    def put(number: int, stream: str, size: int = 4) -> int:
        """Return the calls that a changed view costs."""
        chunk = ChunkRecord(start_offset=number, length=size, object_id=ObjectId(1))
        waiting = (PendingObject(OffloadAction(SegmentId(number), (chunk,)), ended_ms=number),)
        place = StreamPlace((ROOT_DIRECTORY, stream), number, size)
        view = SegmentSummary(SegmentId(number), policy, local_bytes=size, place=place, pending=waiting)
        return calls(lambda: planner.put(view))

    def due() -> set[int]:
        planner.next(ROOMY, now_ms=0)
        taken = []
        while some := planner.take_offloads():
            taken += [pending.action.segment_id for pending in some]
        return set(taken)

    few = [put(number, f"stream {number}", 3) for number in range(1, 101)][-1]
    many = [put(number, f"stream {number}", 3) for number in range(101, 2001)][-1]
    assert many <= 2 * few
    assert due() == set()
    put(7, "stream 7")
    assert due() == {7}
    one = [put(number, "one stream") for number in range(20_001, 22_001)]
    assert max(one[-100:]) <= 2 * max(one[100:200]), "64 are due at the same time, however many there are"
    assert due() == set(range(20_001, 20_065))
