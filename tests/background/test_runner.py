"""The background writer over hours of fake time: what becomes cold, goes, fails, waits and works again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.background import evict, requests, runner
from tierfs.background.pack_index import read_index
from tierfs.background.packing import PackOffload
from tierfs.background.planner import Planner
from tierfs.background.runner import BackgroundWriter
from tierfs.background.snapshot import Snapshots
from tierfs.background.troubles import Troubles
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import Source, StoredObject
from tierfs.clock import ManualClock
from tierfs.config import BackgroundSettings
from tierfs.errors import DataLoss, Fenced, Unavailable
from tierfs.metadata import directories, policies
from tierfs.metadata.environment import open_environment
from tierfs.metadata.records import TroubleRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import GARBAGE, OUTBOX_NAME, TROUBLES
from tierfs.segments import streams
from tierfs.types import ROOT_DIRECTORY, RequestState, SegmentId

T = TypeVar("T")

MINUTE_S = 60
HOUR_S = 3600
SETTLED_S = 3
"""Two ticks and a bit: what is due at once is done."""


class TrioClock:
    """The wall clock of a fake world."""

    ahead_s = 0
    """How far the wall clock was set wrong."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round((self.monotonic_s() + self.ahead_s) * 1000)

    def monotonic_s(self) -> float:
        try:
            return trio.current_time()
        except RuntimeError:
            return 0.0

    def boot_s(self) -> float:
        return self.monotonic_s()


class FlakyStorage(MemoryStorage):
    """Fails while told to."""

    down = False
    gone = False
    """Whether nothing is answered at all."""

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        if self.gone:
            raise Unavailable("the server does not answer")
        return super().list(prefix, after=after)

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        if self.down:
            raise Unavailable("the server does not answer")
        return super().put(name, source, metadata=metadata, create_only=create_only)


