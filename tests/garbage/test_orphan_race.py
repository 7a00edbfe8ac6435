"""`gc --delete` beside an append: the file of a chunk before its first commit has no record yet, and must last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.clock import ManualClock
from tierfs.garbage.orphans import Orphan
from tierfs.metadata import tables
from tierfs.metadata.records import GarbageRecord
from tierfs.metadata.tables import GARBAGE
from tierfs.segments.active_chunk import ActiveChunk, ChunkDescriptors
from tierfs.types import ByteRange, Tier

CLOCK_AHEAD_MS = 10**14
"""A clock so far ahead of the disk's that every file looks old."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=ManualClock(CLOCK_AHEAD_MS)) as opened:
        yield opened


def between_write_and_commit(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], *, before_sync: bool) -> None:
    """Do something once while an append's bytes are in their file and its commit has not begun."""
    sync = ChunkDescriptors.sync
    todo = [work]

    def wrapped(self: ChunkDescriptors, chunk: ActiveChunk) -> None:
        if before_sync and todo:
            todo.pop()()
        sync(self, chunk)
        if todo:
            todo.pop()()

    monkeypatch.setattr(ChunkDescriptors, "sync", wrapped)


def delete_listed(store: TestStore, listed: list[Orphan]) -> None:
    """Delete the listed orphans as `gc --delete` does."""
    store.cold_work()._orphan_finder().discard(listed)
    store.cold_work().collect()


@pytest.mark.parametrize("before_sync", [True, False])
def test_a_file_deleted_before_its_first_commit_is_not_acknowledged(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, before_sync: bool
) -> None:
    writer = store.engine.open_writer("s")
    between_write_and_commit(monkeypatch, lambda: store.cold_work().collect_all(grace_s=0), before_sync=before_sync)
    assert writer.append(b"abc") == ByteRange(0, 3)
    assert store.read("s") == b"abc"
    assert writer.append(b"defg") == ByteRange(3, 7)
    assert store.read("s") == b"abcdefg"


def test_a_deleted_file_of_a_growing_chunk_takes_no_more_bytes(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"a")
    grown = store.layout("s").local[0].object.name
    between_write_and_commit(monkeypatch, (store.files.root / grown).unlink, before_sync=False)
    assert writer.append(b"bc") == ByteRange(1, 3)
    assert [placed.chunk.range for placed in store.layout("s").local] == [ByteRange(0, 1), ByteRange(1, 3)]


def test_a_file_that_was_committed_after_the_listing_stays(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.engine.open_writer("s")
    listed: list[Orphan] = []
    between_write_and_commit(
        monkeypatch, lambda: listed.extend(store.cold_work().orphans(grace_s=0)), before_sync=False
    )
    writer.append(b"abc")
    store.engine.close_writer(writer)
    store.engine.seal("s")
    assert [one.tier for one in listed] == [Tier.LOCAL]
    store.append("t", b"x")
    store.engine.concat("t", "s")  # its chunk is found under another key from now on
    delete_listed(store, listed)
    assert store.read("t") == b"xabc"


def test_a_row_that_an_older_tierfs_left_does_not_delete_a_file_that_was_committed_since(store: TestStore) -> None:
    store.append("s", b"abc")
    name = store.layout("s").local[0].object.name
    with store.metadata.write() as txn:
        row = GarbageRecord(sequence=1, due_ms=txn.now_ms, tier=Tier.LOCAL, name=name, length=3)
        txn.put(GARBAGE, tables.pair(row.due_ms, row.sequence), row)
    done = store.cold_work().collect()
    assert (done.deleted, done.failed) == (0, 0)
    assert store.read("s") == b"abc"
    with store.metadata.read() as txn:
        assert txn.count(GARBAGE.name) == 0


def test_a_row_that_an_older_tierfs_left_deletes_what_is_still_an_orphan(store: TestStore) -> None:
    os.close(store.files.create_file("01/1-63-ffffffffffffffff"))
    with store.metadata.write() as txn:
        row = GarbageRecord(sequence=1, due_ms=txn.now_ms, tier=Tier.LOCAL, name="01/1-63-ffffffffffffffff")
        txn.put(GARBAGE, tables.pair(row.due_ms, row.sequence), row)
    assert store.cold_work().collect().deleted == 1
    assert list(store.files.names()) == []
