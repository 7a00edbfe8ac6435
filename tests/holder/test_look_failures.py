"""A segment whose records are damaged is listed, looked at again, and holds no other one up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import HOUR_S, MINUTE_S, TrioClock, failures, working
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.app import store as app
from tierfs.clock import ManualClock, SystemClock
from tierfs.config import BackgroundSettings
from tierfs.errors import DataLoss, Unavailable
from tierfs.holder.alone import AloneWork
from tierfs.holder.failures import Failures, look_again, note_looks
from tierfs.metadata import chains, directories, policies, tables
from tierfs.metadata.policies import PolicyCache
from tierfs.metadata.records import ObjectRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS, POLICIES
from tierfs.setup.create import ColdChoice, init_store
from tierfs.tiering.planner import Planner
from tierfs.tiering.snapshot import Snapshots
from tierfs.types import ROOT_DIRECTORY, Tier

NAMES = [f"d/s{number:02}" for number in range(30)]


def lose_object(metadata: MetadataStore, name: str) -> ObjectRecord:
    """Take away the record of the object with the last local chunk of a segment; return it."""
    with metadata.write() as txn:
        segment = directories.segment_by_name(txn, name)
        last = chains.chunk_at(txn, segment.id, Tier.LOCAL, segment.local.last_chunk)
        assert last is not None
        lost = chains.object_of(txn, last)
        txn.delete(OBJECTS.name, tables.u64(lost.id))
    return lost


def put_back(metadata: MetadataStore, lost: ObjectRecord) -> None:
    with metadata.write() as txn:
        txn.put(OBJECTS, tables.u64(lost.id), lost)


async def test_one_damaged_segment_is_listed_and_the_others_go_their_way(
    store: TestStore, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("look .* failed: .* a chunk names a missing object")
    for name in NAMES:
        store.append(name, b"ab")
    lost = lose_object(store.metadata, "d/s07")
    async with working(store):
        await trio.sleep(11 * MINUTE_S)
        for name in NAMES:
            assert_layout(store, name, local=[2], cold=[] if name == "d/s07" else [2])
        (row,) = failures(store)
        assert (row.what, row.name) == (f"look {store.segment('d/s07').id}", "d/s07")
        put_back(store.metadata, lost)
        await trio.sleep(6 * MINUTE_S)
        assert_layout(store, "d/s07", local=[2], cold=[2])
        assert failures(store) == []


async def test_objects_that_cannot_be_made_hide_no_others_of_their_segment(
    tmp_path: Path, autojump_clock: MockClock, expected_warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_warnings.append("offload .* failed: .*No such file")
    monkeypatch.setattr("tierfs.tiering.snapshot._MOST_OBJECTS", 3)
    policy = {"chunk_bytes": "4", "object_bytes": "4"}
    with open_test_store(tmp_path / "s", policy=policy, clock=TrioClock()) as store:
        store.append("s", bytes(40), seal=True)
        for placed in store.layout("s").local[:6]:
            (store.files.root / placed.object.name).unlink()
        async with working(store):
            await trio.sleep(MINUTE_S)
        assert [placed.chunk.start_offset for placed in store.layout("s").cold] == [24, 28, 32, 36]
        assert len(failures(store)) == 6


def test_a_look_that_fails_forgets_nothing(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when all reader slots of the database are taken."""
    for name in NAMES:
        store.append(name, b"abcd", seal=True)
    planner = Planner()
    snapshots = Snapshots(store.metadata, planner)
    with monkeypatch.context() as patch:
        patch.setattr("tierfs.tiering.snapshot.PolicyCache", fails_when_asked_twice())
        with pytest.raises(Unavailable):
            snapshots.refresh()
    assert snapshots.refresh()
    assert len(planner.views) == len(NAMES)


def fails_when_asked_twice() -> Callable[[], PolicyCache]:
    times = count(1)

    def cache() -> PolicyCache:
        if next(times) == 2:
            raise Unavailable("too many readers")
        return PolicyCache()

    return cache


def test_an_ended_upload_of_a_damaged_segment_stops_no_look(store: TestStore) -> None:
    for name in ("bad", "good"):
        store.append(name, b"ab")
    planner = Planner()
    snapshots = Snapshots(store.metadata, planner)
    lose_object(store.metadata, "bad")
    bad = store.segment("bad").id
    assert snapshots.refresh([bad])
    assert list(snapshots.failed) == [bad]
    assert [view.id for view in planner.views] == [store.segment("good").id]


def test_a_store_without_a_cold_tier_lists_it_too(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_ms())
    init_store(tmp_path / "alone", ColdChoice(none=True))
    with app.open_store(tmp_path / "alone", clock) as alone:
        with alone.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"retention_age": "86400", "chunk_age": "600"})
        for name in ("bad", "good"):
            alone.engine.open_writer(name).append(b"ab")
        lost = lose_object(alone.metadata, "bad")
        work = AloneWork(alone.alone_tools())
        clock.advance(HOUR_S)
        with pytest.raises(DataLoss, match="missing object"):
            work.look()
        assert active(alone.metadata) == {"bad"}
        put_back(alone.metadata, lost)
        assert work.look()
        assert active(alone.metadata) == set()


def active(metadata: MetadataStore) -> set[str]:
    with metadata.read() as txn:
        return {name for name in ("bad", "good") if directories.segment_by_name(txn, name).active}


def test_a_damaged_policy_lists_some_by_name_and_the_others_together(
    store: TestStore, expected_warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_warnings.append("look .* failed")
    monkeypatch.setattr("tierfs.holder.failures._MOST_LISTED", 3)
    for name in NAMES:
        store.append(name, b"ab", seal=True)
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4"})
        txn.put_raw(POLICIES.name, tables.u64(ROOT_DIRECTORY), b"\xff garbage")
    noted, planner = Failures(store.metadata, BackgroundSettings()), Planner()
    snapshots = Snapshots(store.metadata, planner)

    def look() -> None:
        look_again(snapshots, noted)
        note_looks(snapshots, noted, complete=snapshots.refresh())

    look()
    assert len(failures(store)) == 4
    assert [row.name for row in failures(store) if "others" in row.what] == ["at 27 other segments"]
    look()
    assert {row.attempts for row in failures(store)} == {1}  # none is tried before its pause is over
    with store.metadata.write() as txn:
        txn.delete(POLICIES.name, tables.u64(ROOT_DIRECTORY))
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4"})
    look()
    assert failures(store) == []
    assert len(list(planner.views)) == len(NAMES)
