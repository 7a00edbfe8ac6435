"""Appending: splitting, acknowledgement, conditions, resuming, and the state after failures."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.checksum import crc32c
from tierfs.errors import (
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
)
from tierfs.metadata import checksums, directories, tables
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.segments import stat
from tierfs.segments.append import PendingAppend
from tierfs.segments.group_commit import GroupCommit
from tierfs.types import CRC_BLOCK_BYTES, ByteRange


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


@pytest.mark.parametrize("name", ["a/../b", "..", ".", "a\0b", "a\nb", "x" * 256, "/".join(["x" * 200] * 5), ""])
def test_bad_names_are_refused_and_create_nothing(store: TestStore, name: str) -> None:
    with pytest.raises(InvalidRequest):
        store.engine.open_writer(name)
    with store.metadata.read() as txn:
        assert list(stat.listing(txn, "")) == []


def test_a_segment_is_no_directory_and_the_other_way_round(store: TestStore) -> None:
    store.append("a/s", b"x")
    with pytest.raises(NotDirectory):
        store.engine.open_writer("a/s/below")
    with pytest.raises(IsDirectory):
        store.engine.open_writer("a")


def test_a_sealed_segment_takes_no_bytes(store: TestStore) -> None:
    store.append("s", b"abc", seal=True)
    with pytest.raises(Sealed):
        store.engine.open_writer("s")
    assert store.engine.seal("s").sealed


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
    new = store.engine.open_writer("s")
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


def test_checksums_and_whole_crc_follow_the_bytes(tmp_path: Path) -> None:
    chunk_bytes = 3 * CRC_BLOCK_BYTES + 17
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": str(chunk_bytes)}) as store:
        data = os.urandom(5 * CRC_BLOCK_BYTES + 1234)
        cuts = [0, 1, 999, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES + 1, 4 * CRC_BLOCK_BYTES, len(data)]
        store.append("s", *(data[a:b] for a, b in pairwise(cuts)))
        with store.metadata.read() as txn:
            assert stat.stat(txn, "s").crc32c == crc32c(data)
            for placed in store.layout("s").local:
                part = data[placed.chunk.start_offset : placed.chunk.end_offset]
                found = [run.crc(i) for run in checksums.runs(txn, placed.object.id) for i in range(run.count)]
                assert found == [crc32c(part[at : at + CRC_BLOCK_BYTES]) for at in range(0, len(part), CRC_BLOCK_BYTES)]


def test_resuming_inside_a_checksum_block_goes_on_with_its_crc(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": str(1 << 20)}) as store:
        data = os.urandom(300_001)
        for at in range(0, len(data), 70_001):
            store.append("s", data[at : at + 70_001])
            store.reopen()
        assert_layout(store, "s", local=[len(data)], cold=[])
        with store.metadata.read() as txn:
            assert stat.stat(txn, "s").crc32c == crc32c(data)


def test_threads_share_a_writer_and_every_append_is_whole(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    ranges: dict[int, ByteRange] = {}

    def work(number: int) -> None:
        for turn in range(20):
            ranges[number * 100 + turn] = writer.append(bytes([number]) * 3)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = store.read("s")
    assert len(data) == 300
    for key, span in ranges.items():
        assert data[span.start : span.end] == bytes([key // 100]) * 3


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, DataLoss)])
@pytest.mark.parametrize("by", ["the same writer", "another process"])
def test_a_failed_sync_spoils_the_file_and_loses_nothing(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, number: int, error: type[TierfsError], by: str
) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")

    def refuse(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
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


def test_idle_descriptors_are_closed_and_reopened(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": "100"}) as store:
        store.engine._tools.descriptors.limit = 4
        writers = [store.engine.open_writer(f"s{number}") for number in range(20)]
        for turn in range(3):
            for writer in writers:
                writer.append(bytes([turn]) * 5)
        open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _exists(fd)]
        assert sum(str(store.files.root) + "/" in name for name in open_files) <= 4
        assert store.read("s7") == b"\0" * 5 + b"\1" * 5 + b"\2" * 5


def _exists(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_an_append_that_only_grows_its_chunk_writes_the_rows_of_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bool] = []

    def commit(self: GroupCommit, group: Sequence[PendingAppend]) -> None:
        for pending in group:
            rows = [_rows_after(self.metadata, change) for change in (pending._change, pending.apply)]
            assert rows[0] == rows[1]
            compared.append(pending._grows_only())
        original(self, group)

    original = GroupCommit._commit
    monkeypatch.setattr(GroupCommit, "_commit", commit)
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": str(2 * CRC_BLOCK_BYTES)}) as store:
        store.engine.create_ledger("l")
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


def _rows_after(metadata: MetadataStore, change: Callable[[WriteTransaction], None]) -> dict[bytes, list[object]]:
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
