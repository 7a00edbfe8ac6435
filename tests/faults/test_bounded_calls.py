"""Calls that a deadline bounds: given up in time, few at once, and without a hold on anything of their caller's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.children import code_of_child
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.mount.waiting import eventually
from tests.stores import Pauses
from tierfs.base.bytes.parallel import Pool
from tierfs.base.system import deadlines
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.engine.chunkstore.bounded import BoundedStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.chunkstore.resilient import ResilientStorage


@pytest.fixture
def answered() -> Iterator[threading.Event]:
    """Set once the calls of a test may end."""
    event = threading.Event()
    yield event
    event.set()


def test_a_call_that_hangs_is_given_up(answered: threading.Event) -> None:
    with Deadline.after(0.05, "a test").in_force(), pytest.raises(Unavailable, match="it: no answer within 50ms"):
        deadlines.bounded(lambda: answered.wait(10), "it")
    assert not answered.is_set()


def test_a_call_returns_and_raises_as_without_a_deadline() -> None:
    def fail() -> None:
        raise DataLoss("gone")

    with Deadline.after(60, "a test").in_force():
        assert deadlines.bounded(lambda: 5, "it") == 5
        with pytest.raises(DataLoss, match="gone"):
            deadlines.bounded(fail, "it")


def test_no_call_begins_after_the_deadline() -> None:
    pauses, begun = Pauses(), threading.Event()
    deadline = Deadline.after(5, "a test", pauses)
    with deadline.in_force():
        deadlines.require_time("it")
        pauses.sleep(5)
        for wait in (lambda: deadlines.require_time("it"), lambda: deadlines.bounded(begun.set, "it")):
            with pytest.raises(Unavailable, match=r"it: no answer within 5s \(a test\)"):
                wait()
    assert not begun.is_set()


def test_calls_that_are_given_up_are_few(answered: threading.Event) -> None:
    """A server that never answers takes no more threads than that, however long a process goes on."""
    begun: list[int] = []

    def hang() -> None:
        begun.append(1)
        answered.wait(60)

    with Deadline.after(0.01, "a test").in_force():
        for _ in range(deadlines.MOST_CALLS + 10):
            with pytest.raises(Unavailable):
                deadlines.bounded(hang, "it")
    for _ in range(10 * deadlines.MOST_CALLS):
        with Deadline.after(0.01, "a test").in_force(), pytest.raises(Unavailable):
            deadlines.bounded(hang, "it")
    assert len(begun) <= deadlines.MOST_CALLS
    answered.set()
    with Deadline.after(60, "a test").in_force():
        assert deadlines.bounded(lambda: "goes on", "it") == "goes on"


def test_the_earlier_deadline_counts_except_for_others() -> None:
    pauses = Pauses()
    short, long = Deadline.after(1, "short", pauses), Deadline.after(9, "long", pauses)
    with long.in_force(), short.in_force(), long.in_force():
        assert deadlines.within(60) == 1
        with long.in_force(for_others=True):
            assert deadlines.within(60) == 9
            assert deadlines.within(2) == 2
    assert deadlines.within(60) == 60


def test_a_lock_is_waited_for_until_the_deadline() -> None:
    lock = threading.Lock()
    with deadlines.taken(lock, "it"):
        with Deadline.after(0.01, "a test").in_force(), pytest.raises(Unavailable), deadlines.taken(lock, "it"):
            pytest.fail("two have it")
        assert lock.locked()
    assert not lock.locked()


def test_calls_of_a_pool_have_the_deadline_of_their_caller() -> None:
    with Pool(2, "test") as pool, Deadline.after(7, "a test", Pauses()).in_force():
        assert pool.run(deadlines.within, [60, 5]) == [7, 5]


def test_a_child_of_fork_has_all_calls(answered: threading.Event) -> None:
    with Deadline.after(0.01, "a test").in_force():
        for _ in range(3 * deadlines.MOST_CALLS):
            with pytest.raises(Unavailable):
                deadlines.bounded(lambda: answered.wait(60), "it")

    def call() -> int:
        with Deadline.after(60, "a test").in_force():
            return deadlines.bounded(lambda: 0, "it")

    assert code_of_child(call) == 0


class Counting(BufferSource):
    """Counts its reads."""

    reads = 0

    def read(self, offset: int, length_bytes: int) -> memoryview:
        self.reads += 1
        return memoryview(b"abc")


def test_an_upload_that_was_given_up_reads_no_more() -> None:
    """Its caller may have closed the file by then."""
    storage, source = ScriptedStorage(), Counting(b"abc")
    held = storage.hold("put")
    with Deadline.after(0.2, "a test").in_force(), pytest.raises(Unavailable):
        BoundedStorage(storage).put("a", source)
    held.go_on()
    assert eventually(lambda: not _bounded_threads())
    assert source.reads == 0
    assert list(storage.inner.list("")) == []


def test_a_read_that_was_given_up_fills_no_buffer() -> None:
    storage, buffer = ScriptedStorage(), bytearray(3)
    storage.inner.put("a", BufferSource(b"abc"))
    held, bounded = storage.hold("read"), BoundedStorage(storage)
    with Deadline.after(0.2, "a test").in_force(), pytest.raises(Unavailable):
        bounded.read_into("a", 0, memoryview(buffer))
    held.go_on()
    assert eventually(lambda: not _bounded_threads())
    assert buffer == bytearray(3)
    seen: list[int] = []
    with Deadline.after(60, "a test").in_force():
        bounded.read_into("a", 0, memoryview(buffer), progress=seen.append)
    assert (buffer, seen) == (b"abc", [3])


def test_a_call_is_not_repeated_once_nobody_waits() -> None:
    storage = ScriptedStorage()
    pauses: list[float] = []
    resilient = ResilientStorage(storage, attempts=5, base_delay_s=1, max_delay_s=1, sleep=pauses.append)
    held = storage.hold("stat")
    with Deadline.after(0.2, "a test").in_force(), pytest.raises(Unavailable):
        BoundedStorage(resilient).stat("a")
    held.go_on(Unavailable("the server is away"))
    assert eventually(lambda: not _bounded_threads())
    assert (storage.calls["stat"], pauses) == (1, [])


def test_the_error_names_the_last_failure() -> None:
    """A server that refuses is not one that is silent."""
    storage, pauses = ScriptedStorage(), Pauses()
    storage.fail("stat", Unavailable("refused by the server"), on=range(1, 100))

    def pause(seconds: float) -> None:
        pauses.sleep(seconds)
        assert not _hanging.wait(60)

    _hanging = threading.Event()
    resilient = ResilientStorage(storage, attempts=50, base_delay_s=1, max_delay_s=1, sleep=pause)
    with Deadline.after(0.2, "a test").in_force(), pytest.raises(Unavailable, match="refused by the server"):
        BoundedStorage(resilient).stat("a")


def test_a_listing_comes_in_pages() -> None:
    storage = ScriptedStorage()
    for number in range(5):
        storage.inner.put(f"a{number}", BufferSource(b"x"))
    with Deadline.after(60, "a test").in_force():
        assert [item.name for item in BoundedStorage(storage).list("a", after="a1")] == ["a2", "a3", "a4"]
    assert [item.name for item in BoundedStorage(storage).list("a")] == [f"a{number}" for number in range(5)]
    storage.hold("list", when=When.BEFORE)
    with Deadline.after(0.2, "a test").in_force(), pytest.raises(Unavailable, match="list a: no answer"):
        list(BoundedStorage(storage).list("a"))


def _bounded_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tierfs-deadline"]
