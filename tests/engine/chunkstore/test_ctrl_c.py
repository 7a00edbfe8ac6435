"""Deferred signals: what others depend on is done to its end, unless it waits for a server and Ctrl-C insists."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tierfs.base.system import guards
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Ctrl-C raises, also in a process in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press() -> None:
    """Send Ctrl-C to this thread."""
    signal.raise_signal(signal.SIGINT)


def test_the_handler_runs_after_the_block_however_often_it_was_asked_for() -> None:
    done: list[str] = []

    @guards.deferred()
    def block() -> None:
        press()
        assert guards.is_interrupted()
        press()
        done.append("outer")
        with guards.deferred():
            press()
            done.append("inner")
        done.append("outer again")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["outer", "inner", "outer again"]
    assert not guards.is_interrupted()


def test_a_second_signal_ends_a_call_that_may_be_abandoned_and_the_first_does_not() -> None:
    done: list[str] = []

    def pressed_twice() -> None:
        press()
        done.append("once")
        press()
        done.append("twice")

    @guards.deferred()
    def block() -> None:
        try:
            with guards.abandonable:
                pressed_twice()
        finally:
            press()  # outside of the call it has to wait again
            done.append("ended")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["once", "ended"]


def test_a_call_outside_of_a_block_is_interrupted_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), guards.abandonable:
        press()


def test_a_storage_is_not_asked_again_once_ctrl_c_waits() -> None:
    scripted = ScriptedStorage(MemoryStorage())
    scripted.do("stat", press, on=2)
    scripted.fail("stat", Unavailable("it is away"), on=ALWAYS)
    storage = ResilientStorage(scripted, attempts=5)
    with pytest.raises(KeyboardInterrupt), guards.deferred(), pytest.raises(Unavailable):
        storage.stat("name")
    assert scripted.calls["stat"] == 2


def test_a_request_that_hangs_is_ended_by_the_second_ctrl_c() -> None:
    scripted = ScriptedStorage(MemoryStorage())
    scripted.do("stat", press, on=ALWAYS)
    storage = ResilientStorage(scripted, attempts=5)
    with pytest.raises(KeyboardInterrupt), guards.deferred():
        press_and_ask(storage)


def press_and_ask(storage: ResilientStorage) -> None:
    """Press before a request, which ends with the next one."""
    press()
    with pytest.raises(KeyboardInterrupt):
        storage.stat("name")
