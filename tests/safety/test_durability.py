"""What is durable before it is acknowledged, and what is refused rather than acknowledged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.local_files import ChunkFiles, DiskBytes
from tierfs.errors import DataLoss, StorageFull
from tierfs.garbage import ballast
from tierfs.journal import publish
from tierfs.journal.cold_identity import read_small
from tierfs.metadata import changes
from tierfs.metadata.environment import open_environment


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def test_the_name_of_a_new_chunk_file_is_durable_before_its_bytes_are_acknowledged(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    original = ChunkFiles.sync_directory

    def sync(files: ChunkFiles, name: str) -> None:
        original(files, name)
        synced.append(name)

    monkeypatch.setattr(ChunkFiles, "sync_directory", sync)
    writer = store.engine.open_writer("s")
    for part in (b"abcd", b"efgh"):  # a chunk each
        writer.append(part)
        names = {placed.object.name for placed in store.layout("s").local}
        assert names == set(synced)
    store.engine.close_writer(writer)


def test_commits_are_synced(store: TestStore) -> None:
    flags = open_environment(store.metadata.path).lmdb.flags()
    assert (flags["sync"], flags["metasync"]) == (True, True)


@pytest.mark.parametrize("short", [0, 1, 2])
def test_a_chunk_file_that_lost_its_end_is_not_written_on(store: TestStore, short: int) -> None:
    store.append("s", b"ab")
    (placed,) = store.layout("s").local
    path = store.path / "chunks" / placed.object.name
    os.truncate(path, 2 - short)
    if not short:
        store.append("s", b"cd")
        assert store.read("s") == b"abcd"
        return
    with pytest.raises(DataLoss):
        store.append("s", b"cd")
    assert path.stat().st_size == 2 - short


@pytest.mark.parametrize("room", [-1, 0, 1])
def test_an_append_counts_against_the_floor(store: TestStore, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    data = bytes(100)
    free = store.engine.free_space_floor_bytes + len(data) + room
    monkeypatch.setattr(ChunkFiles, "disk_bytes", lambda _: DiskBytes(size=2 * free, used=free, free=free))
    if room >= 0:
        store.append("s", data)
    else:
        with pytest.raises(StorageFull):
            store.append("s", data)


def test_entries_end_at_their_size(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_ENTRY_BYTES", 400)
    for number in range(40):
        store.append(f"d/segment{number}", b"abcd", seal=True)
    with store.holding() as work:
        assert work.publish() > 10
    for stored in store.cold.list("journal/"):
        entry = changes.parse_entry(read_small(store.cold, stored.name), stored.name)
        for change in entry.changes:
            change.ClearField("sequence")  # as in the queue, whose rows are measured
        assert sum(change.ByteSize() for change in entry.changes) <= 400


@pytest.mark.parametrize("is_full", [True, False])
def test_work_that_frees_space_gets_the_room_set_aside_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str], is_full: bool
) -> None:
    expected_warnings += ["the disk is full"] if is_full else []
    path = tmp_path / "ballast"
    path.write_bytes(bytes(100))
    status = os.statvfs(tmp_path)
    free = 0 if is_full else status.f_blocks
    fields = [status.f_bsize, status.f_frsize, 10_000, free, free, *status[5:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    monkeypatch.setattr(ballast, "create", lambda _: None)

    def work() -> str:
        if path.stat().st_size:
            raise StorageFull("no room")
        return "done"

    if is_full:
        assert ballast.with_room(path, work) == "done"
    else:  # another disk is full: this room would not help
        with pytest.raises(StorageFull):
            ballast.with_room(path, work)
        assert path.stat().st_size == 100
