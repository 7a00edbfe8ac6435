"""A wrong clock at the start of a process: what an earlier process saw tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import IN_MEMORY, TestStore, open_test_store, quiet, waiting_objects
from tierfs.app.recovery import recover
from tierfs.base.system.clock import LONGEST_REST_S
from tierfs.base.words.errors import Unavailable
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.segments import trash
from tierfs.tiering.garbage import clock_acceptance
from tierfs.tiering.garbage.clocks import ClockCheck, ClockDisagrees
from tierfs.upkeep.holder.work import ColdWork

HOUR_S = 3600
DAY_S = 24 * HOUR_S
AHEAD_S = 10 * DAY_S

POLICY = {
    "chunk_bytes": "4",
    "object_bytes": "8",
    "trash_age": str(DAY_S),
    "retention_age": str(3 * DAY_S),
    "seal_age": str(5 * DAY_S),
}
Wrong = Callable[[ManualClock], None]

YOUNG = {"kept", "trash", "object", "open"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[TestStore]:
    """Something of all that an age ends, each of which is young."""
    with open_test_store(tmp_path / "store", policy=POLICY, clock=clock) as store:
        store.append("kept", b"abcd", seal=True)
        store.append("removed", b"abcd", seal=True)
        store.append("replaced", b"abcd", seal=True)
        store.append("open", b"ab")
        store.offload("kept")
        store.offload("replaced")
        store.engine.delete("removed", recursive=False, cold_due_ms=clock.now_ms(), to_trash=True)
        store.engine.delete("replaced", recursive=False, cold_due_ms=clock.now_ms() + HOUR_S * 1000)
        store.cold_work().publish()
        yield store


def left(store: TestStore) -> set[str]:
    """What is there still."""
    with store.metadata.read() as txn:
        segments = {segment.name: segment for _, segment in txn.scan(SEGMENTS)}
        removed = list(trash.removed(txn))
    there = {"kept"} & segments.keys()
    if not segments["open"].sealed:
        there.add("open")
    if removed:
        there.add("trash")
    if waiting_objects(store):
        there.add("object")
    return there


def another_process(store: TestStore, *, appends: bool = False) -> ColdWork:
    """Let a process end, and the next one do all that a holder does by itself."""
    store.kill()
    store.start()
    if appends:  # as the first of all
        store.append("more", b"a")
    work = store.cold_work()
    work.end_lifetimes()
    work.collect()
    return work


def far_ahead(clock: ManualClock) -> None:
    clock.jump(AHEAD_S)


def started_far_ahead(clock: ManualClock) -> None:
    clock.restart(60, ahead_s=AHEAD_S)


def started_hours_ahead(clock: ManualClock) -> None:
    clock.restart(LONGEST_REST_S, ahead_s=AHEAD_S)


WRONG = [far_ahead, started_far_ahead, started_hours_ahead]


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_process_that_begins_with_a_clock_ahead_ends_nothing(
    store: TestStore,
    clock: ManualClock,
    expected_warnings: list[str],
    wrong: Wrong,
    appends: bool,
) -> None:
    expected_warnings.append("not trusted")
    wrong(clock)
    for _ in range(3):
        work = another_process(store, appends=appends)
        assert left(store) == YOUNG
        with pytest.raises(ClockDisagrees, match=r"if it is right now: tierfs gc --accept-clock"):
            work.clocks.require()
        clock.advance(HOUR_S)


def test_a_machine_that_slept_is_compared_by_the_time_it_slept(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    clock.advance(8 * HOUR_S)
    another_process(store)
    assert left(store) == YOUNG - {"object"}
    expected_warnings.append("not trusted")
    far_ahead(clock)
    another_process(store)
    assert left(store) == YOUNG - {"object"}


def test_with_the_right_clock_every_lifetime_ends(store: TestStore, clock: ManualClock) -> None:
    clock.advance(AHEAD_S)
    another_process(store)
    assert left(store) == {"object"}  # that of the trash, or of `kept`: its grace begins now


def test_a_short_rest_is_believed_and_a_long_one_not(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    clock.restart(LONGEST_REST_S)
    another_process(store)
    assert left(store) == YOUNG - {"object"}
    expected_warnings.append("not trusted.*5 hours old, and no server confirms")
    clock.restart(LONGEST_REST_S + HOUR_S)
    work = another_process(store)
    clock.advance(DAY_S - 1)
    assert work.clocks.reason() is not None
    clock.advance(1)  # the operator had a day
    work.clocks.require()


@pytest.mark.parametrize("wrong", WRONG)
def test_distrust_ends_once_an_operator_says_that_the_clock_is_right(
    store: TestStore, clock: ManualClock, expected_warnings: list[str], wrong: Wrong
) -> None:
    expected_warnings.append("not trusted")
    wrong(clock)
    another_process(store)
    clock_acceptance.accept(store.metadata, grace_s=HOUR_S)
    another_process(store)
    assert left(store) == {"object"}
    clock.advance(AHEAD_S)
    another_process(store).clocks.require()  # it is known from now on


@pytest.mark.parametrize("wrong", WRONG)
def test_a_server_settles_it_for_later_processes_too(
    store: TestStore, clock: ManualClock, expected_warnings: list[str], wrong: Wrong
) -> None:
    expected_warnings.append("not trusted")
    wrong(clock)
    store.server_time_ms = clock.now_ms() - AHEAD_S * 1000
    another_process(store)
    assert left(store) == YOUNG
    store.server_time_ms = clock.now_ms()
    another_process(store)
    assert left(store) == {"object"}
    store.server_time_ms = None  # it does not answer
    another_process(store).clocks.require()


def test_a_holder_at_rest_keeps_the_time(store: TestStore, clock: ManualClock) -> None:
    work = store.cold_work()
    for _ in range(10):
        clock.advance(HOUR_S)
        work.clocks.require()
    clock.restart(HOUR_S)
    another_process(store).clocks.require()


def test_a_holder_at_rest_commits_its_time_once_an_hour(store: TestStore, clock: ManualClock) -> None:
    work = store.cold_work()
    work.clocks.require()
    before = store.metadata.last_transaction_id()
    for _ in range(12 * 10):
        clock.advance(5 * 60)
        work.clocks.require()
    assert store.metadata.last_transaction_id() - before == 10


def test_gc_by_command_deletes_nothing_by_a_wrong_clock(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("not trusted")
    clock.jump(AHEAD_S)
    store.kill()
    store.start()
    with pytest.raises(ClockDisagrees):
        store.cold_work().collect_all(grace_s=HOUR_S)
    assert left(store) == YOUNG


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_removed_under_a_clock_that_was_set_back_is_kept_as_long_as_promised(
    store: TestStore, clock: ManualClock, restarts: bool
) -> None:
    right_ms = clock.now_ms()
    clock.jump(-AHEAD_S)
    if restarts:
        clock.restart(0)
    store.append("late", b"abcd")
    store.engine.delete("late", recursive=False, cold_due_ms=clock.now_ms(), to_trash=True)
    with store.metadata.read() as txn:
        (late,) = [each for each in trash.removed(txn) if each.removal.path == "late"]
        assert late.removal.due_ms == right_ms + DAY_S * 1000
        removed = txn.must_get(SEGMENTS, tables.u64(late.id), "it")
    assert removed.modified_ms == right_ms


@pytest.mark.parametrize("rested_s", [LONGEST_REST_S, LONGEST_REST_S + 301])
def test_a_recovery_compares_the_clock_with_what_the_owner_wrote_last(
    store: TestStore, clock: ManualClock, tmp_path: Path, expected_warnings: list[str], rested_s: int
) -> None:
    expected_warnings.append("not trusted")
    clock.advance(HOUR_S)  # the owner began before
    store.append("late", b"abcd", seal=True)
    store.cold_work().publish()
    clock.restart(rested_s)
    rebuilt = recover.owned(tmp_path / "metadata", store.cold, IN_MEMORY, clock, quiet)
    try:
        trusted = ClockCheck(rebuilt.metadata, clock, lambda: None).trusts()
    finally:
        rebuilt.metadata.close()
    assert trusted is (rested_s == LONGEST_REST_S)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("recoveries", [1, 2])
@pytest.mark.parametrize("ahead_s", [0, AHEAD_S])
def test_a_recovery_does_not_trust_the_clock_by_what_was_written_under_it(
    store: TestStore,
    clock: ManualClock,
    tmp_path: Path,
    expected_warnings: list[str],
    ahead_s: int,
    recoveries: int,
    checkpoint: bool,
) -> None:
    """The owner goes on publishing under a wrong clock, and so does whoever takes the bucket over on that machine."""
    expected_warnings.append("not trusted")
    clock.jump(ahead_s)
    store.append("late", b"abcd", seal=True)
    store.offload("late")
    if checkpoint:
        store.cold_work().checkpointer.checkpoint()
    for number in range(recoveries):
        rebuilt = recover.owned(tmp_path / str(number), store.cold, IN_MEMORY, clock, quiet)
        trusted = ClockCheck(rebuilt.metadata, clock, lambda: None).trusts()
        rebuilt.metadata.close()
    assert trusted is (ahead_s == 0)


class Asked:
    """A server that answers when it is let."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.asked = clock, 0
        self.reached, self.answers = threading.Event(), threading.Event()

    def __call__(self) -> int:
        self.asked += 1
        self.reached.set()
        assert self.answers.wait(60)
        return self.clock.now_ms() - AHEAD_S * 1000


def test_a_thread_that_comes_while_another_asks_judges_by_the_same_answer(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("not trusted")
    server = Asked(clock)
    check = ClockCheck(store.metadata, clock, server)
    said: list[bool] = []
    assert not check.asked
    threads = [threading.Thread(target=lambda: said.append(check.trusts())) for _ in range(3)]
    threads[0].start()
    assert server.reached.wait(60)
    for thread in threads[1:]:
        thread.start()
    threads[1].join(0.2)
    assert said == []
    server.answers.set()
    for thread in threads:
        thread.join()
    assert (said, check.asked, server.asked) == ([False] * 3, True, 1)


def test_a_server_that_fails_is_asked_once(store: TestStore, clock: ManualClock) -> None:
    asked: list[int] = []

    def fails() -> int:
        asked.append(1)
        raise Unavailable("it is away")

    check = ClockCheck(store.metadata, clock, fails)
    assert check.trusts()
    assert check.trusts()
    assert (asked, check.asked) == ([1], True)
