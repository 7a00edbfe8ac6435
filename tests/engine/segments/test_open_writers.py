"""Writers of many segments, opened in one commit, or none of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import OffsetMismatch
from tierfs.engine.metadata import directories
from tierfs.engine.segments.writer import PlannedAppend, append_all


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def test_many_writers_are_opened_in_one_commit(store: TestStore) -> None:
    store.append("b", b"old,")
    before = store.metadata.last_transaction_id()
    writers = store.engine.open_writers({"d/a": 0, "b": 4})
    assert store.metadata.last_transaction_id() == before + 1
    for name, writer in writers.items():
        writer.append(name.encode())
    assert (store.read("d/a"), store.read("b")) == (b"d/a", b"old,b")


def test_a_writer_that_cannot_be_opened_opens_no_others(store: TestStore) -> None:
    store.append("b", b"old,")
    with pytest.raises(OffsetMismatch):
        store.engine.open_writers({"new": 0, "b": 3, "c": 0})
    with store.metadata.read() as txn:
        assert [directories.exists(txn, name) for name in ("new", "b", "c")] == [False, True, False]
    for name, length in (("new", 0), ("b", 4)):
        store.engine.open_writer(name, expected_offset=length).append(b"x")
    assert (store.read("new"), store.read("b")) == (b"x", b"old,x")


def test_a_last_append_leaves_nothing_to_commit_for_the_close(store: TestStore) -> None:
    writers = store.engine.open_writers({"a": 0, "b": 0})
    append_all([PlannedAppend(writer, b"1") for writer in writers.values()])
    append_all([PlannedAppend(writer, b"", last=True) for writer in writers.values()])
    before = store.metadata.last_transaction_id()
    for writer in writers.values():
        store.engine.close_writer(writer)
    assert store.metadata.last_transaction_id() == before
    store.append("a", b"2")
    assert store.read("a") == b"12"
    assert len(store.layout("a").local) == 1, "the next writer continues the chunk"


def test_a_command_line_that_is_not_utf_8_is_recorded(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `tierfs append s FILE`, where the name of the file is any bytes."""
    monkeypatch.setattr(sys, "argv", ["tierfs", "append", "s", os.fsdecode(b"\xff\n")])
    writer = store.engine.open_writer("s")
    with store.metadata.read() as txn:
        assert directories.segment_by_name(txn, "s").writer.command == "tierfs append s \\udcff\\n"
    writer.append(b"x")
    assert store.read("s") == b"x"
