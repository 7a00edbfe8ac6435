"""Many small segments in one commit: all of a batch, except those that only an append can create."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.stores import TestStore, assert_layout
from tierfs.errors import DataLoss, NotFound, StorageFull, Unavailable
from tierfs.segments.create import BulkCreator, WholeSegment
from tierfs.types import SegmentStatus


@pytest.fixture
def bulk(store: TestStore) -> Iterator[BulkCreator]:
    with closing(store.engine.bulk_creator()) as creator:
        yield creator


def whole(**segments: bytes) -> list[WholeSegment]:
    """Segments of the directory `d`."""
    return [WholeSegment(f"d/{name}", data) for name, data in segments.items()]


@pytest.mark.parametrize("seal", [True, False])
def test_a_batch_is_one_commit_and_every_byte_is_there(store: TestStore, bulk: BulkCreator, seal: bool) -> None:
    before = store.metadata.last_transaction_id()
    assert bulk.create(whole(a=b"abcd", b=b"", c=b"cd"), seal=seal) == [True, True, True]
    assert store.metadata.last_transaction_id() == before + 2, "one for the ids, one for the segments"
    assert [store.read(f"d/{name}") for name in "abc"] == [b"abcd", b"", b"cd"]
    assert store.segment("d/a").status is (SegmentStatus.SEALED if seal else SegmentStatus.OPEN)
    assert_layout(store, "d/a", local=[4], cold=[])
    assert_layout(store, "d/b", local=[], cold=[])
    names = list(store.files.names())
    assert len(names) == 2
    assert len({os.path.dirname(name) for name in names}) == 1
    assert {store.files.length_and_mode(name)[1] & 0o777 for name in names} == {0o440}
    if not seal:  # an append continues in a chunk of its own
        store.append("d/c", b"efgh")
        assert_layout(store, "d/c", local=[2, 4], cold=[])
        store.append("d/a", b"", seal=True)
    store.offload()
    store.evict(force=True)
    assert [store.read(f"d/{name}") for name in "abc"] == [b"abcd", b"", b"cd" if seal else b"cdefgh"]


def test_segments_are_born_in_the_order_of_commits_although_a_batch_reserves_ids(
    store: TestStore, bulk: BulkCreator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append_meanwhile(name: str) -> None:
        monkeypatch.undo()
        store.append("d/meanwhile", b"x")
        store.files.sync_directory(name)

    monkeypatch.setattr(store.files, "sync_directory", append_meanwhile)
    bulk.create(whole(a=b"a", b=b"b"), seal=True)
    store.append("d/later", b"y")
    made = {name: store.segment(f"d/{name}") for name in ("meanwhile", "a", "b", "later")}
    assert made["a"].id < made["b"].id < made["meanwhile"].id
    assert sorted(made, key=lambda name: made[name].birth) == ["meanwhile", "a", "b", "later"]


def test_a_name_that_is_taken_or_impossible_or_too_long_is_left_out(store: TestStore, bulk: BulkCreator) -> None:
    store.append("d/a", b"old")
    batch = [*whole(a=b"new", b=b"b", c=b"longer than a chunk"), WholeSegment("d/a/below", b"x")]
    assert bulk.create(batch, seal=False) == [False, True, False, False]
    assert store.read("d/a") == b"old"
    assert len(list(store.files.names())) == 2, "files of what was left out are gone"
    with pytest.raises(NotFound):
        store.segment("d/c")


def test_a_file_removed_before_the_commit_is_never_acknowledged(
    store: TestStore, bulk: BulkCreator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_instead_of_syncing(name: str) -> None:
        store.files.delete(name)

    monkeypatch.setattr(store.files, "sync_directory", remove_instead_of_syncing)
    with pytest.raises(Unavailable, match="was removed before its bytes"):
        bulk.create(whole(a=b"a", b=b"b"), seal=False)
    with pytest.raises(NotFound):
        store.segment("d/b")


def test_a_failed_sync_leaves_neither_segments_nor_files(
    store: TestStore, bulk: BulkCreator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(DataLoss):
        bulk.create(whole(a=b"a", b=b"b"), seal=False)
    assert list(store.files.names()) == []
    with pytest.raises(NotFound):
        store.segment("d/a")


def test_a_full_disk_refuses_before_anything_is_written(store: TestStore) -> None:
    with closing(BulkCreator(store.metadata, store.files, 1 << 62)) as bulk, pytest.raises(StorageFull):
        bulk.create(whole(a=b"a"), seal=False)
    assert list(store.files.names()) == []
