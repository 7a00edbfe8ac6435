"""The planner's views are kept current at the cost of what changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.costs import calls
from tests.stores import TestStore, open_test_store
from tests.tiering.test_planner import ROOMY
from tierfs.base.words.types import ROOT_DIRECTORY, SegmentStatus
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.tables import TOUCHES
from tierfs.engine.segments import streams
from tierfs.tiering.planner import Planner
from tierfs.tiering.snapshot import Snapshots


@pytest.mark.parametrize("change", ["nothing", "offload", "append"])
def test_a_look_costs_what_changed_however_many_segments_wait(tmp_path: Path, change: str) -> None:
    costs = []
    for segments in (20, 80):
        with open_test_store(tmp_path / str(segments)) as store:
            for number in range(segments):
                store.append(f"d/s{number}", b"abcd", seal=True)
            planner = Planner()
            snapshots = Snapshots(store.metadata, planner)
            snapshots.refresh()
            planner.next(ROOMY, store.clock.now_ms())
            one_change(store, change)

            def look(snapshots: Snapshots = snapshots, planner: Planner = planner, store: TestStore = store) -> None:
                assert snapshots.refresh()
                planner.next(ROOMY, store.clock.now_ms())
                assert planner.take_offloads() != ()

            costs.append(calls(look))
    assert costs[1] < 1.2 * costs[0]


def one_change(store: TestStore, change: str) -> None:
    if change == "offload":
        store.offload("d/s7")
    elif change == "append":
        store.append("d/new", b"abcd", seal=True)


@pytest.fixture
def many(store: TestStore) -> TestStore:
    for number in range(50):
        store.append(f"d/s{number}", b"abcd", seal=True)
    return store


@pytest.fixture
def planner() -> Planner:
    return Planner()


def seen(store: TestStore, planner: Planner) -> Snapshots:
    """Snapshots that saw all there is."""
    snapshots = Snapshots(store.metadata, planner)
    assert snapshots.refresh()
    return snapshots


def test_a_first_look_goes_in_slices_and_ends_complete(many: TestStore, planner: Planner) -> None:
    looks = 1
    snapshots = Snapshots(many.metadata, planner)
    while not snapshots.refresh(slice_s=0.0):
        looks += 1
        if looks == 2:
            many.append("d/new", b"abcd", seal=True)
            many.evict("d", force=True)
    assert looks > 2
    assert len(planner.views) == 51


def test_what_comes_first_goes_in_slices_too(many: TestStore, planner: Planner) -> None:
    """As after a pack of thousands: their order is kept, and what changed comes behind them."""
    snapshots = seen(many, planner)
    ended = [view.id for view in planner.views]
    many.append("d/new", b"abcd", seal=True)
    awaited = []
    while not snapshots.refresh(ended, slice_s=0.0):
        ended = [segment_id for segment_id in ended if snapshots.is_awaited(segment_id)]
        awaited.append((len(ended), many.segment("d/new").id in planner))
    assert awaited == [(30, False), (10, False), (0, False)]
    assert many.segment("d/new").id in planner


def test_a_new_policy_is_seen_without_forgetting_what_is_known(many: TestStore, planner: Planner) -> None:
    snapshots = seen(many, planner)
    many.append("d/new", b"abcd", seal=True)
    set_offload_after(many, ROOT_DIRECTORY, 7200)
    assert not snapshots.refresh(slice_s=0.0)
    assert many.segment("d/new").id in planner, "what changes along with it is seen first"
    assert len(planner.views) == 51
    while not snapshots.refresh(slice_s=0.0):
        pass
    assert {view.policy.offload_after_s for view in planner.views} == {7200}


def test_a_pass_ends_however_often_policies_change(
    many: TestStore, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfs.tiering.changed_segments._SCAN_ROWS", 20)
    snapshots = Snapshots(many.metadata, planner)
    for looks in range(10):
        set_offload_after(many, ROOT_DIRECTORY, looks)
        assert not snapshots.refresh(slice_s=0.0)
    assert len(planner.views) == 50
    while not snapshots.refresh(slice_s=0.0):
        pass
    assert {view.policy.offload_after_s for view in planner.views} == {9}


def test_the_policy_of_one_segment_concerns_no_other(many: TestStore, planner: Planner) -> None:
    """Nor does a stream that has one of its own look at everything as it goes on."""
    snapshots = seen(many, planner)
    changed = many.segment("d/s7").id
    set_offload_after(many, changed, 7200)
    assert snapshots.refresh(slice_s=0.0)
    assert {view.id for view in planner.views if view.policy.offload_after_s == 7200} == {changed}
    with many.metadata.write() as txn:
        streams.go_on(txn, replace(many.segment("d/s7"), status=SegmentStatus.SEALED_BY_POLICY))
    assert snapshots.refresh(slice_s=0.0)


def test_a_damaged_row_of_the_changes_looks_at_everything(store: TestStore, planner: Planner) -> None:
    snapshots = seen(store, planner)
    with store.metadata.write() as txn:
        changes = txn.store.next_change
    store.append("s", b"abcd", seal=True)
    with store.metadata.write() as txn:
        for sequence in range(changes, txn.store.next_change):
            txn.put_raw(TOUCHES.name, tables.u64(sequence), b"\xff")
    assert snapshots.refresh()
    assert len(planner.views) == 1


@pytest.mark.parametrize("gone", ["the first of them", "all of them"])
def test_changes_that_are_gone_before_they_are_read_look_at_everything(
    store: TestStore, planner: Planner, gone: str
) -> None:
    store.append("kept", b"abcd", seal=True)
    store.append("removed", b"abcd", seal=True)
    snapshots = seen(store, planner)
    assert len(planner.views) == 2
    with store.metadata.read() as txn:
        first = txn.store.next_change
    store.append("new", b"abcd", seal=True)
    removed = store.segment("removed").id
    store.engine.delete("removed", recursive=False, cold_due_ms=0)
    with store.metadata.write() as txn:
        newest = txn.store.next_change
        for sequence in range(first, first + 1 if gone == "the first of them" else newest):
            txn.delete(TOUCHES.name, tables.u64(sequence))
    assert snapshots.refresh()
    assert {view.id for view in planner.views} == {store.segment(name).id for name in ("kept", "new")}
    assert removed not in planner


def set_offload_after(store: TestStore, target_id: int, seconds: int) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, target_id, {"chunk_bytes": "4", "object_bytes": "8", "offload_after": str(seconds)})


@pytest.mark.parametrize("cold", [False, True])
def test_a_look_at_a_long_segment_costs_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    monkeypatch.setattr("tierfs.tiering.snapshot._MOST_OBJECTS", 3)
    monkeypatch.setattr("tierfs.tiering.snapshot._MOST_COPIES", 3)
    costs = []
    for chunks in (20, 80):
        with open_test_store(tmp_path / str(chunks), policy={"chunk_bytes": "4", "object_bytes": "4"}) as store:
            store.append("s", bytes(4 * chunks), seal=True)
            if cold:
                store.offload("s")
            planner = Planner()
            snapshots = Snapshots(store.metadata, planner)
            costs.append(calls(snapshots.refresh))
            (view,) = planner.views
            assert (len(view.pending), len(view.copies)) == ((0, 3) if cold else (3, 0))
    assert costs[1] < 1.1 * costs[0]


def test_what_grows_without_a_word_is_measured_when_asked(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "1000"}) as store:
        writers = [store.engine.open_writer(name) for name in "ab"]
        for writer in writers:
            writer.append(b"x")
        planner = Planner()
        snapshots = Snapshots(store.metadata, planner)
        snapshots.refresh()
        writers[1].append(bytes(99))
        snapshots.refresh()
        assert planner.active_bytes == 2
        snapshots.refresh_active()
        assert planner.active_bytes == 101
        tight = replace(ROOMY, high_unoffloaded_bytes=50)
        assert planner.next(tight, store.clock.now_ms()).rolls == (store.segment("b").id,)
