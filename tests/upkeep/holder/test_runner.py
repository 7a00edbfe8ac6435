"""The background writer over hours of fake time: what becomes cold, goes, waits and is asked for."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.costs import calls
from tests.stores import TestStore, assert_layout, open_test_store
from tests.upkeep.holder.holding import (
    HOUR_S,
    MINUTE_S,
    SETTLED_S,
    SLOWLY,
    FlakyStorage,
    TrioClock,
    failures,
    nothing_left,
    set_policy,
    working,
)
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.options.policy import Policy
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ROOT_DIRECTORY, ChunkState, ObjectId, SegmentId
from tierfs.engine.journal.publish import PROOF_S, Publisher
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.environment import open_environment
from tierfs.engine.metadata.records import ChunkRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, INTENTS
from tierfs.engine.segments import streams
from tierfs.tiering import evict
from tierfs.tiering.candidates import OffloadAction
from tierfs.tiering.offload_source import ChunkSource
from tierfs.tiering.planner import Planner
from tierfs.tiering.policy import DiskView, EvictAction, PendingObject, SegmentSummary, StreamPlace
from tierfs.tiering.snapshot import Snapshots
from tierfs.upkeep.holder import requests, writer


async def test_the_slot_of_a_killed_reader_is_freed(store: TestStore, autojump_clock: MockClock) -> None:
    async with working(store):
        await trio.sleep(SETTLED_S)
        pid = read_and_die(store.metadata)
        environment = open_environment(store.metadata.path)
        assert str(pid) in environment.lmdb.readers()
        await trio.sleep(MINUTE_S)
        assert str(pid) not in environment.lmdb.readers()


def read_and_die(metadata: MetadataStore) -> int:
    """A process that is killed in the middle of a read; returns its pid."""
    pid = os.fork()
    if pid == 0:
        with metadata.read() as txn:
            assert txn.store
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    return pid


async def test_the_owner_is_asked_for_at_each_check_however_recent_the_last_proof_is(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    look = Publisher._judge

    def counted(self: Publisher, *arguments: Any, **named: Any) -> None:
        looks.append(trio.current_time())
        look(self, *arguments, **named)

    monkeypatch.setattr(Publisher, "_judge", counted)
    async with working(store, BackgroundSettings(owner_check_s=PROOF_S / 2)):
        await trio.sleep(2.2 * PROOF_S)
    # Half of the time would be left out: a superseded store acknowledges appends for `owner_check_s` only.
    assert len(looks) >= 4


async def test_the_high_watermark_holds_whatever_the_lag(store: TestStore, autojump_clock: MockClock) -> None:
    settings = BackgroundSettings(high_watermark_bytes=12)
    async with working(store, settings):
        writer = store.engine.open_writer("s")
        for _ in range(20):
            writer.append(b"abcd")
            await trio.sleep(SETTLED_S)
            assert store.segment("s").local.bytes <= 12
    assert store.segment("s").cold.bytes == 80


def test_snapshots_by_changes_equal_a_look_at_everything(store: TestStore) -> None:
    chosen = random.Random(3)
    kept = Planner()
    snapshots = Snapshots(store.metadata, kept)
    writers = {name: store.engine.open_writer(name) for name in "abc"}
    for _ in range(150):
        name = chosen.choice("abc")
        step = chosen.randrange(6)
        if step < 3:
            writers[name].append(bytes(chosen.randrange(1, 7)))
        elif step == 3:
            store.engine.roll(store.segment(name).id)
        elif step == 4:
            store.offload(name)
        else:
            store.evict(name)
        fresh = Planner()
        Snapshots(store.metadata, fresh).refresh()
        snapshots.refresh()
        snapshots.refresh_active()
        assert sorted(kept.views, key=lambda view: view.id) == sorted(fresh.views, key=lambda view: view.id)


async def test_streams_are_sealed_offloaded_and_forgotten_by_themselves(
    store: TestStore, autojump_clock: MockClock
) -> None:
    set_policy(store, seal_age=str(HOUR_S), retention_age=str(6 * HOUR_S))
    periods = ("tick_s", "request_poll_s", "owner_check_s", "lifetimes_every_s", "clocks_every_s")
    async with working(store, BackgroundSettings(**dict.fromkeys(periods, 15.0 * MINUTE_S))):
        writer = store.engine.open_writer("s")
        for number in range(24):
            writer.append(b"%04d" % number)
            await trio.sleep(HOUR_S / 2)
        segment = store.segment(f"s.{segment_start(store)}")
        assert 80 <= segment.length <= 96
        with store.metadata.read() as txn:
            names = [entry.name for entry in directories.entries(txn, ROOT_DIRECTORY)]
        assert "s" in names
        assert 6 <= len(names) <= 9
        assert store.segment("s").range.length_bytes == 0
        await trio.sleep(10 * HOUR_S)
        assert writer.append(b"x").start == 96  # an idle writer finds its way
        store.engine.close_writer(writer)
        await trio.sleep(10 * HOUR_S)
        assert nothing_left(store)
        assert list(store.cold.list("segments/")) == []


def segment_start(store: TestStore) -> int:
    """Return the first offset of the newest member of the stream `s`."""
    with store.metadata.read() as txn:
        return streams.newest(txn, directories.segment_by_name(txn, "s")).first_offset


async def test_commits_of_others_do_not_make_the_holder_look_for_requests_without_a_pause(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def none(metadata: MetadataStore, _: object) -> None:
        nonlocal looks
        looks += 1
        with metadata.write() as txn:  # as an append does that comes in between
            txn.touch()

    monkeypatch.setattr(requests, "take_next", none)
    async with working(store):
        await trio.sleep(10)
    assert 10 < looks <= 10 / BackgroundSettings().request_poll_s + 1


PACKING = {"chunk_bytes": "4096", "object_bytes": "65536"}
"""Objects below 4096 bytes are packed."""


async def test_small_objects_wait_until_all_were_looked_at(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SLICE_S", 0.0)  # a look is one step of some segments
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock()) as store:
        for number in range(100):
            store.append(f"s{number}", bytes([number]) * 400, seal=True)
        async with working(store):
            await trio.sleep(SETTLED_S)
        assert len(list(store.cold.list("packs/"))) == 1
        assert all(store.segment(f"s{number}").cold.count for number in range(100))


ROOMY = DiskView(0, 0, high_used_bytes=1 << 50, high_local_bytes=1 << 50, high_unoffloaded_bytes=1 << 50)


async def test_thousands_of_segments_are_counted_one_by_one_at_the_cost_of_the_changed_one() -> None:
    planner, policy = Planner(), Policy(offload_after_s=None, offload_above_bytes=3)

    def put(number: int, stream: str, size: int = 4, *, counted: bool = True) -> int:
        """Return the calls that a changed view costs; counting them takes most of the time."""
        chunk = ChunkRecord(start_offset=number, length=size, object_id=ObjectId(1))
        waiting = (PendingObject(OffloadAction(SegmentId(number), (chunk,)), ended_ms=number),)
        place = StreamPlace((ROOT_DIRECTORY, stream), number, size)
        view = SegmentSummary(SegmentId(number), policy, local_bytes=size, place=place, pending=waiting)
        return calls(lambda: planner.put(view)) if counted else planner.put(view) or 0

    def due() -> set[int]:
        planner.next(ROOMY, now_ms=0)
        taken = []
        while some := planner.take_offloads():
            taken += [pending.action.segment_id for pending in some]
        return set(taken)

    few, many = (
        [put(number, f"stream {number}", 3, counted=number in (100, 2000)) for number in range(*span)][-1]
        for span in ((1, 101), (101, 2001))
    )
    assert many <= 2 * few
    assert due() == set()
    put(7, "stream 7")
    assert due() == {7}
    one = [put(number, "one stream", counted=not 20_200 < number <= 21_900) for number in range(20_001, 22_001)]
    assert max(one[-100:]) <= 2 * max(one[100:200]), "64 are due at the same time, however many there are"
    assert due() == set(range(20_001, 20_065))


async def test_a_place_that_is_not_ours_is_one_row_of_trouble(
    store: TestStore, storage: FlakyStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings += ["not the store's cold tier"]
    store.offload()
    kept = list(storage.list(""))
    for found in kept:
        storage.delete(found.name)
    for number in range(10):
        store.append(f"s{number}", b"abcd", seal=True)
    async with working(store, SLOWLY):
        await trio.sleep(HOUR_S)
        assert {row.what for row in failures(store)} == {"owner", "publish"}
        assert {row.error_kind for row in failures(store)} == {"WrongColdTier"}
    assert list(storage.list("")) == []


async def test_a_segment_that_cannot_be_evicted_is_listed_and_keeps_no_other(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("evict .* failed: its chain is damaged")
    for name in ("a", "b", "c"):
        store.append(name, b"abcd", seal=True)
    bad, drop = store.segment("a").id, evict._Eviction.drop

    def refuse(batch: evict._Eviction, action: EvictAction, most: int) -> evict.Evicted:
        if action.segment_id == bad:
            raise DataLoss("its chain is damaged")
        return drop(batch, action, most)

    monkeypatch.setattr(evict._Eviction, "drop", refuse)
    async with working(store, SLOWLY):
        await trio.sleep(5 * HOUR_S)
        (row,) = failures(store)
        assert (row.what, row.name, row.error_kind) == (f"evict {bad}", "a", "DataLoss")
        assert_layout(store, "a", local=[4], cold=[4])
        for name in ("b", "c"):
            assert_layout(store, name, local=[], cold=[4])
        monkeypatch.undo()
        await trio.sleep(6 * MINUTE_S)
        assert failures(store) == []
        assert_layout(store, "a", local=[], cold=[4])


@pytest.mark.parametrize("segments", [1, 40])
async def test_a_failure_of_ours_is_listed_with_its_traceback_backs_off_and_leaves_little(
    store: TestStore,
    autojump_clock: MockClock,
    expected_warnings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    segments: int,
) -> None:
    """Each try is an object that is written and deleted: an offload of one, and a pack of many."""
    expected_warnings.append("a defect")
    read = ChunkSource.read

    def fail(self: ChunkSource, offset: int, length_bytes: int) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(ChunkSource, "read", fail)
    set_policy(store, object_bytes="1000")
    for number in range(segments):
        store.append(f"s{number}", b"abcd", seal=True)
    async with working(store, SLOWLY):
        await trio.sleep(HOUR_S)
        (row,) = failures(store)
        assert row.attempts in range(15, 30)
        assert (row.error_kind, row.error) == ("ZeroDivisionError", "a defect")
        with store.metadata.read() as txn:
            assert txn.count(INTENTS.name) == 0
            assert txn.count(GARBAGE.name) <= row.attempts, "the second deletions of an hour"
        assert sum(record.exc_info is not None for record in caplog.records) == 1
        monkeypatch.setattr(ChunkSource, "read", read)
        await trio.sleep(5 * MINUTE_S + SETTLED_S)
        assert failures(store) == []
        for number in range(segments):
            assert_layout(store, f"s{number}", local=[4], cold=[4])
            assert [placed.chunk.state for placed in store.layout(f"s{number}").local] == [ChunkState.GOOD]
