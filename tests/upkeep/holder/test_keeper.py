"""The keeper: one holds, the next takes its place, and nothing foreseen or unforeseen ends it for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.stores import TestStore, assert_layout, open_test_store
from tests.upkeep.holder.holding import FlakyStorage, InLine, TrioClock, failures
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import Unavailable
from tierfs.upkeep.holder import kinds
from tierfs.upkeep.holder.lock import HeldElsewhere, current
from tierfs.upkeep.holder.loop import Begin, HolderTask
from tierfs.upkeep.holder.tasks import InThread, Step, TaskLoop, TaskOutcome
from tierfs.upkeep.holder.work import ColdWork


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=TrioClock()) as opened:
        opened.append("s", b"abcdefgh", seal=True)
        yield opened


def writer_task(
    store: TestStore, make_work: Callable[[], ColdWork] | None = None, in_thread: InThread | None = None
) -> HolderTask:
    def connect() -> Begin:
        return partial(kinds.with_cold_tier, (make_work or store.cold_work)())

    return HolderTask(store.paths.holder, store.metadata, BackgroundSettings, in_thread or InLine(), connect)


async def test_the_first_holds_and_the_next_waits_for_its_turn(store: TestStore, autojump_clock: MockClock) -> None:
    held: list[str] = []
    async with trio.open_nursery() as nursery:
        first = trio.CancelScope()

        async def run_first() -> None:
            with first:
                await writer_task(store).run(on_held=lambda: held.append("first"))

        nursery.start_soon(run_first)
        await trio.sleep(3)
        nursery.start_soon(lambda: writer_task(store).run(on_held=lambda: held.append("second")))
        await trio.sleep(10)
        assert held == ["first"]
        with pytest.raises(HeldElsewhere):
            await writer_task(store).run(wait=False)
        assert_layout(store, "s", local=[4, 4], cold=[8])
        first.cancel()
        await trio.sleep(3)
        assert held == ["first", "second"]
        nursery.cancel_scope.cancel()
    assert current(store.paths.holder) is None


async def test_renewing_goes_on_as_the_holder(store: TestStore, autojump_clock: MockClock) -> None:
    made: list[ColdWork] = []

    def make() -> ColdWork:
        made.append(store.cold_work())
        return made[-1]

    one = writer_task(store, make)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(3)
        one.renew()
        assert current(store.paths.holder) is not None
        store.append("t", b"abcd", seal=True)
        await trio.sleep(3)
        assert len(made) == 2
        assert_layout(store, "t", local=[4], cold=[4])
        nursery.cancel_scope.cancel()


async def test_renewing_tries_at_once_what_failed_before(
    tmp_path: Path, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    """As with new keys after a night of refused ones, when pauses have become minutes."""
    expected_warnings.append("does not answer")
    storage = FlakyStorage()
    with open_test_store(tmp_path / "store", clock=TrioClock(), cold=storage) as store:
        store.append("s", b"abcdefgh", seal=True)
        storage.down = True
        one = writer_task(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            await trio.sleep(400)
            storage.down = False
            await trio.sleep(3)
            assert failures(store), "a pause is not over"
            one.renew()
            await trio.sleep(3)
            assert failures(store) == []
            assert_layout(store, "s", local=[4, 4], cold=[8])
            nursery.cancel_scope.cancel()


async def test_what_cannot_begin_is_tried_again(
    store: TestStore, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is restarted every")
    failures = 3

    def make() -> ColdWork:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise RuntimeError("not yet")
        return store.cold_work()

    one = writer_task(store, make)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(10)
        assert_layout(store, "s", local=[4, 4], cold=[8])
        nursery.cancel_scope.cancel()


class Lingering(InLine):
    """A thread that is still at work when a task fails."""

    busy = False

    async def idle(self) -> None:
        await trio.sleep(20)
        self.busy = False


async def test_a_task_that_fails_beside_a_busy_thread_does_not_lock_its_own_process_out(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is restarted every")
    threads, original, bugs = Lingering(), TaskLoop.attempt, [RuntimeError("a bug")]

    async def attempt(loop: TaskLoop, name: str, step: Step, *, size_bytes: int = 0) -> TaskOutcome:
        if name == "lifetimes" and bugs:
            await trio.sleep(1)
            threads.busy = True
            raise bugs.pop()
        return await original(loop, name, step, size_bytes=size_bytes)

    monkeypatch.setattr(TaskLoop, "attempt", attempt)
    one = writer_task(store, in_thread=threads)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(10)
        assert not one.holds
        assert current(store.paths.holder) is not None  # what is in flight may still commit
        await trio.sleep(50)
        assert one.holds
        store.append("t", b"abcd", seal=True)
        await trio.sleep(3)
        assert_layout(store, "t", local=[4], cold=[4])
        nursery.cancel_scope.cancel()


async def test_a_fenced_keeper_lets_go_and_stays_away(
    store: TestStore, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("the background writer stops")
    with store.metadata.write_notes() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=9))
    with trio.fail_after(60):
        await writer_task(store).run()
    assert current(store.paths.holder) is None


async def test_a_replica_lists_what_keeps_it_from_refreshing_and_goes_on(
    store: TestStore, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("refresh failed: away")
    connected: list[str] = []
    refreshed: list[float] = []

    def refresh() -> None:
        refreshed.append(trio.current_time())
        if len(refreshed) == 2:
            raise Unavailable("away")

    def make_refresh() -> Callable[[], object]:
        connected.append("connected")
        return refresh

    settings = BackgroundSettings(replica_refresh_s=5)
    begin = partial(kinds.of_replica, store.metadata, make_refresh)
    one = HolderTask(store.path / "holder", store.metadata, lambda: settings, InLine(), lambda: begin)
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(6)
        assert one.holds
        assert [row.what for row in failures(store)] == ["refresh"]
        await trio.sleep(6)
        assert failures(store) == []
        assert [round(at - began_s) for at in refreshed] == [0, 5, 10]
        one.renew()
        await trio.sleep(1)
        assert len(connected) == 2
        nursery.cancel_scope.cancel()
