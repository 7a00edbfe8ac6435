"""Work in threads: order, bounds, the first error, and ends that leave nothing running."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.bytes.parallel import Pool, caught
from tierfs.base.bytes.progress import Meter, Progress
from tierfs.base.words.errors import Closed, DataLoss, TierfsError

WAIT_S = 10

NUMBERS = st.lists(st.integers(), max_size=40)
THREADS = st.integers(1, 5)
AHEAD = st.none() | st.integers(1, 9)


class Watched:
    """Squares numbers, and counts the calls that have begun and those that run."""

    def __init__(self, square: Callable[[int], int] = lambda number: number * number) -> None:
        self._square = square
        self._lock = threading.Lock()
        self.begun: list[int] = []
        self.running = 0

    def __call__(self, number: int) -> int:
        with self._lock:
            self.begun.append(number)
            self.running += 1
        try:
            return self._square(number)
        finally:
            with self._lock:
                self.running -= 1


def fails_at(failing: int) -> Callable[[int], int]:
    def square(number: int) -> int:
        if number == failing:
            raise DataLoss(f"{number} is bad")
        if number > failing:
            time.sleep(0.01)
        return number * number

    return square


@given(NUMBERS, THREADS, AHEAD)
def test_results_come_in_order(numbers: list[int], threads: int, ahead: int | None) -> None:
    with Pool(threads, "tierfs-test") as pool:
        assert list(pool.in_order(Watched(), numbers, ahead=ahead)) == [number * number for number in numbers]


@given(NUMBERS, THREADS, AHEAD)
def test_each_item_comes_with_its_result_in_any_order(numbers: list[int], threads: int, ahead: int | None) -> None:
    with Pool(threads, "tierfs-test") as pool:
        found = list(pool.as_completed(Watched(), numbers, ahead=ahead))
    assert sorted(found) == sorted((number, number * number) for number in numbers)


@given(NUMBERS, THREADS)
def test_run_returns_all_results_in_order(numbers: list[int], threads: int) -> None:
    with Pool(threads, "tierfs-test") as pool:
        assert pool.run(Watched(), numbers) == [number * number for number in numbers]


@given(THREADS, AHEAD, st.booleans())
def test_no_more_items_are_taken_than_are_looked_ahead(threads: int, ahead: int | None, ordered: bool) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    with Pool(threads, "tierfs-test") as pool:
        results = (pool.in_order if ordered else pool.as_completed)(Watched(), numbers(), ahead=ahead)
        for before, _ in enumerate(results):
            assert len(taken) <= before + (ahead or 2 * threads)


def test_what_is_done_first_comes_first() -> None:
    second_came = threading.Event()
    with Pool(2, "tierfs-test") as pool:
        for number, _ in pool.as_completed(lambda number: number or second_came.wait(WAIT_S), (0, 1)):
            assert second_came.is_set() == (number == 0)
            second_came.set()


def test_items_end_early_for_what_the_results_tell() -> None:
    seen: list[int] = []
    numbers = itertools.takewhile(lambda _: len(seen) < 3, itertools.count())
    with Pool(1, "tierfs-test") as pool:
        for number, _ in pool.as_completed(Watched(), numbers, ahead=1):
            seen.append(number)
    assert seen == [0, 1, 2]


def in_order(pool: Pool, work: Watched, numbers: Iterator[int]) -> None:
    for _ in pool.in_order(work, numbers):
        pass


def as_completed(pool: Pool, work: Watched, numbers: Iterator[int]) -> None:
    for _ in pool.as_completed(work, numbers):
        pass


def run(pool: Pool, work: Watched, numbers: Iterator[int]) -> None:
    pool.run(work, numbers)


WAYS = pytest.mark.parametrize("way", [in_order, as_completed, run])
Way = Callable[[Pool, Watched, Iterator[int]], None]


@WAYS
def test_an_error_ends_the_work_and_nothing_runs_after_it(way: Way) -> None:
    work = Watched(fails_at(3))
    with pytest.raises(DataLoss, match="3 is bad"), Pool(2, "tierfs-test") as pool:
        way(pool, work, iter(range(200)))
    assert work.running == 0
    assert len(work.begun) < 200


@WAYS
def test_an_error_while_items_are_made_is_raised(way: Way) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise DataLoss("no second one")

    work = Watched()
    with pytest.raises(DataLoss, match="no second one"), Pool(2, "tierfs-test") as pool:
        way(pool, work, numbers())
    assert work.running == 0


def test_of_several_errors_the_first_in_order_is_raised() -> None:
    second_failed = threading.Event()

    def work(number: int) -> None:
        if number:
            second_failed.set()
        else:
            second_failed.wait(WAIT_S)
        raise DataLoss(f"{number} is bad")

    for way in (lambda pool: list(pool.in_order(work, (0, 1))), lambda pool: pool.run(work, (0, 1))):
        second_failed.clear()
        with pytest.raises(DataLoss, match="0 is bad"), Pool(2, "tierfs-test") as pool:
            way(pool)


def test_run_waits_for_calls_under_way_in_a_pool_that_lives_on() -> None:
    other_began = threading.Event()
    ended: list[int] = []

    def work(number: int) -> None:
        if not number:
            other_began.wait(WAIT_S)
            raise DataLoss("bad")
        other_began.set()
        time.sleep(0.05)
        ended.append(number)

    with closing(Pool(2, "tierfs-test")) as pool:
        with pytest.raises(DataLoss):
            pool.run(work, (0, 1))
        assert ended == [1]
        assert pool.run(lambda number: number, (5,)) == [5]


def test_an_error_that_is_caught_leaves_the_others_to_be_done() -> None:
    with Pool(2, "tierfs-test") as pool:
        found = list(pool.in_order(caught(fails_at(1)), range(3)))
    assert [str(one) if isinstance(one, TierfsError) else one for one in found] == [0, "1 is bad", 4]


@WAYS
def test_ctrl_c_drops_what_has_not_begun(way: Way) -> None:
    came = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        came.set()
        raise KeyboardInterrupt

    def interrupt(number: int) -> int:
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)
            assert came.wait(WAIT_S)
            time.sleep(0.2)
        return number

    gc.disable()  # its callbacks swallow what is raised in them
    before = signal.signal(signal.SIGINT, end)
    work = Watched(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), Pool(1, "tierfs-test") as pool:
            way(pool, work, iter(range(200)))
    finally:
        signal.signal(signal.SIGINT, before)
        gc.enable()
    assert work.running == 0
    assert len(work.begun) <= 3  # one more where it came in the middle of a submission


def test_a_consumer_that_stops_drops_what_has_not_begun() -> None:
    go_on = threading.Event()
    work = Watched(lambda number: number if number == 0 or go_on.wait(WAIT_S) else -1)
    with closing(Pool(1, "tierfs-test")) as pool:
        with closing(pool.in_order(work, range(100), ahead=8)) as results:
            assert next(results) == 0
        go_on.set()
        assert pool.run(work, (1000,)) == [1000]  # behind the one that was under way
    assert set(work.begun) <= {0, 1, 1000}


def test_a_closed_pool_says_what_was_closed() -> None:
    pool = Pool(1, "tierfs-test", "s3://bucket")
    pool.close()
    pool.close()
    with pytest.raises(Closed, match="s3://bucket: closed"):
        pool.run(str, (1,))


@WAYS
def test_calls_that_wait_for_a_thread_end_in_closed_when_the_pool_is_closed(way: Way) -> None:
    began, go_on = threading.Event(), threading.Event()

    def square(number: int) -> int:
        began.set()
        go_on.wait(WAIT_S)
        return number

    pool = Pool(1, "tierfs-test")
    errors: list[BaseException] = []

    def use() -> None:
        try:
            way(pool, Watched(square), iter(range(3)))
        except Closed as exc:
            errors.append(exc)

    user = threading.Thread(target=use, daemon=True)
    user.start()
    assert began.wait(WAIT_S)
    pool.close(wait=False)
    go_on.set()
    user.join(WAIT_S)
    assert [str(error) for error in errors] == ["tierfs-test: closed"]


def test_a_meter_adds_up_what_threads_have_done() -> None:
    seen: list[Progress] = []
    meter = Meter(seen.append, 100)
    with Pool(4, "tierfs-test") as pool:
        pool.run(lambda _: meter(1, "a"), range(99))
    meter(3, "b")
    assert seen[0] == Progress(1, 100, "a")
    assert [progress.done_bytes for progress in seen] == [*range(1, 100), 102]
    assert seen[-1] == Progress(102, 102, "b")  # more than was planned