class InLine:
    """No threads: everything happens in the trio loop, in an order that tests can repeat."""

    busy = False

    async def __call__(self, work: Callable[[], T], /) -> T:
        await trio.lowlevel.checkpoint()
        return work()

    async def idle(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.fixture
def storage() -> FlakyStorage:
    return FlakyStorage(ManualClock())


@pytest.fixture
def store(tmp_path: Path, storage: FlakyStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=TrioClock(), cold=storage) as opened:
        yield opened


@asynccontextmanager
async def working(store: TestStore, settings: BackgroundSettings | None = None) -> AsyncIterator[BackgroundWriter]:
    """The background writer at work while the block runs."""
    settings = settings or BackgroundSettings()
    writer = BackgroundWriter(store.cold_work(), Troubles(store.metadata, settings), settings, InLine())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        yield writer
        nursery.cancel_scope.cancel()


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4", "object_bytes": "8", **settings})


def troubles(store: TestStore) -> list[TroubleRecord]:
    with store.metadata.read() as txn:
        return [row for _, row in txn.scan(TROUBLES)]


def nothing_left(store: TestStore) -> bool:
    with store.metadata.read() as txn:
        return not txn.count(GARBAGE.name) and not txn.count(OUTBOX_NAME)


async def test_a_segment_goes_its_way_by_itself(store: TestStore, autojump_clock: MockClock) -> None:
    async with working(store):
        writer = store.engine.open_writer("s")
        writer.append(b"abcdefgh" + b"ij")
        assert_layout(store, "s", local=[4, 4, 2], cold=[])
        await trio.sleep(SETTLED_S)
        assert_layout(store, "s", local=[4, 4, 2], cold=[8])
        await trio.sleep(9 * MINUTE_S)
        assert_layout(store, "s", local=[4, 4, 2], cold=[8])
        await trio.sleep(MINUTE_S)
        assert_layout(store, "s", local=[4, 4, 2], cold=[8, 2])
        writer.append(b"k")
        await trio.sleep(3 * HOUR_S)
        assert_layout(store, "s", local=[4, 4, 2, 1], cold=[8, 2, 1])
        await trio.sleep(2 * HOUR_S)
        assert_layout(store, "s", local=[], cold=[8, 2, 1])
        assert nothing_left(store)
        assert list(store.files.names()) == []
        writer.append(b"l")
        await trio.sleep(11 * MINUTE_S)
        assert_layout(store, "s", local=[1], cold=[8, 2, 1, 1])
    assert store.read("s", None)[-1:] == b"l"


async def test_the_slot_of_a_killed_reader_is_freed(store: TestStore, autojump_clock: MockClock) -> None:
    async with working(store):
        await trio.sleep(SETTLED_S)
        pid = read_and_die(store.metadata.path)
        environment = open_environment(store.metadata.path)
        assert str(pid) in environment.lmdb.readers()
        await trio.sleep(MINUTE_S)
        assert str(pid) not in environment.lmdb.readers()


def read_and_die(metadata: Path) -> int:
    """A process that is killed in the middle of a read; returns its pid."""
    code = f"""
import os, signal
from pathlib import Path
from tierfs.clock import SystemClock
from tierfs.metadata.store import MetadataStore
with MetadataStore(Path({str(metadata)!r}), SystemClock()).read() as txn:
    txn.store
    os.kill(os.getpid(), signal.SIGKILL)
"""
    reader = subprocess.Popen([sys.executable, "-c", code])
    assert reader.wait(30) == -signal.SIGKILL
    return reader.pid


async def test_what_fails_is_listed_tried_again_and_never_dropped(
    store: TestStore, storage: FlakyStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("does not answer")
    storage.down = True
    store.append("s", b"abcd")
    async with working(store):
        await trio.sleep(HOUR_S)
        found = {row.what.split()[0]: row for row in troubles(store)}
        assert set(found) == {"offload", "publish", "owner"}
        assert found["offload"].attempts in range(15, 30)  # doubling from 1 s, then every 5 minutes
        assert (found["offload"].bytes, found["offload"].error_kind) == (4, "Unavailable")
        assert "does not answer" in found["offload"].error
        assert found["offload"].name == "s"
        assert_layout(store, "s", local=[4], cold=[])
        storage.down = False
        await trio.sleep(5 * MINUTE_S + SETTLED_S)
        assert troubles(store) == []
        assert_layout(store, "s", local=[4], cold=[4])
        assert nothing_left(store) or store.cold.stat(next(iter(store.cold.list("segments/"))).name)


async def test_a_cold_tier_that_fails_every_call_costs_no_local_byte(
    store: TestStore, storage: FlakyStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings += ["does not answer"]
    store.append("s", b"abcdefgh", seal=True)
    async with working(store):
        await trio.sleep(HOUR_S)
        assert_layout(store, "s", local=[4, 4], cold=[8])
        storage.gone = True
        await trio.sleep(5 * HOUR_S)
        assert_layout(store, "s", local=[4, 4], cold=[8])
        assert {"owner", "evict"} <= {row.what for row in troubles(store)}
        storage.gone = False
        await trio.sleep(6 * MINUTE_S)
        assert_layout(store, "s", local=[], cold=[8])
        assert troubles(store) == []


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
    async with working(store):
        await trio.sleep(HOUR_S)
        assert {row.what for row in troubles(store)} == {"owner", "publish"}
        assert {row.error_kind for row in troubles(store)} == {"WrongColdTier"}
    assert list(storage.list("")) == []


async def test_pauses_outlive_the_holder(
    store: TestStore, storage: FlakyStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("does not answer")
    storage.down = True
    store.append("s", b"abcd")
    async with working(store):
        await trio.sleep(HOUR_S)
    attempts = max(row.attempts for row in troubles(store))
    async with working(store):
        await trio.sleep(SETTLED_S)
    assert max(row.attempts for row in troubles(store)) <= attempts + 1


PACKING = {"chunk_bytes": "4096", "object_bytes": "65536"}
"""What makes less than 4096 bytes is packed."""


async def test_small_objects_go_together(tmp_path: Path, autojump_clock: MockClock) -> None:
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock()) as store:
        for number in range(50):
            store.append(f"s{number}", bytes([number]) * 3000, seal=True)
        store.append("large", bytes(4096), seal=True)
        async with working(store):
            await trio.sleep(SETTLED_S)
        found = [item for item in store.cold.list("packs/")]
        assert len(found) <= 4
        for item in found:
            paths = [entry.path for entry in read_index(store.cold, item.name, item.length_bytes).entries]
            assert paths == sorted(paths)
        assert len(list(store.cold.list("segments/"))) == 1
        for number in range(50):
            assert_layout(store, f"s{number}", local=[3000], cold=[3000])


async def test_small_objects_wait_until_all_were_looked_at(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SLICE_S", 0.0)  # a look is one step of some segments
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock()) as store:
        for number in range(100):
            store.append(f"s{number}", bytes([number]) * 400, seal=True)
        async with working(store):
            await trio.sleep(SETTLED_S)
        assert len(list(store.cold.list("packs/"))) == 1
        assert all(store.segment(f"s{number}").cold.count for number in range(100))


async def test_what_went_into_packs_goes_once_and_is_looked_at_in_slices(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfs.background.runner.SLICE_S", 0.0)
    looked = counted(monkeypatch, Snapshots, "_look_at")
    packed = counted(monkeypatch, PackOffload, "run")
    policy = {**PACKING, "offload_after": "30"}  # all are known when the first is due
    with open_test_store(tmp_path / "packs", policy=policy, clock=TrioClock()) as store:
        for number in range(50):
            store.append(f"s{number}", bytes([number]) * 100, seal=True)
        async with working(store):
            await trio.sleep(MINUTE_S)
        assert max(len(segment_ids) for (_, segment_ids) in looked) == 20
        assert [len(action.actions) for (_, action) in packed] == [50]
        assert all(store.segment(f"s{number}").cold.bytes == 100 for number in range(50))


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a method, as they come."""
    found: list[tuple[Any, ...]] = []
    method = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        found.append(arguments)
        return method(*arguments)

    monkeypatch.setattr(owner, name, call)
    return found


async def test_packs_that_fail_are_one_trouble_and_go_on_when_it_is_over(
    tmp_path: Path, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings += ["pack failed", "publish failed", "owner failed"]
    cold = FlakyStorage()
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock(), cold=cold) as store:
        for number in range(30):
            store.append(f"s{number}", bytes([number]) * 100, seal=True)
        cold.down = True
        async with working(store):
            await trio.sleep(MINUTE_S)
            (row,) = [row for row in troubles(store) if row.what == "pack"]
            assert row.attempts < 10
            cold.down = False
            await trio.sleep(HOUR_S)
        assert troubles(store) == []
        assert len(list(store.cold.list("packs/"))) == 1


async def test_a_damaged_chunk_of_a_pack_is_listed_and_the_others_are_cold(
    tmp_path: Path, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("offload .* failed")
    with open_test_store(tmp_path / "packs", policy=PACKING, clock=TrioClock()) as store:
        for number in range(5):
            store.append(f"s{number}", bytes([number]) * 100, seal=True)
        path = store.files.root / store.layout("s3").local[0].object.name
        path.chmod(0o600)
        path.write_bytes(b"x" * 100)
        async with working(store):
            await trio.sleep(HOUR_S)
        (row,) = troubles(store)
        assert (row.name, row.error_kind) == ("s3", "DataLoss")
        for name in ("s0", "s1", "s2", "s4"):
            assert_layout(store, name, local=[100], cold=[100])


async def test_a_segment_that_cannot_be_evicted_is_listed_and_keeps_no_other(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("evict .* failed: its chain is damaged")
    for name in ("a", "b", "c"):
        store.append(name, b"abcd", seal=True)
    evict_one, bad = evict.evict, store.segment("a").id

    def refuse(metadata: MetadataStore, segment_id: SegmentId, *, cold_before_ms: int) -> evict.Evicted:
        if segment_id == bad:
            raise DataLoss("its chain is damaged")
        return evict_one(metadata, segment_id, cold_before_ms=cold_before_ms)

    monkeypatch.setattr(evict, "evict", refuse)
    async with working(store):
        await trio.sleep(5 * HOUR_S)
        (row,) = troubles(store)
        assert (row.what, row.name, row.error_kind) == (f"evict {bad}", "a", "DataLoss")
        assert_layout(store, "a", local=[4], cold=[4])
        for name in ("b", "c"):
            assert_layout(store, name, local=[], cold=[4])
        monkeypatch.undo()
        await trio.sleep(6 * MINUTE_S)
        assert troubles(store) == []
        assert_layout(store, "a", local=[], cold=[4])


async def test_a_damaged_chunk_stays_listed_and_holds_nobody_up(
    store: TestStore, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("offload .* failed")
    store.append("bad", b"abcd", seal=True)
    (name,) = store.files.names()
    path = store.files.root / name
    path.chmod(0o600)
    path.write_bytes(b"abXd")
    store.append("good", b"efgh", seal=True)
    async with working(store):
        await trio.sleep(HOUR_S)
    assert_layout(store, "good", local=[4], cold=[4])
    assert_layout(store, "bad", local=[4], cold=[])
    (row,) = troubles(store)
    assert row.error_kind == "DataLoss"


async def test_the_high_watermark_holds_whatever_the_lag(store: TestStore, autojump_clock: MockClock) -> None:
    settings = BackgroundSettings(high_watermark_bytes=12)
    async with working(store, settings):
        writer = store.engine.open_writer("s")
        for _ in range(20):
            writer.append(b"abcd")
            await trio.sleep(SETTLED_S)
            assert store.segment("s").local.bytes <= 12
    assert store.segment("s").cold.bytes == 80


async def test_chunks_that_grow_too_large_together_end_before_their_time(
    store: TestStore, autojump_clock: MockClock
) -> None:
    set_policy(store, chunk_bytes="1000", object_bytes="1000")
    async with working(store, BackgroundSettings(high_watermark_bytes=200)):
        writers = {name: store.engine.open_writer(name) for name in "abc"}
        for writer in writers.values():
            writer.append(b"x")
        await trio.sleep(SETTLED_S)
        assert_layout(store, "b", local=[1], cold=[])
        writers["b"].append(bytes(120))
        await trio.sleep(SETTLED_S)
        assert_layout(store, "b", local=[121], cold=[121])
        assert_layout(store, "a", local=[1], cold=[])


async def test_status_tells_since_when_the_oldest_byte_is_here_alone(
    store: TestStore, autojump_clock: MockClock
) -> None:
    set_policy(store, offload_after=str(HOUR_S))
    async with working(store):
        store.append("old", b"abcd", seal=True)
        await trio.sleep(HOUR_S / 2)
        store.append("new", b"abcd", seal=True)
        began_ms = store.segment("new").modified_ms
        await trio.sleep(HOUR_S / 2 + SETTLED_S)
        assert_layout(store, "old", local=[4], cold=[4])
        with store.metadata.read() as txn:
            assert txn.oldest_local_only_ms == began_ms


async def test_a_new_policy_counts_at_the_next_tick(store: TestStore, autojump_clock: MockClock) -> None:
    set_policy(store, offload_after="7200", deletion_lag="0")
    store.append("s", b"abcd", seal=True)
    async with working(store):
        await trio.sleep(HOUR_S)
        assert_layout(store, "s", local=[4], cold=[])
        set_policy(store, deletion_lag="0")
        await trio.sleep(2 * SETTLED_S)
        assert_layout(store, "s", local=[], cold=[4])


async def test_a_bug_in_one_task_ends_no_other(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append("collect failed: a bug")
    calls = 0

    def broken(self: object) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("a bug")

    monkeypatch.setattr("tierfs.background.work.ColdWork.collect", broken)
    store.append("s", b"abcd", seal=True)
    async with working(store):
        await trio.sleep(MINUTE_S)
    assert calls > 3
    assert_layout(store, "s", local=[4], cold=[4])
    assert [row.what for row in troubles(store)] == ["collect"]


async def test_a_fenced_store_stops_and_says_so(store: TestStore, autojump_clock: MockClock) -> None:
    store.append("s", b"abcd", seal=True)
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=7))
    with pytest.raises(BaseExceptionGroup) as caught:
        async with working(store):
            await trio.sleep(MINUTE_S)
    assert caught.group_contains(Fenced)
    assert list(store.cold.list("segments/")) == []


async def test_requests_are_done_in_order_and_answered(store: TestStore, autojump_clock: MockClock) -> None:
    store.append("a/s", b"abcdef")
    first = requests.submit(store.metadata, "offload", "a", {})
    second = requests.submit(store.metadata, "evict", "a", {})
    wrong = requests.submit(store.metadata, "offload", "nowhere", {})
    unknown = requests.submit(store.metadata, "dance", "", {})
    async with working(store):
        await trio.sleep(SETTLED_S)
    assert requests.get(store.metadata, first).state is RequestState.DONE
    assert '"bytes": 6' in requests.get(store.metadata, second).result
    assert requests.get(store.metadata, wrong).error_kind == "NotFound"
    assert requests.get(store.metadata, unknown).error_kind == "InvalidRequest"
    segment = store.segment("a/s")
    assert (segment.local.bytes, segment.cold.bytes) == (0, 6)


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
    slow = BackgroundSettings(tick_s=MINUTE_S, request_poll_s=MINUTE_S)
    async with working(store, slow):
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
        await trio.sleep(24 * HOUR_S)
        assert writer.append(b"x").start == 96  # an idle writer finds its way
        store.engine.close_writer(writer)
        await trio.sleep(24 * HOUR_S)
        assert nothing_left(store)
        assert list(store.cold.list("segments/")) == []


def segment_start(store: TestStore) -> int:
    """Where the newest member of the stream `s` begins."""
    with store.metadata.read() as txn:
        return streams.newest(txn, directories.segment_by_name(txn, "s")).first_offset


async def test_a_jump_of_the_clock_stops_evictions_and_is_listed(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings += ["not trusted", "timed deletions failed"]
    set_policy(store, retention_age=str(365 * 24 * HOUR_S))
    store.append("s", b"abcd", seal=True)
    slow = BackgroundSettings(tick_s=MINUTE_S, request_poll_s=MINUTE_S)
    async with working(store, slow):
        await trio.sleep(5 * MINUTE_S)
        monkeypatch.setattr(TrioClock, "ahead_s", 2 * 365 * 24 * HOUR_S)
        await trio.sleep(HOUR_S)
        assert_layout(store, "s", local=[4], cold=[4])
        (row,) = troubles(store)
        assert row.what == "timed deletions"
        assert "ahead of the time since this machine's boot" in row.error
        monkeypatch.setattr(TrioClock, "ahead_s", 0)
        await trio.sleep(10 * MINUTE_S)
        assert_layout(store, "s", local=[4], cold=[4])
        await trio.sleep(4 * HOUR_S)
        assert_layout(store, "s", local=[], cold=[4])
