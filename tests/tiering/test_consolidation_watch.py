"""ConsolidationWatch finds what is worth joining, and looks at each change once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.stores import LOCATION, TestStore, assert_layout, open_test_store
from tests.tiering.test_consolidate import cold_pieces, objects
from tests.upkeep.holder.holding import SETTLED_S, TrioClock, working
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import (
    ROOT_DIRECTORY,
    Tier,
)
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering import changed_segments, consolidation_watch
from tierfs.tiering.consolidation_watch import ConsolidationWatch

POLICY = {"chunk_bytes": "1000000", "object_bytes": "1000", "deletion_lag": "0"}

SETTINGS = OffloadSettings(consolidate_chunks=4, relocate_min_bytes=1, grace_s=60)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY, clock=TrioClock(), settings=SETTINGS) as opened:
        yield opened


def watch_of(store: TestStore) -> ConsolidationWatch:
    return ConsolidationWatch(store.metadata, LOCATION, store.settings)


def next_range(watch: ConsolidationWatch) -> tuple[int, int] | None:
    action = watch.next(lambda _: True)
    return None if action is None else (action.range.start, action.range.end)


async def test_enough_small_neighbours_are_joined(store: TestStore, autojump_clock: MockClock) -> None:
    data = cold_pieces(store, 10, 20, 30)
    async with working(store):
        await trio.sleep(SETTLED_S)
        assert_layout(store, "s", local=[], cold=[10, 20, 30])
        data += cold_pieces(store, 40)
        await trio.sleep(SETTLED_S)
        assert_layout(store, "s", local=[], cold=[100])
        await trio.sleep(2 * SETTINGS.grace_s)
    assert len(objects(store)) == 1
    assert store.read("s", Tier.COLD) == data


def test_a_segment_that_cannot_be_looked_at_keeps_no_other_waiting(store: TestStore) -> None:
    for name in "st":
        cold_pieces(store, 10, 20, 30, 40, name=name)
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(store.layout("s").cold[1].object.id))
    watch = watch_of(store)
    with pytest.raises(DataLoss):
        watch.next(lambda _: True)
    action = watch.next(lambda _: True)
    assert action is not None
    assert action.segment_id == store.segment("t").id


async def test_a_sealed_segment_that_is_all_cold_is_joined_once_more(
    store: TestStore, autojump_clock: MockClock
) -> None:
    cold_pieces(store, 10, 20)
    async with working(store):
        store.append("s", b"x" * 30)
        store.engine.seal("s")
        await trio.sleep(4 * SETTLED_S)
        assert_layout(store, "s", local=[], cold=[60])


async def test_consolidation_can_be_switched_off(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = OffloadSettings(consolidate_chunks=0)
    with open_test_store(tmp_path / "s", policy=POLICY, clock=TrioClock(), settings=settings) as store:
        cold_pieces(store, 10, 20, 30, 40, 50)
        async with working(store):
            await trio.sleep(SETTLED_S)
        assert_layout(store, "s", local=[], cold=[10, 20, 30, 40, 50])


def test_a_long_segment_is_looked_at_window_by_window(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolidation_watch, "_WATCH_WINDOW_CHUNKS", 5)
    cold_pieces(store, 600, 10, 600, 20, 600, 30, 600, 40, 50, 60, 70, 600)
    watch = watch_of(store)
    looks = [next_range(watch) for _ in range(4)]
    assert looks[0] is None
    assert set(looks[1:]) <= {None, (2460, 2680)}
    assert looks[-1] is not None


def test_adopted_objects_are_not_copied_unasked(store: TestStore) -> None:
    cold_pieces(store, 10, 20, 30, 40)
    with store.metadata.write() as txn:
        for placed in store.layout("s").cold:
            txn.put(OBJECTS, placed.object.id.to_bytes(8, "big"), replace(placed.object, foreign=True))
    assert next_range(watch_of(store)) is None


def test_a_change_of_policy_looks_at_everything_again(store: TestStore) -> None:
    cold_pieces(store, 600, 600, 600, 600)
    watch = watch_of(store)
    assert next_range(watch) is None
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {**POLICY, "object_bytes": "10000"})
        txn.touch(policies=True)
    assert next_range(watch) == (0, 2400)


def test_a_pass_ends_however_often_policies_change(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changed_segments, "_SCAN_ROWS", 2)
    monkeypatch.setattr(consolidation_watch, "SLICE_S", 0.0)
    for name in "abcdef":
        cold_pieces(store, 10, 20, name=name)
    cold_pieces(store, 10, 20, 30, 40, name="newest")
    watch = watch_of(store)
    looks = []
    for number in range(20):
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {**POLICY, "chunk_age": str(60 + number)})
        looks.append(next_range(watch))
    assert (0, 100) in looks


def test_a_segment_in_trouble_does_not_hold_up_others(store: TestStore) -> None:
    for name in ("s", "t"):
        cold_pieces(store, 10, 20, 30, 40, name=name)
    bad = store.segment("s").id
    action = watch_of(store).next(lambda segment_id: segment_id != bad)
    assert action is not None
    assert action.segment_id == store.segment("t").id
