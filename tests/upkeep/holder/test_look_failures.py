"""A segment whose records are damaged is listed, looked at again, and holds no other one up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.faults.test_accusations import states
from tests.stores import TestStore, assert_layout, open_test_store
from tests.upkeep.holder.holding import HOUR_S, MINUTE_S, InLine, TrioClock, failures, working
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.system.clock import SystemClock
from tierfs.base.words.errors import StorageFull, Unavailable
from tierfs.base.words.types import ROOT_DIRECTORY, ChunkState, Tier
from tierfs.engine.metadata import chain_edits, chains, directories, policies, tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS, POLICIES
from tierfs.reading.suspects import Suspects
from tierfs.tiering.garbage.collect import Collected, Collector
from tierfs.tiering.planner import Planner
from tierfs.tiering.snapshot import Snapshots
from tierfs.upkeep.holder import kinds
from tierfs.upkeep.holder.failures import Failures, look
from tierfs.upkeep.holder.local_work import ExpiringChunks, LocalWork
from tierfs.upkeep.holder.tasks import TaskLoop

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


async def test_a_damaged_segment_is_listed_and_the_others_go_their_way(
    store: TestStore, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("look .* failed: .* a chunk refers to a missing object")
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


def test_a_store_without_a_cold_tier_lists_a_damaged_segment_too(tmp_path: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("look .* failed: .* a chunk refers to a missing object")
    clock = ManualClock(SystemClock().now_ms())
    init_store(tmp_path / "alone", None)
    with app.open_store(tmp_path / "alone", clock) as alone:
        with alone.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"retention_age": "86400", "chunk_age": "600"})
        for name in ("bad", "good"):
            alone.engine.open_writer(name).append(b"ab")
        lost = lose_object(alone.metadata, "bad")
        chunks = expiring(alone)
        clock.advance(HOUR_S)
        assert not chunks.look()
        (row,) = failures(alone)
        assert (row.name, row.error_kind) == ("bad", "DataLoss")
        assert active(alone.metadata) == {"bad"}
        put_back(alone.metadata, lost)
        clock.advance(HOUR_S)
        assert not chunks.look()
        assert active(alone.metadata) == set()
        assert failures(alone) == []


def expiring(store: app.Store) -> ExpiringChunks:
    return ExpiringChunks(store.engine, Failures(store.metadata, BackgroundSettings()))


def active(metadata: MetadataStore) -> set[str]:
    with metadata.read() as txn:
        return {name for name in ("bad", "good") if directories.segment_by_name(txn, name).active}


def test_a_damaged_policy_lists_some_by_name_and_the_others_together(
    store: TestStore, expected_warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_warnings.append("look .* failed")
    monkeypatch.setattr("tierfs.upkeep.holder.failures._MOST_LISTED", 3)
    for name in NAMES:
        store.append(name, b"ab", seal=True)
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4"})
        txn.put_raw(POLICIES.name, tables.u64(ROOT_DIRECTORY), b"\xff garbage")
    noted, planner = Failures(store.metadata, BackgroundSettings()), Planner()
    snapshots = Snapshots(store.metadata, planner)

    def look_once() -> None:
        assert look(snapshots, noted)

    look_once()
    assert len(failures(store)) == 4
    assert [row.name for row in failures(store) if "others" in row.what] == ["at 27 other segments"]
    look_once()
    assert {row.attempts for row in failures(store)} == {1}  # none is tried before its pause is over
    with store.metadata.write() as txn:
        txn.delete(POLICIES.name, tables.u64(ROOT_DIRECTORY))
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4"})
    look_once()
    assert failures(store) == []
    assert len(list(planner.views)) == len(NAMES)


def tidy(chunks: ExpiringChunks, work: LocalWork) -> None:
    assert not chunks.look()
    work.collect()


def test_bytes_expire_without_a_cold_tier(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_ms())
    path = tmp_path / "store"
    init_store(path, None)
    with app.open_store(path, clock) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"retention_age": str(6 * HOUR_S)})
        work, chunks = store.local_work(), expiring(store)
        writer = store.engine.open_writer("log")
        for hour in range(10):
            writer.append(b"%04d" % hour)
            clock.advance(HOUR_S)
            tidy(chunks, work)
            work.end_lifetimes()
            tidy(chunks, work)
        with store.metadata.read() as txn:
            segment = directories.segment_by_name(txn, "log")
            assert txn.sums is not None
            assert txn.sums.local_chunks == len(list((path / "chunks").glob("*/*")))
        assert (segment.start_offset, segment.length) == (16, 40)


def test_chunks_of_a_segment_that_keeps_its_bytes_are_not_ended(tmp_path: Path) -> None:
    """Nothing would ever join the many small files again."""
    clock = ManualClock(SystemClock().now_ms())
    init_store(tmp_path / "store", None)
    with app.open_store(tmp_path / "store", clock) as store:
        work, chunks = store.local_work(), expiring(store)
        writer = store.engine.open_writer("log")
        for _ in range(5):
            writer.append(b"x")
            clock.advance(HOUR_S)
            tidy(chunks, work)
        with store.metadata.read() as txn:
            assert directories.segment_by_name(txn, "log").local.count == 1


async def test_without_a_cold_tier_a_jump_of_the_clock_is_listed_as_what_pauses(
    tmp_path: Path, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings += ["not trusted", "timed deletions failed"]
    clock, settings = TrioClock(), BackgroundSettings()
    init_store(tmp_path / "store", None)
    clock.ahead_s = (SystemClock().now_ms() - clock.now_ms()) // 1000
    with app.open_store(tmp_path / "store", clock) as store:
        work = store.local_work()
        loop = TaskLoop(store.metadata, Failures(store.metadata, settings), InLine())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.run, kinds.without_cold_tier(work, loop, settings).tasks)
            await trio.sleep(MINUTE_S)
            assert failures(store) == []
            clock.ahead_s += 100 * HOUR_S
            await trio.sleep(settings.clocks_every_s + MINUTE_S)
            assert [row.what for row in failures(store)] == ["timed deletions"]
            nursery.cancel_scope.cancel()


def test_without_a_cold_tier_garbage_goes_on_a_full_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    """The room set aside is what the commit of a deletion takes."""
    expected_warnings.append("the disk is full: using the reserved space")
    init_store(tmp_path / "store", None)
    with app.open_store(tmp_path / "store") as store:
        room, collect = tmp_path / "store" / "ballast", Collector.collect

        def when_there_is_room(collector: Collector, **options: Any) -> Collected:
            if room.stat().st_size:
                raise StorageFull("no space left")
            return collect(collector, **options)

        monkeypatch.setattr(Collector, "collect", when_there_is_room)
        monkeypatch.setattr(
            "tierfs.tiering.garbage.ballast.os.statvfs",
            lambda _: SimpleNamespace(f_bavail=0, f_frsize=1, f_blocks=10_000),
        )
        store.local_work().collect()
        assert room.stat().st_size == 0


GOOD, SUSPECT = ChunkState.GOOD, ChunkState.SUSPECT


@pytest.fixture
def offloaded(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abcdefghijkl", seal=True)
        opened.offload()
        yield opened


def accuse(offloaded: TestStore, name: str, tier: Tier, *numbers: int) -> None:
    """Mark chunks suspect, as failures did that are over."""
    for number in numbers:
        chunk = offloaded.layout(name).chunks(tier)[number].chunk
        assert chain_edits.set_state(offloaded.metadata, offloaded.segment(name).id, tier, chunk, SUSPECT)


def suspects(offloaded: TestStore, storage: Any = None) -> Suspects:
    return Suspects(offloaded.metadata, offloaded.files, lambda _: storage or offloaded.cold)


@pytest.mark.parametrize("tier", list(Tier))
def test_what_proves_right_is_cleared_by_the_next_look(offloaded: TestStore, tier: Tier) -> None:
    accuse(offloaded, "s", tier, 0, 1)
    assert suspects(offloaded).look() == 2
    assert set(states(offloaded, "s", tier)) == {GOOD}


def test_a_place_that_is_away_keeps_no_other_chunk_from_being_cleared(offloaded: TestStore) -> None:
    clock, cold = offloaded.clock, ScriptedStorage(offloaded.cold)
    assert isinstance(clock, ManualClock)
    cold.fail("read", Unavailable("the server does not answer"), on=ALWAYS)
    accuse(offloaded, "s", Tier.COLD, 0)
    accuse(offloaded, "s", Tier.LOCAL, 2)
    looking = suspects(offloaded, cold)
    with pytest.raises(Unavailable):
        looking.look()
    assert states(offloaded, "s", Tier.LOCAL) == [GOOD, GOOD, GOOD]
    assert states(offloaded, "s", Tier.COLD) == [SUSPECT, GOOD]
    cold.behave()
    assert looking.look() == 0, "it rests"
    clock.advance(61)
    assert looking.look() == 1
