"""The order of fetches that wait for a limit."""

from __future__ import annotations

from collections import Counter

from tierfs.base.words.types import Payer
from tierfs.reading.fetch.fair_queue import FairQueue

ALICE, BOB, CAROL = Payer(1, 1), Payer(2, 2), Payer(3, 3)


def anyone(payer: Payer) -> bool:
    return True


def drained(queue: FairQueue[str]) -> list[str]:
    """Take all items, each of one byte."""
    taken = []
    while (next_one := queue.take(anyone)) is not None:
        taken.append(next_one[0])
        queue.granted(next_one[1], 1)
    return taken


def test_what_a_reader_waits_for_comes_before_read_ahead_nearest_first() -> None:
    queue = FairQueue[str]()
    queue.put("far", ALICE, 9, urgent=False)
    queue.put("near", ALICE, 1, urgent=False)
    assert not queue.urgent
    queue.put("wanted", BOB, -1, urgent=True)
    assert queue.urgent
    assert len(queue) == 3
    assert drained(queue) == ["wanted", "near", "far"]
    assert (len(queue), queue.payers) == (0, set())


def test_readers_take_turns_however_many_fetches_one_has() -> None:
    queue = FairQueue[str]()
    for number in range(4):
        queue.put(f"a{number}", ALICE, number, urgent=True)
    queue.put("b0", BOB, 0, urgent=True)
    queue.put("b1", BOB, 1, urgent=True)
    assert drained(queue) == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_readers_share_bytes_and_not_fetches() -> None:
    queue, granted = FairQueue[int](), Counter[Payer]()
    sizes = {ALICE: 8, BOB: 1}
    for payer, size in sizes.items():
        queue.put(size, payer, 0, urgent=True)
    for _ in range(900):
        taken = queue.take(anyone)
        assert taken is not None
        size, payer = taken
        queue.granted(payer, size)
        granted[payer] += size
        queue.put(size, payer, 0, urgent=True)  # a reader asks for the next one when it has this one
    assert abs(granted[ALICE] - granted[BOB]) <= 8


def test_a_reader_that_was_away_neither_makes_up_for_it_nor_waits_longer() -> None:
    queue = FairQueue[str]()
    for number in range(100):
        queue.put("before", ALICE, number, urgent=True)
    assert drained(queue) == ["before"] * 100
    for number in range(3):
        queue.put("a", ALICE, number, urgent=True)
        queue.put("b", BOB, number, urgent=True)
    assert sorted(drained(queue)[:4]) == ["a", "a", "b", "b"]


def test_a_reader_that_may_not_be_granted_bytes_is_passed_over_and_stays() -> None:
    queue = FairQueue[str]()
    queue.put("a", ALICE, 0, urgent=True)
    queue.put("b", BOB, 0, urgent=False)
    assert queue.take(lambda payer: payer is BOB) == ("b", BOB)
    assert queue.take(lambda payer: payer is BOB) is None
    assert queue.take(anyone) == ("a", ALICE)


def test_dropped_items_leave_nothing_behind() -> None:
    queue = FairQueue[str]()
    for number in range(10):
        queue.put(f"{number}", ALICE, -number, urgent=number % 2 == 0)
    queue.put("kept", BOB, 0, urgent=False)
    queue.keep(lambda item: item in ("kept", "3", "5"))
    assert (len(queue), queue.urgent, queue.payers) == (3, False, {ALICE, BOB})
    assert sorted(drained(queue)) == ["3", "5", "kept"]


def test_readers_without_fetches_are_forgotten_once_there_are_many() -> None:
    queue = FairQueue[str]()
    queue.put("x", Payer(0, 0), 0, urgent=True)
    for number in range(1, 5000):  # never empty
        queue.put("x", Payer(0, number), 0, urgent=True)
        taken = queue.take(anyone)
        assert taken is not None
        queue.granted(taken[1], 1)
    assert queue.remembered <= 1025
