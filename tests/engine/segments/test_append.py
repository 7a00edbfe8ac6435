"""Appending: splitting, acknowledgement, conditions, resuming, and the state after failures."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.engine.segments.test_failures import failing
from tests.stores import TestStore, assert_layout, create_ledger, open_test_store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import (
    Closed,
    DataLoss,
    Fenced,
    InvalidRequest,
    IsDirectory,
    NotDirectory,
    NotFound,
    OffsetMismatch,
    Sealed,
    StorageFull,
    TierfsError,
    Unavailable,
)
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, SegmentStatus
from tierfs.engine.metadata import checksums, directories, tables
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments import stat
from tierfs.engine.segments.append import PendingAppend
from tierfs.engine.segments.bulk_create import BulkCreator, WholeSegment
from tierfs.engine.segments.group_commit import AppendCall
from tierfs.engine.segments.writer import SegmentWriter


@pytest.mark.parametrize(
    ("parts", "local"),
    [
        ([0], []),
        ([1], [1]),
        ([3], [3]),
        ([4], [4]),
        ([5], [4, 1]),
        ([8], [4, 4]),
        ([10], [4, 4, 2]),
        ([3, 1], [4]),
        ([3, 5, 1], [4, 4, 1]),
        ([4, 0, 4, 1], [4, 4, 1]),
    ],
)
@pytest.mark.parametrize("by", ["one writer", "a writer each", "a process each"])
def test_data_splits_at_the_chunk_limit_and_fills_the_active_chunk_first(
    store: TestStore, parts: list[int], local: list[int], by: str
) -> None:
    data, at = b"abcdefghij", 0
    writer = store.engine.open_writer("logs/s")
    for length in parts:
        assert writer.append(data[at : at + length], expected_offset=at) == ByteRange(at, at + length)
        at += length
        if by != "one writer":
            store.engine.close_writer(writer)
            if by == "a process each":
                store.reopen()
            writer = store.engine.open_writer("logs/s")
    assert_layout(store, "logs/s", local=local, cold=[])
    assert store.read("logs/s") == data[:at]


def test_a_wrong_offset_names_the_true_length_and_creates_nothing(store: TestStore) -> None:
    store.append("s", b"abc")
    with pytest.raises(OffsetMismatch, match="its length is 3") as caught:
        store.engine.open_writer("s", expected_offset=2)
    assert caught.value.actual_length == 3
    with pytest.raises(OffsetMismatch):
        store.engine.open_writer("new/one", expected_offset=1)
    with store.metadata.read() as txn:
        assert directories.find(txn, "new") is None


BAD_NAMES = ("a/../b", "..", ".", "a\0b", "a\nb", "x" * 256, "/".join(["x" * 200] * 5), "")

CLOSED_NAMES = {
    "a/s/below": NotDirectory,
    "a": IsDirectory,
    "sealed": Sealed,
    **dict.fromkeys(BAD_NAMES, InvalidRequest),
}


def test_what_cannot_be_written_is_refused_and_creates_nothing(store: TestStore) -> None:
    store.append("a/s", b"x")
    store.append("sealed", b"abc", seal=True)
    for name, error in CLOSED_NAMES.items():
        with pytest.raises(error):
            store.engine.open_writer(name)
    with store.metadata.read() as txn:
        assert [found.name for found in stat.listing(txn, "")] == ["a", "sealed"]
    assert store.engine.seal("sealed").sealed


def test_a_writer_learns_that_its_segment_was_sealed_or_deleted(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"abc")
    store.engine.seal("s")
    with pytest.raises(Sealed):
        writer.append(b"d")
    other = store.engine.open_writer("t")
    other.append(b"abc")
    store.engine.delete("t", recursive=False, cold_due_ms=0)
    with pytest.raises(NotFound):
        other.append(b"d")


def test_a_dead_writers_chunk_ends_at_the_committed_length(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    active = store.files.root / store.layout("s").local[0].object.name
    with active.open("ab") as file:
        file.write(b"garbage")
    store.reopen()
    store.append("s", b"cd")
    assert_layout(store, "s", local=[2, 2], cold=[])
    assert store.read("s") == b"abcd"
    assert active.stat().st_mode & 0o777 == 0o440


def test_an_older_writer_is_fenced(store: TestStore) -> None:
    old = store.engine.open_writer("s")
    old.append(b"a")
    new = store.engine.open_writer("s", take_over=True)
    new.append(b"b")
    with pytest.raises(Closed):
        old.append(b"c")
    old._closed = False  # a writer of another process does not know
    with pytest.raises(Fenced):
        old.append(b"c")
    assert store.read("s") == b"ab"


def test_a_rolled_chunk_makes_a_live_writer_start_another(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    store.engine.roll(writer.segment_id)
    assert writer.append(b"c") == ByteRange(2, 3)
    assert_layout(store, "s", local=[2, 1], cold=[])
    assert store.read("s") == b"abc"


@pytest.mark.parametrize("by", ["one writer", "a process each"])
def test_checksums_and_whole_crc_follow_the_bytes(tmp_path: Path, by: str) -> None:
    """Also where a chunk goes on inside a block of checksums."""
    chunk_bytes = 3 * CRC_BLOCK_BYTES + 17
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": str(chunk_bytes)}) as store:
        data = os.urandom(5 * CRC_BLOCK_BYTES + 1234)
        cuts = [0, 1, 999, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES + 1, 4 * CRC_BLOCK_BYTES, len(data)]
        parts = [data[a:b] for a, b in pairwise(cuts)]
        if by == "one writer":
            store.append("s", *parts)
        else:
            for part in parts:
                store.append("s", part)
                store.reopen()
        with store.metadata.read() as txn:
            assert stat.stat(txn, "s").crc32c == crc32c(data)
            assert len(store.layout("s").local) == 2
            for placed in store.layout("s").local:
                part = data[placed.chunk.start_offset : placed.chunk.end_offset]
                found = [run.crc(i) for run in checksums.runs(txn, placed.object.id) for i in range(run.count)]
                assert found == [crc32c(part[at : at + CRC_BLOCK_BYTES]) for at in range(0, len(part), CRC_BLOCK_BYTES)]


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, DataLoss)])
@pytest.mark.parametrize("by", ["the same writer", "another process"])
def test_a_failed_sync_spoils_the_file_and_loses_nothing(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, number: int, error: type[TierfsError], by: str
) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(number))
        with pytest.raises(error):
            writer.append(b"c")
    assert store.segment("s").length == 2
    if by == "another process":
        store.engine.close_writer(writer)
        assert not store.segment("s").resumable
        store.reopen()
        writer = store.engine.open_writer("s")
    assert writer.append(b"d") == ByteRange(2, 3)
    assert_layout(store, "s", local=[2, 1], cold=[])
    assert store.read("s") == b"abd"


def test_a_full_disk_refuses_before_anything_is_written(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.engine.open_writer("s")
    monkeypatch.setattr(store.files.__class__, "free_bytes", lambda self: 1 << 20)
    with pytest.raises(StorageFull, match="1 MiB free"):
        writer.append(b"x")
    with pytest.raises(StorageFull):
        store.engine.open_writer("new")
    monkeypatch.undo()
    assert list(store.files.names()) == []
    writer.append(b"x")
    assert store.read("s") == b"x"


def test_an_append_that_only_grows_its_chunk_writes_the_rows_of_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bool] = []

    def gathered(writer: SegmentWriter, calls: Sequence[AppendCall]) -> object:
        pending, later = gather(writer, calls)
        assert isinstance(pending, PendingAppend)
        rows = [rows_after(store.metadata, change) for change in (pending._change, pending.apply)]
        assert rows[0] == rows[1]
        compared.append(pending._grows_only())
        return pending, later

    gather = SegmentWriter.gather
    monkeypatch.setattr(SegmentWriter, "gather", gathered)
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": str(2 * CRC_BLOCK_BYTES)}) as store:
        create_ledger(store.metadata, "l")
        ledger, writer = store.engine.open_ledger("l"), store.engine.open_writer("s")
        for size in (100, 1, 0, 1000, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES, 5, 5):
            store.clock.advance(1)
            writer.append(os.urandom(size))
            ledger.append_entries([b"ab", b"c"])
        with store.metadata.write() as txn:  # as an older tierfs wrote it
            txn.put(SEGMENTS, tables.u64(writer.segment_id), replace(store.segment("s"), first_byte_ms=0))
        writer.append(b"last", last=True)
    assert compared.count(True) > 10
    assert compared.count(False) > 3


def rows_after(metadata: MetadataStore, change: Callable[[WriteTransaction], None]) -> dict[bytes, list[object]]:
    """All rows as the change leaves them; it is undone."""

    class Undone(Exception):
        pass

    found: dict[bytes, list[object]] = {}
    with suppress(Undone), metadata.write() as txn:
        change(txn)
        txn.finish()
        found.update((name, list(txn.scan_raw(name))) for name in txn.database_names)
        raise Undone
    return found


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
    monkeypatch.setattr(store.files, "sync_directory", store.files.delete)  # instead of syncing
    with pytest.raises(Unavailable, match="was removed before its bytes"):
        bulk.create(whole(a=b"a", b=b"b"), seal=False)
    with pytest.raises(NotFound):
        store.segment("d/b")


def test_a_failed_sync_leaves_neither_segments_nor_files(
    store: TestStore, bulk: BulkCreator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    with pytest.raises(DataLoss):
        bulk.create(whole(a=b"a", b=b"b"), seal=False)
    assert list(store.files.names()) == []
    with pytest.raises(NotFound):
        store.segment("d/a")


def test_the_file_of_a_segment_that_an_append_sealed_is_closed(store: TestStore) -> None:
    """Else it would keep its bytes on the disk after an eviction, and a descriptor of the process."""

    def held() -> list[str]:
        found = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [name for name in found if name.startswith(f"{store.files.root}/")]

    writer = store.engine.open_writer("s")
    writer.append(b"abcdef")
    assert len(held()) == 1
    writer.append(b"g", seal=True)
    assert held() == []
    store.engine.close_writer(writer)
