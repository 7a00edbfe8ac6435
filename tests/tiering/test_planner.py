"""The planner does what one pass over everything would, at the cost of what changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.costs import calls
from tests.stores import TestStore, open_test_store
from tests.tiering.cold_pieces import cut_head
from tests.tiering.reference_plan import plan
from tierfs.base.options.policy import Policy
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, ObjectId, ReadPriority, SegmentId, Tier
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, SegmentRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.tiering.candidates import OffloadAction, objects_to_make, offload_actions, sealed_local_chunks
from tierfs.tiering.offload_queue import key_of
from tierfs.tiering.planner import Backlog, Planner
from tierfs.tiering.policy import ColdCopy, DiskView, PendingObject, SegmentSummary, StreamPlace

NOW_MS = 10_000_000

TIMES = st.integers(NOW_MS - 200_000, NOW_MS)

SIZES = st.integers(1, 40)

POLICIES = st.builds(
    Policy,
    chunk_age_s=st.sampled_from([60, 120]),
    offload_after_s=st.sampled_from([0, 50, 100, None]),
    deletion_lag_s=st.sampled_from([0, 50, 100]),
    read_priority=st.sampled_from([ReadPriority.LOCAL_FIRST, ReadPriority.LOCAL_ONLY]),
)

ROOMY = DiskView(0, 0, high_used_bytes=1 << 50, high_local_bytes=1 << 50, high_unoffloaded_bytes=1 << 50)


def pending(segment_id: int, start: int, size: int, ended_ms: int, *, compresses: bool = False) -> PendingObject:
    chunk = ChunkRecord(start_offset=start, length=size, object_id=ObjectId(1))
    return PendingObject(OffloadAction(SegmentId(segment_id), (chunk,), compresses=compresses), ended_ms)


@st.composite
def views(draw: Callable[..., int]) -> SegmentSummary:
    """A segment of any kind; a few ids, so that they change often."""
    segment_id = draw(st.integers(1, 6))
    objects = draw(st.lists(st.tuples(SIZES, TIMES), max_size=4))
    copies = draw(st.lists(st.builds(ColdCopy, TIMES, SIZES), max_size=4))
    active = draw(st.booleans())
    return SegmentSummary(
        id=SegmentId(segment_id),
        policy=draw(POLICIES),
        local_bytes=draw(SIZES),
        active_since_ms=draw(TIMES) if active else 0,
        active_bytes=draw(SIZES) if active else 0,
        place=StreamPlace((ROOT_DIRECTORY, ""), segment_id, draw(SIZES)) if objects else None,
        pending=tuple(pending(segment_id, 100 * at, *found) for at, found in enumerate(objects)),
        copies=tuple(sorted(copies, key=lambda copy: copy.cold_since_ms)),
    )


class Changes(RuleBasedStateMachine):
    """Random changes, time and disks: the planner's actions are always those of the reference."""

    def __init__(self) -> None:
        super().__init__()
        self.planner = Planner()
        self.segments: dict[SegmentId, SegmentSummary] = {}
        self.taken: set[tuple[SegmentId, int]] = set()
        self.now_ms = NOW_MS
        self.disk = ROOMY
        self.lag_counts = True

    @rule(view=views())
    def change(self, view: SegmentSummary) -> None:
        self.segments[view.id] = view
        self.planner.put(view)

    @rule(segment_id=st.integers(1, 6))
    def drop(self, segment_id: int) -> None:
        self.segments.pop(SegmentId(segment_id), None)
        self.planner.drop(SegmentId(segment_id))

    @rule(seconds=st.integers(0, 60))
    def wait(self, seconds: int) -> None:
        self.now_ms += seconds * 1000

    @rule(
        local=st.sampled_from([10, 30, 100, 1 << 30]),
        unoffloaded=st.sampled_from([10, 60, 1 << 30]),
        lag_counts=st.booleans(),
    )
    def press(self, local: int, unoffloaded: int, lag_counts: bool) -> None:
        self.disk = replace(ROOMY, high_local_bytes=local, high_unoffloaded_bytes=unoffloaded)
        self.lag_counts = lag_counts

    @rule()
    def take(self) -> None:
        self.taken.update(key_of(found) for found in self.planner.take_offloads())

    @rule()
    def release(self) -> None:
        if self.taken:
            self.planner.offloads.release(self.taken.pop())

    @rule()
    def fail(self) -> None:
        """One fails, rests, and is woken at once: as if nothing had been."""
        if self.taken:
            self.planner.offloads.rest(self.taken.pop(), self.now_ms + 1000)
            self.planner.offloads.wake()

    @invariant()
    def agrees(self) -> None:
        segments = list(self.segments.values())
        disk = replace(self.disk, local_bytes=sum(view.local_bytes for view in segments))
        assert self.planner.local_bytes == disk.local_bytes
        expected = plan(segments, disk, self.now_ms, lag_counts=self.lag_counts)
        todo = self.planner.next(disk, self.now_ms, lag_counts=self.lag_counts)
        pressed = sum(map(unoffloaded_bytes, segments)) > disk.high_unoffloaded_bytes
        assert set(todo.rolls) == set(expected.rolls)
        assert set(todo.evictions) == set(expected.evictions)
        wanted = [found for found in expected.offloads if key_of(found) not in self.taken]
        assert self.planner.offloads.in_order(pressed=pressed) == wanted
        waiting = [view for view in segments if not view.policy.never_offloads]
        since = [found.ended_ms for view in waiting for found in view.pending]
        since += [view.active_since_ms for view in waiting if view.active_since_ms]
        assert self.planner.oldest_ms == min(since, default=0)
        kept = [view for view in segments if view.policy.never_offloads]
        here_alone = sum(view.place.bytes_here_alone for view in kept if view.place is not None)
        assert self.planner.kept == Backlog(here_alone, sum(view.active_bytes for view in kept))


