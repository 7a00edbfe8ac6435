"""A store without a cold tier has retention, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import SETTLED_S, InLine, TrioClock, set_policy
from tests.stores import TestStore, open_test_store
from tierfs.app import store as app
from tierfs.clock import ManualClock, SystemClock
from tierfs.config import BackgroundSettings
from tierfs.holder.alone import AloneTools, AloneWork
from tierfs.holder.loop import HolderTools, OwnerTask
from tierfs.metadata import directories, policies
from tierfs.setup.create import ColdChoice, init_store
from tierfs.types import ROOT_DIRECTORY

HOUR_S = 3600


def tidy(work: AloneWork) -> None:
    assert work.look()
    work.collect()


def test_bytes_expire_without_a_cold_tier(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_ms())
    path = tmp_path / "store"
    init_store(path, ColdChoice(none=True))
    with app.open_store(path, clock) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"retention_age": str(6 * HOUR_S)})
        work = AloneWork(store.alone_tools())
        writer = store.engine.open_writer("log")
        for hour in range(10):
            writer.append(b"%04d" % hour)
            clock.advance(HOUR_S)
            tidy(work)
            work.end_lifetimes()
            tidy(work)
        with store.metadata.read() as txn:
            segment = directories.segment_by_name(txn, "log")
            assert txn.sums is not None
            assert txn.sums.local_chunks == len(list((path / "chunks").glob("*/*")))
        assert (segment.start_offset, segment.length) == (16, 40)


def test_chunks_of_a_segment_that_keeps_its_bytes_are_not_ended(tmp_path: Path) -> None:
    """Nothing would ever join the many small files again."""
    clock = ManualClock(SystemClock().now_ms())
    init_store(tmp_path / "store", ColdChoice(none=True))
    with app.open_store(tmp_path / "store", clock) as store:
        work = AloneWork(store.alone_tools())
        writer = store.engine.open_writer("log")
        for _ in range(5):
            writer.append(b"x")
            clock.advance(HOUR_S)
            tidy(work)
        with store.metadata.read() as txn:
            assert directories.segment_by_name(txn, "log").local.count == 1


async def test_many_segments_are_looked_at_within_a_tick(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfs.holder.alone.SLICE_S", 0.0)
    with open_test_store(tmp_path / "store", clock=TrioClock()) as store:
        set_policy(store, retention_age=str(6 * HOUR_S), chunk_age="60")
        for number in range(70):
            store.append(f"s{number}", b"x")
        await trio.sleep(HOUR_S)
        with trio.move_on_after(SETTLED_S):
            await holder_alone(store).run()
        assert not any(store.segment(f"s{number}").active for number in range(70))


def holder_alone(store: TestStore) -> OwnerTask:
    tools = store.cold_work().tools
    alone = AloneTools(store.engine, tools.collector, tools.retention, tools.clocks)
    holder = HolderTools(store.paths.holder, store.metadata, lambda: BackgroundSettings(tick_s=2.0), InLine())
    return OwnerTask(holder, lambda: alone)
