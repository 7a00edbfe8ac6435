"""The loop that repeats a table of tasks: when each is next, and how failures are counted, listed and passed on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import InLine, failures
from tests.stores import TestStore
from tierfs.config import BackgroundSettings
from tierfs.errors import Fenced, Unavailable
from tierfs.holder.failures import Failures, of_segment
from tierfs.holder.tasks import PAUSE_S, Step, Task, TaskLoop, TaskOutcome
from tierfs.tiering.objects import ChunksMoved

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


async def test_chunks_that_moved_are_no_failure(store: TestStore, loop: TaskLoop, autojump_clock: MockClock) -> None:
    assert await loop.attempt("task", Runs(ChunksMoved("elsewhere"))) is TaskOutcome.DONE
    assert failures(store) == []


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


async def test_a_blocking_function_is_a_step_whose_result_says_nothing(
    store: TestStore, loop: TaskLoop, autojump_clock: MockClock
) -> None:
    done: list[int] = []
    step: Step = loop.blocking(lambda: done.append(1))
    assert await loop.attempt("task", step) is TaskOutcome.DONE
    assert done == [1]
