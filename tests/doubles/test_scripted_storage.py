"""The double itself: a test that relies on a fault that never comes proves nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.doubles.scripted_storage import ALWAYS, Read, ScriptedStorage, When
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.errors import Unavailable
from tierfs.types import MIB

DOWN = Unavailable("down")


@pytest.fixture
def storage() -> ScriptedStorage:
    scripted = ScriptedStorage()
    for name in ("a", "b"):
        scripted.put(name, BufferSource(b"bytes"))
    return scripted


def read(storage: ChunkStorage, name: str = "a", length_bytes: int = 5) -> bytes:
    buffer = bytearray(length_bytes)
    storage.read_into(name, 0, memoryview(buffer))
    return bytes(buffer)


def test_calls_are_counted_from_the_step_on_and_by_name(storage: ScriptedStorage) -> None:
    storage.stat("a")
    storage.fail("stat", DOWN, on=2, of="b")
    storage.stat("b")
    storage.stat("a")
    with pytest.raises(Unavailable):
        storage.stat("b")
    storage.stat("b")
    assert storage.calls["stat"] == 5


@pytest.mark.parametrize(("when", "left"), [(When.BEFORE, ["a", "b"]), (When.AFTER, ["b"])])
def test_a_call_that_fails_has_had_its_effect_or_not(storage: ScriptedStorage, when: When, left: list[str]) -> None:
    storage.fail("delete", DOWN, when=when, on=ALWAYS)
    with pytest.raises(Unavailable):
        storage.delete("a")
    assert [found.name for found in storage.list("")] == left
    storage.behave()
    storage.delete("b")


def test_a_read_breaks_off_halfway(storage: ScriptedStorage) -> None:
    storage.put("long", BufferSource(b"x" * (2 * MIB)))
    storage.fail("read", DOWN, when=When.HALFWAY)
    buffer = bytearray(2 * MIB)
    with pytest.raises(Unavailable):
        storage.read_into("long", 0, memoryview(buffer))
    assert buffer == b"x" * MIB + bytes(MIB)


def test_one_read_is_damaged(storage: ScriptedStorage) -> None:
    storage.damage(-1, on=2)
    assert [read(storage) for _ in range(3)] == [b"bytes", b"byter", b"bytes"]
    assert storage.reads == [Read("a", 0, 5)] * 3


def test_calls_wait_for_their_leave(storage: ScriptedStorage) -> None:
    first, second = storage.hold_next(2, "read")
    with ThreadPoolExecutor(1) as pool:
        results = [pool.submit(read, storage, name) for name in ("a", "b")]
        first.wait_begun()
        assert not second.begun.is_set()
        first.go_on()
        second.wait_begun()
        second.go_on(DOWN)
        assert results[0].result() == b"bytes"
        assert results[1].exception() is DOWN
