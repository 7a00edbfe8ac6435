"""Limits of bytes per second: who waits, for how long, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.doubles.manual_clock import ManualClock
from tierfs.base.system.deadlines import Deadline
from tierfs.base.system.throttle import Throttle, TokenBucket
from tierfs.base.words.errors import Closed, Unavailable
from tierfs.base.words.types import MIB


class Sleeper:
    """A clock that a wait moves, so that waiting takes no time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.waits = 0

    def wait(self, changed: threading.Condition, longest_s: float | None) -> None:
        assert longest_s is not None
        self.waits += 1
        self.clock.advance(longest_s)


def test_a_bucket_in_debt_is_out_of_it_after_the_time_of_the_debt() -> None:
    bucket = TokenBucket(per_s=10, most=5, now_s=0)
    bucket.take(25, now_s=0)
    assert (bucket.level(0), bucket.wait_s(0), bucket.wait_s(1.5), bucket.wait_s(2)) == (-20, 2.0, 0.5, 0.0)


def test_an_idle_bucket_saves_no_more_than_its_limit() -> None:
    bucket = TokenBucket(per_s=10, most=5, now_s=0)
    assert bucket.level(1000) == 5
    bucket.take(-100, now_s=1000)
    assert bucket.level(1000) == 5


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(per_s=10, most=5, now_s=100)
    bucket.take(5, now_s=100)
    assert bucket.level(50) == 0
    assert bucket.level(100) == 0


@pytest.mark.parametrize("piece_bytes", [4096, MIB, 64 * MIB])
def test_bytes_pass_at_the_set_rate_whatever_their_pieces(piece_bytes: int) -> None:
    sleeper = Sleeper()
    throttle = Throttle(10 * MIB, sleeper.clock, sleeper.wait)
    pieces = min(500, 1024 * MIB // piece_bytes)
    for _ in range(pieces):
        throttle.take(piece_bytes)
    took_s = sleeper.clock.monotonic_s()
    # The last piece is in debt, and a tenth of a second was saved up.
    assert (pieces - 1) * piece_bytes / (10 * MIB) - 0.1 == pytest.approx(took_s, abs=1e-2)
    assert sleeper.waits <= pieces, "each wait is one sleep"


def test_no_limit_counts_and_waits_for_nothing() -> None:
    sleeper = Sleeper()
    throttle = Throttle(0, sleeper.clock, sleeper.wait)
    throttle.take(1 << 50)
    throttle.charge(1 << 50)
    assert (sleeper.waits, throttle.granted_bytes, throttle.ready_in_s()) == (0, 0, 0.0)


def test_bytes_given_back_shorten_the_next_wait() -> None:
    clock = ManualClock()
    throttle = Throttle(MIB, clock)
    throttle.charge(8 * MIB)
    throttle.charge(-6 * MIB)
    assert throttle.ready_in_s() == pytest.approx(1.9)


def _waiting(throttle: Throttle, number: int) -> Callable[[], bool]:
    return lambda: throttle.waits == number


def _until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not holds():
        pause.wait(0.001)


def _taking(throttle: Throttle, name: str, done: list[str]) -> threading.Thread:
    thread = threading.Thread(target=lambda: (throttle.take(1), done.append(name)), daemon=True)
    thread.start()
    return thread


@pytest.mark.timeout(20)
def test_a_limit_that_is_removed_lets_all_pass_that_wait() -> None:
    throttle, done = Throttle(MIB, ManualClock()), list[str]()
    throttle.charge(1000 * MIB)  # on a clock that stands still
    threads = [_taking(throttle, name, done) for name in "ab"]
    _until(_waiting(throttle, 2))
    assert done == []
    throttle.limit(0)
    for thread in threads:
        thread.join()
    assert sorted(done) == ["a", "b"]


@pytest.mark.timeout(20)
def test_the_end_of_a_limit_fails_what_waits_and_what_would() -> None:
    throttle, errors = Throttle(MIB, ManualClock()), list[Closed]()
    throttle.charge(1000 * MIB)

    def take() -> None:
        try:
            throttle.take(1)
        except Closed as exc:
            errors.append(exc)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    _until(_waiting(throttle, 1))
    throttle.end()
    thread.join()
    take()
    assert len(errors) == 2
    assert (throttle.waits, throttle.granted_bytes) == (0, 1000 * MIB)


@pytest.mark.timeout(20)
def test_threads_wait_while_a_reader_does_and_then_pass_in_order() -> None:
    throttle, done = Throttle(MIB, ManualClock()), list[str]()
    throttle.let_readers_first(waits=True)
    threads = []
    for number, name in enumerate("abc", 1):
        threads.append(_taking(throttle, name, done))
        _until(_waiting(throttle, number))
    assert done == []
    assert throttle.ready_in_s() == 0, "a reader is granted bytes"
    throttle.let_readers_first(waits=False)
    for thread in threads:
        thread.join()
    assert done == ["a", "b", "c"]


def test_a_wait_ends_at_the_deadline_in_force_and_leaves_no_turn() -> None:
    sleeper = Sleeper()
    throttle = Throttle(MIB, sleeper.clock, sleeper.wait)
    throttle.charge(1000 * MIB)
    with (
        Deadline.after(3, "ack.deadline_s", sleeper.clock).in_force(),
        pytest.raises(Unavailable, match="within 3s"),
    ):
        throttle.take(1)
    assert throttle.waits == 0


def test_a_thread_advances_although_readers_always_wait() -> None:
    sleeper = Sleeper()
    throttle = Throttle(MIB, sleeper.clock, sleeper.wait)
    throttle.let_readers_first(waits=True)
    throttle.take(1)
    assert sleeper.clock.monotonic_s() == 10
