"""Offload by size: `offload_above_bytes` makes the oldest complete chunks of a segment, or of a stream, cold early."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.costs import calls
from tests.holder.holding import working
from tests.stores import TestStore, open_test_store
from tierfs.metadata import policies
from tierfs.metadata.records import ChunkRecord
from tierfs.policy import Policy
from tierfs.tiering.candidates import OffloadAction
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView, PendingObject, SegmentSummary, StreamPlace
from tierfs.types import ROOT_DIRECTORY, ObjectId, SegmentId

SETTLED_S = 5
ROOMY = DiskView(0, 0, high_used_bytes=1 << 50, high_local_bytes=1 << 50, high_unoffloaded_bytes=1 << 50)
BASE = {"chunk_bytes": "4", "object_bytes": "4", "offload_after": "off"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=BASE) as opened:
        yield opened


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, BASE | settings)


def cold(store: TestStore, *names: str) -> list[int]:
    return [store.segment(name).cold.bytes for name in names]


@pytest.mark.parametrize(("above", "cold_bytes"), [(13, 0), (12, 0), (11, 4), (8, 4), (7, 8), (1, 12)])
async def test_the_oldest_chunks_go_until_no_more_than_the_limit_is_here_alone(
    store: TestStore, autojump_clock: MockClock, above: int, cold_bytes: int
) -> None:
    store.append("s", b"abcdefghijkl", seal=True)
    set_policy(store, offload_above_bytes=str(above))
    async with working(store):
        await trio.sleep(SETTLED_S)
    assert cold(store, "s") == [cold_bytes]
    first = [placed.chunk.start_offset for placed in store.layout("s").cold]
    assert first == list(range(0, cold_bytes, 4))


async def test_a_segment_that_grows_stays_below_the_limit_and_its_active_chunk_does_not_count(
    store: TestStore, autojump_clock: MockClock
) -> None:
    set_policy(store, offload_above_bytes="8", chunk_age="1000000")
    async with working(store):
        store.append("s", b"abcdefgh", b"ij")
        await trio.sleep(SETTLED_S)
        assert cold(store, "s") == [0]
        store.append("s", b"kl", b"m")
        await trio.sleep(SETTLED_S)
        assert cold(store, "s") == [4]
        store.append("s", b"nop", b"q")
        await trio.sleep(SETTLED_S)
        assert cold(store, "s") == [8]


async def test_a_stream_counts_as_one_and_others_for_themselves(store: TestStore, autojump_clock: MockClock) -> None:
    set_policy(store, offload_above_bytes="8", seal_bytes="4")
    for _ in range(4):
        store.append("s", b"abcd")
        store.append("other", b"ab")
    async with working(store):
        await trio.sleep(SETTLED_S)
        assert cold(store, "s", "s.4", "s.8", "s.12") == [4, 4, 0, 0]
        assert cold(store, "other", "other.4") == [0, 0]
        store.append("s", b"efgh")
        store.append("s", b"i")
        await trio.sleep(SETTLED_S)
        assert cold(store, "s", "s.4", "s.8", "s.12") == [4, 4, 4, 0]


async def test_bytes_that_are_cold_or_cut_off_do_not_count(store: TestStore, autojump_clock: MockClock) -> None:
    store.append("s", b"abcdefghijkl", seal=True)
    store.offload()
    store.append("t", b"abcdefghijkl", seal=True)
    store.engine.truncate("t", 5, cold_due_ms=0)
    set_policy(store, offload_above_bytes="7")
    async with working(store):
        await trio.sleep(SETTLED_S)
    assert cold(store, "s", "t") == [12, 0]


async def test_ten_thousand_segments_are_counted_one_by_one_at_the_cost_of_the_changed_one() -> None:
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
    many = [put(number, f"stream {number}", 3) for number in range(101, 10_001)][-1]
    assert many <= 2 * few
    assert due() == set()
    put(7, "stream 7")
    assert due() == {7}
    one = [put(number, "one stream") for number in range(20_001, 30_001)]
    assert max(one[-100:]) <= 2 * max(one[100:200]), "64 are due at the same time, however many there are"
    assert due() == set(range(20_001, 20_065))
