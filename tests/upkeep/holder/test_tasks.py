"""The loop that repeats a table of tasks: when each is next, and how failures are counted, listed and passed on."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tests.upkeep.holder.holding import InLine, failures
from tierfs.base.options.config import BackgroundSettings
from tierfs.base.words.errors import Fenced, Unavailable
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.tables import FAILURES
from tierfs.upkeep.holder.failures import Failures, of_segment
from tierfs.upkeep.holder.lock import HeldElsewhere, Hold, current
from tierfs.upkeep.holder.tasks import PAUSE_S, Task, TaskLoop, TaskOutcome

PERIOD_S = 10.0


@pytest.fixture
def loop(store: TestStore) -> TaskLoop:
    return TaskLoop(store.metadata, Failures(store.metadata, BackgroundSettings()), InLine())


class Runs:
    """A step that notes its times and has the outcomes it was given."""

    def __init__(self, *outcomes: object) -> None:
        self.times: list[float] = []
        self._outcomes = list(outcomes)
        self._began_s = trio.current_time()

    async def __call__(self) -> object:
        await trio.lowlevel.checkpoint()
        self.times.append(round(trio.current_time() - self._began_s, 3))
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@asynccontextmanager
async def repeating(loop: TaskLoop, *tasks: Task) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.run, tasks)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("outcome", "second_s"),
    [
        (None, PERIOD_S),
        (17, PERIOD_S),
        (TaskOutcome.DONE, PERIOD_S),
        (TaskOutcome.MORE, PAUSE_S),
        (TaskOutcome.AT_ONCE, 0),
    ],
)
async def test_the_outcome_says_when_a_task_is_next(
    loop: TaskLoop, autojump_clock: MockClock, outcome: object, second_s: float
) -> None:
    runs = Runs(outcome)
    async with repeating(loop, Task(PERIOD_S, {"task": runs})):
        await trio.sleep(PERIOD_S + 1)
    assert runs.times[:2] == [0, second_s]


async def test_metadata_that_cannot_be_read_do_not_end_the_loop(
    loop: TaskLoop, store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise Unavailable("the disk of the metadata does not respond")

    runs = Runs()
    async with repeating(loop, Task(1, {"task": runs}, still_periods=5)):
        await trio.sleep(0.5)
        monkeypatch.setattr(store.metadata, "last_transaction_id", refuse)
        await trio.sleep(3)
    assert runs.times == [0, 1, 2, 3]


async def test_a_long_look_leaves_more_of_the_core_to_a_busy_process(
    loop: TaskLoop, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time", trio.current_time)
    runs = Runs(*[TaskOutcome.MORE] * 3)
    async with repeating(loop, Task(PERIOD_S, {"task": runs})):
        await trio.sleep(PERIOD_S)
    assert runs.times[1] == pytest.approx(4 * PAUSE_S)
    monkeypatch.undo()


async def test_a_step_that_fails_is_listed_waits_and_keeps_no_other(
    store: TestStore, loop: TaskLoop, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("first failed: away")
    first, second = Runs(*[Unavailable("away")] * 3), Runs()
    async with repeating(loop, Task(1, {"first": first, "second": second}, still_periods=5)):
        await trio.sleep(4.5)
        (row,) = failures(store)
        assert (row.what, row.attempts, row.error) == ("first", 3, "away")
        await trio.sleep(4)
    assert first.times[:4] == [0, 1, 3, 7]  # its pause doubles
    assert second.times[:5] == [0, 1, 2, 3, 4]  # a task with a failure rests for one period
    assert failures(store) == []


async def test_while_no_process_commits_a_task_may_rest_longer(
    store: TestStore, loop: TaskLoop, autojump_clock: MockClock
) -> None:
    runs = Runs()
    async with repeating(loop, Task(1, {"task": runs}, still_periods=5)):
        await trio.sleep(6.5)
        store.append("s", b"abcd")
        await trio.sleep(1)
    assert runs.times == [0, 5, 7]


async def test_news_before_the_end_of_a_run_wakes_its_task_too(loop: TaskLoop, autojump_clock: MockClock) -> None:
    news = [trio.Event()]
    ran: list[float] = []

    async def run() -> None:
        ran.append(trio.current_time())
        if len(ran) == 1:
            news[0].set()
            news[0] = trio.Event()
        await trio.lowlevel.checkpoint()

    async with repeating(loop, Task(PERIOD_S, {"task": run}, woken=lambda: news[0])):
        await trio.sleep(1)
        assert len(ran) == 2
        news[0].set()
        news[0] = trio.Event()
        await trio.sleep(1)
        assert len(ran) == 3


async def test_news_does_not_shorten_the_rest_after_a_failure(
    loop: TaskLoop, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("task failed: away")
    runs, woken = Runs(Unavailable("away")), trio.Event()
    woken.set()
    async with repeating(loop, Task(PERIOD_S, {"task": runs}, woken=lambda: woken)):
        await trio.sleep(PERIOD_S / 2)
        assert runs.times == [0]


async def test_only_fenced_ends_the_loop(store: TestStore, loop: TaskLoop, autojump_clock: MockClock) -> None:
    runs = Runs(None, Fenced("another store owns the bucket"))
    with trio.fail_after(PERIOD_S + 1), pytest.raises(BaseExceptionGroup) as caught:
        await loop.run([Task(PERIOD_S, {"task": runs}), Task(1, {"other": Runs()})])
    assert caught.group_contains(Fenced)
    assert failures(store) == []


async def test_failures_at_a_segment_are_listed_by_its_path(
    store: TestStore, loop: TaskLoop, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("failed: away")
    store.append("d/s", b"abcd")
    segment_id = store.segment("d/s").id
    for name in (of_segment("task", segment_id), f"{of_segment('upload', segment_id)} 0", "dead readers", "task 999"):
        assert await loop.attempt(name, Runs(Unavailable("away")), size_bytes=4) is TaskOutcome.FAILED
    assert {row.what: row.name for row in failures(store)} == {
        f"task {segment_id}": "d/s",
        f"upload {segment_id} 0": "d/s",
        "dead readers": "",
        "task 999": "",
    }
    assert {row.bytes for row in failures(store)} == {4}


AWAY = Unavailable("the server does not answer")

MANY = 1000


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def noted(plain: TestStore, expected_warnings: list[str]) -> Failures:
    expected_warnings.append("does not answer")
    return Failures(plain.metadata, BackgroundSettings())


def what_failed(plain: TestStore) -> set[str]:
    with plain.metadata.read() as txn:
        return {row.what for _, row in txn.scan(FAILURES)}


def test_the_end_of_an_outage_is_told_by_many_threads_at_once(plain: TestStore, noted: Failures) -> None:
    names = [f"offload {number} 0" for number in range(MANY)]
    for name in names:
        noted.failed(name, AWAY)
    with ThreadPoolExecutor(4) as pool:
        passing = [pool.submit(noted.passed, name) for name in names]
        for number in range(50):
            noted.failed(f"look {number}", AWAY)
            noted.retain("look ", lambda _: False)
        for one in passing:
            one.result()
    assert what_failed(plain) == set()
    assert not any(noted.has(name) for name in names)


def test_the_first_that_works_ends_the_pauses_of_all_before_it(plain: TestStore, noted: Failures) -> None:
    noted.failed("a", AWAY)
    noted.failed("b", AWAY)
    assert not noted.may_try("a")
    noted.passed("b")
    assert noted.may_try("a")
    noted.failed("a", AWAY)
    assert not noted.may_try("a")
    assert not Failures(plain.metadata, BackgroundSettings()).may_try("a")


def test_a_failure_that_is_written_late_does_not_outlive_its_end(
    plain: TestStore, noted: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work passes in another thread before the row of its failure is on the disk."""
    write = Failures._write

    def late(self: Failures, row: FailureRecord) -> None:
        self.passed(row.what)
        write(self, row)

    monkeypatch.setattr(Failures, "_write", late)
    noted.failed("offload 1 0", AWAY)
    assert not noted.has("offload 1 0")
    assert what_failed(plain) == set()


def test_an_end_that_is_written_late_does_not_remove_the_next_failure(
    plain: TestStore, noted: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = Failures._remove

    def late(self: Failures, what: str) -> None:
        self.failed(what, AWAY)
        remove(self, what)

    noted.failed("offload 1 0", AWAY)
    monkeypatch.setattr(Failures, "_remove", late)
    noted.passed("offload 1 0")
    assert noted.has("offload 1 0")
    assert what_failed(plain) == {"offload 1 0"}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_note_that_cannot_be_written_keeps_nobody_from_holding(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append("other processes cannot see which process has the store locked")

    def refuse(fd: int, data: bytes, offset: int) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        held = Hold(tmp_path / "holder", ManualClock())
    with pytest.raises(HeldElsewhere, match="another process"):
        Hold(tmp_path / "holder", ManualClock())
    held.release()
    Hold(tmp_path / "holder", ManualClock()).release()


def test_a_failure_while_the_note_is_made_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", fail)
        with pytest.raises(ZeroDivisionError):
            Hold(tmp_path / "holder", ManualClock())
    assert current(tmp_path / "holder") is None
    Hold(tmp_path / "holder", ManualClock()).release()
