"""Keys of appends: found with their append, in its stream, within bounds, and gone with its segment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import append_keys, directories, policies
from tierfs.engine.metadata.append_keys import AppendKey
from tierfs.engine.metadata.tables import APPEND_KEYS
from tierfs.engine.segments import trash
from tierfs.engine.segments.writer import PlannedAppend, append_all

A_DAY_S = 24 * 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=clock) as opened:
        yield opened


def append(store: TestStore, name: str, *texts: str) -> None:
    """Append each of the texts under a key that is the text."""
    writer = store.engine.open_writer(name)
    for text in texts:
        key = AppendKey(text, 1, len(text), False)
        assert append_all([PlannedAppend(writer, text.encode(), key=key)]) == [
            ByteRange(writer.length - len(text), writer.length)
        ]
    store.engine.close_writer(writer)


def range_of(store: TestStore, name: str, text: str) -> ByteRange | None:
    """The range of the append that was made under a key."""
    with store.metadata.read() as txn:
        made = append_keys.find(txn, name, text)
    return None if made is None else made.range


def rows(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return txn.count(APPEND_KEYS.name)


def test_a_key_is_of_one_name(store: TestStore) -> None:
    append(store, "d/a", "one", "two")
    append(store, "d/b", "one")
    assert range_of(store, "d/a", "one") == range_of(store, "d/b", "one") == ByteRange(0, 3)
    assert range_of(store, "d/a", "two") == ByteRange(3, 6)
    assert [range_of(store, name, "two") for name in ("d/b", "a", "d", "d/a/b", "none/a")] == [None] * 5
    store.reopen()
    assert range_of(store, "d/a", "two") == ByteRange(3, 6)


def test_a_key_is_found_in_a_stream_that_went_on(store: TestStore) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"seal_bytes": "4"})
    append(store, "s", "aaaa", "bbbb", "cccc")
    with store.metadata.read() as txn:
        assert directories.exists(txn, "s.8")
    for member in ("s", "s.4", "s.8"):
        assert [range_of(store, member, text) for text in ("aaaa", "bbbb", "cccc")] == [
            ByteRange(0, 4),
            ByteRange(4, 8),
            ByteRange(8, 12),
        ]


@pytest.mark.parametrize("to_trash", [False, True])
def test_a_key_goes_with_its_segment(store: TestStore, to_trash: bool) -> None:
    append(store, "s", "one")
    store.engine.delete("s", recursive=False, cold_due_ms=0, to_trash=to_trash)
    assert range_of(store, "s", "one") is None
    append(store, "s", "new", "one")
    assert range_of(store, "s", "one") == ByteRange(3, 6)
    assert rows(store) == 2 * 2, "the row of the removed segment was replaced, also in the order of time"


def test_a_key_stays_with_the_name(store: TestStore) -> None:
    """A removed segment that comes back knows its keys; under another name it is another segment."""
    append(store, "s", "one")
    for to, known in (("", ByteRange(0, 3)), ("t", None)):
        store.engine.delete("s", recursive=False, cold_due_ms=0, to_trash=True)
        trash.restore(store.metadata, "s", to=to)
        assert range_of(store, "s", "one") == known
    assert range_of(store, "t", "one") is None


def test_old_keys_go(store: TestStore, clock: ManualClock) -> None:
    append(store, "s", "a", "b")
    clock.advance(A_DAY_S - 1)
    append(store, "s", "c")
    assert range_of(store, "s", "a") == ByteRange(0, 1)
    clock.advance(1)
    append(store, "other", "d")
    assert [range_of(store, "s", text) for text in "abc"] == [None, None, ByteRange(2, 3)]
    assert rows(store) == 2 * 2


def test_keys_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch, store: TestStore, clock: ManualClock) -> None:
    for text in "abcdefghi":
        append(store, "s", text)
        clock.advance(1)
    monkeypatch.setattr(append_keys, "MOST_KEYS", 3)
    for number in range(20):
        append(store, f"t{number % 2}", f"{number}")
        clock.advance(1)
    assert rows(store) == 2 * 3
    assert [number for number in range(20) if range_of(store, f"t{number % 2}", f"{number}")] == [17, 18, 19]


def test_a_refused_append_leaves_no_key(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    refused, made = append_all(
        [
            PlannedAppend(writer, b"one", 7, key=AppendKey("one", 1, 3, False)),
            PlannedAppend(writer, b"two", 0, key=AppendKey("two", 1, 3, False)),
        ]
    )
    assert (type(refused).__name__, made) == ("OffsetMismatch", ByteRange(0, 3))
    assert (range_of(store, "s", "one"), range_of(store, "s", "two")) == (None, ByteRange(0, 3))


def test_a_store_that_lacks_the_table_gets_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tierfs.engine.metadata.environment.LATER_NAMES", ())
    cold, clock = MemoryStorage(ManualClock()), ManualClock()
    with open_test_store(tmp_path / "store", cold=cold, clock=clock) as store:
        store.append("s", b"older")
        with store.metadata.read() as txn:
            assert APPEND_KEYS.name not in txn.database_names
    monkeypatch.undo()
    with closing(TestStore.opened(tmp_path / "store", cold, clock, OffloadSettings())) as store:
        append(store, "s", "one")
        assert range_of(store, "s", "one") == ByteRange(5, 8)
