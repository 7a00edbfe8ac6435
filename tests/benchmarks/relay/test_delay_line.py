"""Bytes leave in order and not before their time; the clock is turned by hand."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks.relay.delay_line import DelayLine


@dataclass
class Hand:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_bytes_are_ready_when_their_time_has_come() -> None:
    clock = Hand()
    line = DelayLine(0.5, clock)
    line.enter(10)
    clock.now_s += 0.25
    line.enter(7)
    found = [line.ready_bytes()]
    for _ in range(3):
        clock.now_s += 0.25
        found.append(line.ready_bytes())
    assert found == [0, 10, 17, 17]


def test_the_next_time_is_that_of_the_first_who_waits() -> None:
    clock = Hand()
    line = DelayLine(0.5, clock)
    assert line.due_s is None
    line.enter(10)
    clock.now_s += 0.25
    line.enter(7)
    assert line.due_s == 100.5
    clock.now_s = 100.5
    assert line.ready_bytes() == 10
    assert line.due_s == 100.75


def test_what_its_sink_did_not_take_stays_ready() -> None:
    clock = Hand()
    line = DelayLine(0.5, clock)
    line.enter(10)
    clock.now_s += 0.5
    assert line.ready_bytes() == 10
    line.leave(4)
    assert (line.ready_bytes(), line.empty, line.due_s) == (6, False, None)
    line.leave(6)
    assert line.empty


def test_without_a_delay_bytes_are_ready_at_once() -> None:
    line = DelayLine(0, Hand())
    assert line.empty
    line.enter(10)
    assert (line.ready_bytes(), line.empty, line.due_s) == (10, False, None)