def unoffloaded_bytes(view: SegmentSummary) -> int:
    return view.active_bytes + sum(found.bytes for found in view.pending)


TestPlannerAgreesWithTheReference = Changes.TestCase

TestPlannerAgreesWithTheReference.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(sizes=st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=30), limit=st.integers(1, 100))
def test_small_objects_come_together_and_large_ones_alone(sizes: list[tuple[int, bool]], limit: int) -> None:
    """Those that are to be compressed, and the others."""
    planner = Planner(is_small=lambda found: found.bytes <= 10)
    for number, (size, compresses) in enumerate(sizes, 1):
        found = pending(number, 0, size, number, compresses=compresses)
        planner.put(SegmentSummary(SegmentId(number), Policy(), size, pending=(found,)))
    planner.next(ROOMY, NOW_MS)
    groups = []
    while taken := planner.take_offloads(limit):
        groups.append([(found.bytes, found.action.compresses) for found in taken])
    assert sorted(size for group in groups for size in group) == sorted(sizes)
    assert all(len({compresses for _, compresses in group}) == 1 for group in groups)
    for wish in (False, True):
        mine = [[size for size, _ in group] for group in groups if group[0][1] is wish]
        assert all(len(group) == 1 or (max(group) <= 10 and sum(group) <= limit) for group in mine)
        small = [group for group in mine if max(group) <= 10]
        assert all(sum(one) + other[0] > limit for one, other in pairwise(small))


def test_room_is_made_of_others_where_one_cannot_be_evicted() -> None:
    planner = Planner()
    for number in (1, 2, 3):
        copies = (ColdCopy(NOW_MS - 1000 + number, 10),)
        planner.put(SegmentSummary(id=SegmentId(number), policy=Policy(), local_bytes=10, copies=copies))
    full = replace(ROOMY, local_bytes=10, high_local_bytes=0)
    assert [one.segment_id for one in planner.next(full, NOW_MS).evictions] == [1]
    todo = planner.next(full, NOW_MS, may_evict=lambda segment_id: segment_id != 1)
    assert [one.segment_id for one in todo.evictions] == [2]


def test_what_failed_rests_until_its_pause_is_over() -> None:
    planner = Planner()
    planner.put(SegmentSummary(SegmentId(1), Policy(), 5, pending=(pending(1, 0, 5, NOW_MS),)))
    planner.next(ROOMY, NOW_MS)
    (found,) = planner.take_offloads()
    planner.offloads.rest(key_of(found), NOW_MS + 1000)
    planner.next(ROOMY, NOW_MS + 999)
    assert planner.take_offloads() == ()
    planner.next(ROOMY, NOW_MS + 1000)
    assert planner.take_offloads() == (found,)


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "offload", "evict", "lose", "cut"]), st.integers(1, 11)), max_size=8
)


@settings(max_examples=12, deadline=None)
@given(steps=STEPS)
def test_starting_at_the_local_bytes_misses_nothing(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory, open_test_store(Path(directory) / "s") as store:
        store.append("s", bytes(30))
        store.offload("s")
        for step, number in steps:
            take(store, step, number)
            with store.metadata.read() as txn:
                segment = store.segment("s")
                made = objects_to_make(txn, segment, Policy(object_bytes=8))
                assert list(made) == from_the_beginning(txn, segment, 8)


def take(store: TestStore, step: str, number: int) -> None:
    if step == "append":
        store.append("s", bytes(number))
    elif step == "offload":
        store.offload("s")
    elif step == "evict":
        store.evict("s", force=True)
    elif step == "lose":
        lose_cold_chunk(store, number)
    else:
        segment = store.segment("s")
        cut_head(store, "s", min(segment.start_offset + number % 4, segment.length))


def from_the_beginning(txn: ReadTransaction, segment: SegmentRecord, object_bytes: int) -> list[OffloadAction]:
    """The same by both chains as a whole."""
    local = sealed_local_chunks(txn, segment, segment.start_offset)
    cold = chains.chunks(txn, segment.id, Tier.COLD)
    return list(offload_actions(segment.id, local, cold, object_bytes, start_offset=segment.start_offset))


def lose_cold_chunk(store: TestStore, number: int) -> None:
    """Take one cold chunk out of the chain."""
    with store.metadata.write() as txn:
        segment = store.segment("s")
        cold = list(chains.chunks(txn, segment.id, Tier.COLD))
        if cold:
            gone = cold[number % len(cold)]
            segment = Editor(txn, segment).remove(Tier.COLD, [gone], due_ms=0).segment
            txn.put(SEGMENTS, tables.u64(segment.id), segment)


def test_a_gap_does_not_make_a_look_linear_in_what_is_cold_alone(tmp_path: Path) -> None:
    costs, policy = [], Policy(object_bytes=4)
    for chunks in (20, 80):
        with open_test_store(tmp_path / str(chunks), policy={"chunk_bytes": "4", "object_bytes": "4"}) as store:
            store.append("s", bytes(4 * chunks))
            store.offload("s")
            store.evict("s", force=True)
            lose_cold_chunk(store, 1)
            store.append("s", b"abcd", seal=True)
            with store.metadata.read() as txn:
                segment = store.segment("s")
                (action,) = objects_to_make(txn, segment, policy)
                costs.append(calls(lambda txn=txn, segment=segment: list(objects_to_make(txn, segment, policy))))
        assert action.range == ByteRange(4 * chunks, 4 * chunks + 4)
    assert costs[1] < 1.1 * costs[0]
