"""Writers and their files: descriptors in use stay open, limits hold, and what may have happened is not undone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.local_files import ChunkFiles, DiskBytes
from tierfs.errors import Closed, NotFound, StorageFull, Unavailable
from tierfs.metadata import chain, changes, transaction
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.directories import must_find, queue
from tierfs.metadata.records import ChunkRecord, GarbageRecord
from tierfs.metadata.tables import GARBAGE
from tierfs.segments.active_chunk import ActiveChunk, ChunkDescriptors
from tierfs.segments.create import WholeSegment
from tierfs.segments.delete import delete
from tierfs.segments.group_commit import AppendCall
from tierfs.segments.seal import unseal
from tierfs.segments.truncate import truncate
from tierfs.types import ROOT_DIRECTORY, AttemptId, ChunkState, ObjectId, Tier

LIMIT = 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def descriptors(store: TestStore) -> ChunkDescriptors:
    return ChunkDescriptors(store.files, LIMIT)


def begun(descriptors: ChunkDescriptors, number: int) -> ActiveChunk:
    chunk = ActiveChunk(f"00/{number:x}-0-{number:016x}", AttemptId("a"), 0)
    descriptors.create(chunk)
    return chunk


def is_open(chunk: ActiveChunk) -> bool:
    return chunk.fd >= 0 and os.fstat(chunk.fd).st_nlink == 1


def test_a_file_in_use_stays_open_when_its_chunk_is_closed(descriptors: ChunkDescriptors) -> None:
    chunk = begun(descriptors, 1)
    with descriptors.use(chunk):
        descriptors.close(chunk)
        assert is_open(chunk)
    descriptors.close(chunk)
    assert chunk.fd < 0


def test_idle_files_are_closed_down_to_the_limit_and_none_in_use(descriptors: ChunkDescriptors) -> None:
    chunks = [begun(descriptors, number) for number in range(1, LIMIT + 3)]
    with ExitStack() as used:
        for chunk in chunks[1:]:
            used.enter_context(descriptors.use(chunk))
        with descriptors.use(chunks[0]):
            pass
        assert [is_open(chunk) for chunk in chunks] == [False] + [True] * (LIMIT + 1)
    assert sum(is_open(chunk) for chunk in chunks) == LIMIT
    for chunk in chunks:
        descriptors.close(chunk)


@pytest.mark.parametrize("room", [-1, 0])
def test_the_appends_of_a_group_count_against_the_floor_together(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    writer = store.engine.open_writer("s")
    free = store.engine.free_space_floor_bytes + 8 + room
    monkeypatch.setattr(ChunkFiles, "disk_bytes", lambda _: DiskBytes(size=2 * free, used=free, free=free))
    calls = [AppendCall(writer, memoryview(b"abcd")) for _ in range(2)]
    taken, _ = writer._take(calls)
    assert taken == (calls if room >= 0 else calls[:1])
    assert isinstance(calls[1].error, StorageFull) is (room < 0)


@pytest.mark.parametrize("room", [-1, 0])
def test_segments_that_are_created_count_against_the_floor(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    free = store.engine.free_space_floor_bytes + 4 + room
    monkeypatch.setattr(ChunkFiles, "disk_bytes", lambda _: DiskBytes(size=2 * free, used=free, free=free))
    with closing(store.engine.bulk_creator()) as creator:
        if room >= 0:
            assert creator.create([WholeSegment("s", b"abcd")], seal=False) == [True]
        else:
            with pytest.raises(StorageFull):
                creator.create([WholeSegment("s", b"abcd")], seal=False)


@pytest.mark.parametrize("length", [4, 5])
def test_a_created_segment_fits_into_one_chunk(store: TestStore, length: int) -> None:
    with closing(store.engine.bulk_creator()) as creator:
        assert creator.create([WholeSegment("s", bytes(length))], seal=False) == [length == 4]


def garbage(store: TestStore) -> list[GarbageRecord]:
    with store.metadata.read() as txn:
        return [row for _, row in txn.scan(GARBAGE) if row.tier is Tier.COLD]


@pytest.mark.parametrize("verb", ["delete", "truncate"])
def test_cold_objects_go_after_the_lag_and_the_last_change_that_says_so(store: TestStore, verb: str) -> None:
    store.append("s", b"abcdefgh", b"ijkl", seal=True)
    store.offload("s")
    due_ms = store.clock.now_ms() + 5000
    if verb == "delete":
        delete(store.metadata, store.engine._locks, "s", recursive=False, cold_due_ms=due_ms)
    else:
        truncate(store.metadata, "s", 8, cold_due_ms=due_ms)
    (row,) = garbage(store)[:1]
    with store.metadata.read() as txn:
        queued = {sequence: pb.Change.FromString(data).WhichOneof("body") for sequence, data in changes.outbox(txn, 0)}
    last = max(number for number, body in queued.items() if body in ("segment", "segment_removed"))
    assert (row.due_ms, row.after_sequence) == (due_ms, last)


def test_a_writer_from_before_a_seal_is_fenced_although_it_was_undone(store: TestStore) -> None:
    epoch = store.engine.open_writer("s").epoch
    store.engine.seal("s")
    sealed = store.segment("s")
    unseal(store.metadata, "s")
    assert epoch < sealed.writer_epoch < store.segment("s").writer_epoch
    assert sealed.inode != store.segment("s").inode


def test_what_follows_a_removal_below_is_not_appended(store: TestStore) -> None:
    writer = store.engine.open_writer("d/s")
    writer.append(b"a")
    with store.metadata.write() as txn:
        queue(txn, ROOT_DIRECTORY, must_find(txn, "d"))
    with pytest.raises(NotFound, match="deleted"):
        writer.append(b"b")


def test_a_closed_writer_appends_nothing(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    store.engine.close_writer(writer)
    with pytest.raises(Closed, match="is closed"):
        writer.append(b"cd")
    assert store.segment("s").length == 2


def test_files_of_segments_whose_commit_may_have_happened_stay(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = transaction._commit

    def fail(environment: Any, txn: Any) -> None:
        commit(environment, txn)
        raise Unavailable("it is not known")

    with closing(store.engine.bulk_creator()) as creator:
        files = creator._new_files([WholeSegment("s", b"abcd")])
        creator._write(files)
        with monkeypatch.context() as patch:
            patch.setattr(transaction, "_commit", fail)
            with pytest.raises(Unavailable):
                creator._commit(files, seal=False)
        for file in files:
            file.close()
    assert store.read("s") == b"abcd"


@given(left=st.sampled_from(ChunkState), right=st.sampled_from(ChunkState))
def test_a_merged_chunk_is_as_bad_as_its_worst_part_and_lost_ones_stay_apart(
    left: ChunkState, right: ChunkState
) -> None:
    chunks = [
        ChunkRecord(start_offset=0, length=4, object_id=ObjectId(1), state=left),
        ChunkRecord(start_offset=4, length=4, object_id=ObjectId(1), object_offset=4, state=right),
    ]
    merged = chain.joined(chunks)
    if chunks[0].lost != chunks[1].lost:
        assert merged == chunks
    else:
        assert [(chunk.length, chunk.state) for chunk in merged] == [(8, max(left, right))]
