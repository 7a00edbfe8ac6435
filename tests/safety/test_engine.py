"""Writing: what is durable before it is acknowledged, what a chunk must still be, and which limits hold."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.manual_clock import ManualClock
from tests.safety.refused import refused
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import WriteSettings
from tierfs.base.words.errors import (
    Conflict,
    DataLoss,
    NotFound,
    ReadOnlyDisk,
    Sealed,
    StorageFull,
    TierfsError,
    Unavailable,
)
from tierfs.base.words.types import (
    ROOT_DIRECTORY,
    AttemptId,
    ByteRange,
    ChunkState,
    LocationId,
    ObjectId,
    SegmentStatus,
    Tier,
)
from tierfs.engine.chunkstore.local_files import ChunkFiles, DiskBytes
from tierfs.engine.metadata import chain, chain_edits, chains, changes, environment, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chains import Growth
from tierfs.engine.metadata.directories import must_find, queue, segment_by_name
from tierfs.engine.metadata.environment import Environment, open_environment
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord
from tierfs.engine.metadata.tables import GARBAGE, OBJECTS, SEGMENTS
from tierfs.engine.segments.active_chunk import ActiveChunk, ChunkDescriptors
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.engine.segments.delete import delete
from tierfs.engine.segments.engine import Engine
from tierfs.engine.segments.group_commit import AppendCall
from tierfs.engine.segments.ownership import StaleBase
from tierfs.engine.segments.seal import unseal
from tierfs.engine.segments.trash import end_due
from tierfs.engine.segments.truncate import truncate
from tierfs.tiering.garbage import ballast

LIMIT = 2
"""Files that stay open."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    policy = {"chunk_bytes": "4", "object_bytes": "8", "trash_age": "10"}
    with open_test_store(tmp_path / "store", policy=policy) as opened:
        yield opened


def another(store: TestStore) -> closing[Engine]:
    """The engine of another process."""
    return closing(Engine(store.metadata, store.files, store.path / "writers", store.clock, WriteSettings()))


# Durable


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
        assert {placed.object.name for placed in store.layout("s").local} == set(synced)
    store.engine.close_writer(writer)


def test_commits_are_synced(store: TestStore) -> None:
    flags = open_environment(store.metadata.path).lmdb.flags()
    assert (flags["sync"], flags["metasync"]) == (True, True)


@pytest.mark.parametrize(
    ("error", "refusal"), [("Input/output error", Unavailable), ("Read-only file system", ReadOnlyDisk)]
)
def test_nothing_is_written_after_a_commit_that_failed(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, error: str, refusal: type[TierfsError]
) -> None:
    def fail() -> None:
        raise lmdb.Error(error)

    monkeypatch.setattr(environment, "_LOOK_AGAIN_S", math.inf)
    failing: Any = type("Failing", (), {"commit": staticmethod(fail)})
    with pytest.raises(TierfsError):
        open_environment(store.metadata.path).commit(failing)
    with pytest.raises(refusal, match="disk"), store.metadata.write():
        pass


@pytest.mark.parametrize("short", [0, 1, 2])
def test_a_chunk_file_that_lost_its_end_is_not_written_on(store: TestStore, short: int) -> None:
    store.append("s", b"ab")
    path = store.path / "chunks" / store.layout("s").local[0].object.name
    os.truncate(path, 2 - short)
    with refused(short, DataLoss):
        store.append("s", b"cd")
    assert path.read_bytes() == (b"ab"[: 2 - short] if short else b"abcd")


def test_files_of_segments_whose_commit_may_have_happened_stay(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, commits = Environment.commit, 0

    def fail(environment: Any, txn: Any) -> None:
        nonlocal commits
        commits += 1
        commit(environment, txn)
        if commits == 2:  # the first one reserves the ids
            raise Unavailable("it is not known")

    monkeypatch.setattr(Environment, "commit", fail)
    with closing(store.engine.bulk_creator()) as creator, pytest.raises(Unavailable):
        creator.create([WholeSegment("s", b"abcd")], seal=False)
    monkeypatch.undo()
    assert store.read("s") == b"abcd"


# The floor


def append(store: TestStore) -> None:
    store.append("s", b"abcd")


def append_together(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    calls = [AppendCall(writer, memoryview(b"ab")) for _ in range(2)]
    taken, _ = writer._take(calls)
    assert taken == (calls if calls[1].error is None else calls[:1])
    if calls[1].error is not None:
        raise calls[1].error


def create(store: TestStore) -> None:
    with closing(store.engine.bulk_creator()) as creator:
        assert creator.create([WholeSegment("s", b"abcd")], seal=False) == [True]


@pytest.mark.parametrize("room", [-1, 0, 1])
@pytest.mark.parametrize("write", [append, append_together, create])
def test_what_is_written_counts_against_the_floor(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, write: Callable[[TestStore], None], room: int
) -> None:
    free = store.engine.free_space_floor_bytes + 4 + room
    monkeypatch.setattr(ChunkFiles, "disk_bytes", lambda _: DiskBytes(size=2 * free, used=free, free=free))
    with refused(room < 0, StorageFull):
        write(store)


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

    def work() -> None:
        if path.stat().st_size:
            raise StorageFull("no room")

    with refused(not is_full, StorageFull):  # another disk is full: this room would not help
        ballast.with_room(path, work)
    assert path.stat().st_size == (0 if is_full else 100)


@pytest.mark.parametrize("length", [4, 5])
def test_a_created_segment_fits_into_one_chunk(store: TestStore, length: int) -> None:
    with closing(store.engine.bulk_creator()) as creator:
        assert creator.create([WholeSegment("s", bytes(length))], seal=False) == [length == 4]


# Files that are open


def begun(descriptors: ChunkDescriptors, number: int) -> ActiveChunk:
    chunk = ActiveChunk(f"00/{number:x}-0-{number:016x}", AttemptId("a"), 0)
    descriptors.create(chunk)
    return chunk


def is_open(chunk: ActiveChunk) -> bool:
    return chunk.fd >= 0 and os.fstat(chunk.fd).st_nlink == 1


def test_files_in_use_stay_open_and_idle_ones_down_to_the_limit(store: TestStore) -> None:
    descriptors = ChunkDescriptors(store.files, LIMIT)
    chunks = [begun(descriptors, number) for number in range(1, LIMIT + 3)]
    with ExitStack() as used:
        for chunk in chunks[1:]:
            used.enter_context(descriptors.use(chunk))
        with descriptors.use(chunks[0]):
            pass
        descriptors.close(chunks[1])
        assert [is_open(chunk) for chunk in chunks] == [False] + [True] * (LIMIT + 1)
    assert sum(is_open(chunk) for chunk in chunks) == LIMIT
    for chunk in chunks:
        descriptors.close(chunk)
        assert chunk.fd < 0


# What must still be


@pytest.mark.parametrize("wrong", ["nothing", "writer_epoch", "segment_length", "object_id", "status"])
def test_a_chunk_grows_quickly_only_as_its_writer_left_it(store: TestStore, wrong: str) -> None:
    store.engine.open_writer("s").append(b"ab")
    store.engine.open_writer("other").append(b"cd")
    segment, (placed,), (other,) = store.segment("s"), store.layout("s").local, store.layout("other").local
    growth = Growth(segment.id, segment.writer_epoch, segment.length, placed.object.id, 1, 7, 0, [7], resumable=False)
    if wrong == "object_id":
        growth = replace(growth, object_id=other.object.id)
    elif wrong in ("writer_epoch", "segment_length"):
        growth = replace(growth, **{wrong: getattr(growth, wrong) - 1})
    with store.metadata.write() as txn:
        if wrong == "status":
            message = txn.message(SEGMENTS, tables.u64(segment.id))
            assert message is not None
            message.status = SegmentStatus.SEALED
            txn.put_raw(SEGMENTS.name, tables.u64(segment.id), message.SerializeToString(deterministic=True))
        assert chains.grow(txn, growth) is (wrong == "nothing")


@pytest.mark.parametrize("wrong", ["nothing", "base_length", "object_id"])
def test_an_append_is_committed_only_at_the_end_and_in_its_chunk(store: TestStore, wrong: str) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    pending = writer._write([AppendCall(writer, memoryview(b"c"))])
    if wrong == "base_length":
        pending._writing = replace(pending._writing, base_length=1)
    elif wrong == "object_id":
        pending._pieces[0].chunk.object_id = ObjectId(999)
    store.files.sync_directory(pending.chunks[0].name)
    with refused(wrong != "nothing", StaleBase), store.metadata.write() as txn:
        pending.apply(txn)


@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_chunk_is_marked_good_only_in_the_length_that_was_read(tier: Tier, more: int) -> None:
    seen = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(1), state=ChunkState.SUSPECT)
    expected = more == 0 or (more > 0 and tier is Tier.LOCAL)
    assert chain_edits._changes(replace(seen, length=4 + more), tier, seen, ChunkState.GOOD) is expected


@pytest.mark.parametrize("state", list(ChunkState))
@pytest.mark.parametrize("object_id", [1, 2])
@pytest.mark.parametrize("was_lost", [True, False])
def test_a_mark_is_for_the_chunk_that_was_looked_at(state: ChunkState, object_id: int, was_lost: bool) -> None:
    found = ChunkState.LOST if was_lost else ChunkState.GOOD
    seen = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(1), state=found)
    current = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(object_id), state=ChunkState.LOST)
    # A lost extent becomes good by one who saw it lost, and read its object; no other mark changes it.
    expected = object_id == 1 and was_lost and state is ChunkState.GOOD
    assert chain_edits._changes(current, Tier.COLD, seen, state) is expected
    good = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(object_id))
    assert chain_edits._changes(good, Tier.COLD, seen, state) is (object_id == 1 and state is not ChunkState.GOOD)


@given(left=st.sampled_from(ChunkState), right=st.sampled_from(ChunkState), gap=st.integers(0, 1))
def test_a_merged_chunk_is_as_bad_as_its_worst_part_and_lost_ones_stay_apart(
    left: ChunkState, right: ChunkState, gap: int
) -> None:
    first = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(1), state=left)
    second = ChunkRecord(start_offset=4 + gap, length=4, object_id=ObjectId(1), object_offset=4, state=right)
    merged = chain.joined([first, second])
    if first.lost != second.lost or gap:
        assert merged == [first, second]
    else:
        assert [(chunk.length, chunk.state) for chunk in merged] == [(8, max(left, right))]


@pytest.mark.parametrize("references", [1, 2, 3])
def test_an_object_goes_with_its_last_reference(store: TestStore, references: int) -> None:
    holder = ObjectRecord(
        id=ObjectId(900), tier=Tier.COLD, location_id=LocationId(1), name="o", length=4, etag="e", references=references
    )
    with store.metadata.write() as txn:
        txn.put(OBJECTS, tables.u64(holder.id), holder)
        gone = chain_edits.count_references(txn, holder.id, -1)
        left = txn.get(OBJECTS, tables.u64(holder.id))
        expected = (holder, None) if references == 1 else (None, replace(holder, references=references - 1))
        assert (gone, left) == expected
        txn.delete(OBJECTS.name, tables.u64(holder.id))


def test_a_chain_that_begins_before_its_segment_is_not_joined_to_another(store: TestStore) -> None:
    for name in "st":
        store.append(name, b"ab")
    source, target = store.segment("s"), store.segment("t")
    with store.metadata.write() as txn, pytest.raises(DataLoss, match="a chunk before the start"):
        chain_edits.append_chain(txn, target, replace(source, start_offset=1), Tier.LOCAL)


# Others that write


@pytest.mark.parametrize("alive", [True, False])
def test_a_chunk_is_not_continued_beside_its_living_writer(store: TestStore, alive: bool) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab", last=True)
    if not alive:
        store.engine.close_writer(writer)
    with another(store) as other:
        other.open_writer("s", take_over=True)
        assert store.segment("s").active is not alive


@pytest.mark.parametrize("writes", [True, False])
def test_no_segment_is_sealed_under_its_writer_elsewhere(store: TestStore, writes: bool) -> None:
    writer = store.engine.open_writer("s")
    if not writes:
        store.engine.close_writer(writer)
    with another(store) as other, refused(writes, Conflict, "being written"):
        other.seal("s")
    assert store.segment("s").sealed is not writes


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


@pytest.mark.parametrize("verb", ["delete", "truncate"])
def test_cold_objects_go_after_the_lag_and_the_last_change_that_says_so(store: TestStore, verb: str) -> None:
    store.append("s", b"abcdefgh", b"ijkl", seal=True)
    store.offload("s")
    due_ms = store.clock.now_ms() + 5000
    if verb == "delete":
        delete(store.metadata, store.engine.locks, "s", recursive=False, cold_due_ms=due_ms)
    else:
        truncate(store.metadata, "s", 8, cold_due_ms=due_ms)
    with store.metadata.read() as txn:
        row = next(row for _, row in txn.scan(GARBAGE) if row.tier is Tier.COLD)
        queued = {sequence: pb.Change.FromString(data).WhichOneof("body") for sequence, data in changes.outbox(txn, 0)}
    last = max(number for number, body in queued.items() if body in ("segment", "segment_removed"))
    assert (row.due_ms, row.after_sequence) == (due_ms, last)


def test_a_removal_ends_at_its_own_time(store: TestStore) -> None:
    assert isinstance(store.clock, ManualClock)
    for name in ("first", "second"):
        store.append(name, b"1")
        delete(store.metadata, store.engine.locks, name, recursive=False, cold_due_ms=0, to_trash=True)
        store.clock.advance(5)
    assert (end_due(store.metadata), end_due(store.metadata)) == (1, 0)
    store.clock.advance(5)
    assert end_due(store.metadata) == 1


@pytest.mark.parametrize("sealed", [True, False])
def test_only_a_sealed_segment_becomes_the_end_of_another_one(store: TestStore, sealed: bool) -> None:
    store.append("target", b"ab")
    store.append("source", b"cd", seal=sealed)
    with refused(not sealed, Conflict, "is not sealed"):
        store.engine.concat("target", "source")
    assert store.read("target") == (b"abcd" if sealed else b"ab")
    assert sealed or store.read("source") == b"cd"


@pytest.mark.parametrize("sealed", [True, False])
def test_a_sealed_segment_does_not_grow_by_a_concat(store: TestStore, sealed: bool) -> None:
    store.append("target", b"ab", seal=sealed)
    store.append("source", b"cd", seal=True)
    with refused(sealed, Sealed, "it is sealed"):
        store.engine.concat("target", "source")
    assert store.read("target") == (b"ab" if sealed else b"abcd")


@pytest.mark.parametrize("writes", [True, False])
def test_a_concat_waits_for_a_writer_elsewhere(store: TestStore, writes: bool) -> None:
    store.append("source", b"cd", seal=True)
    writer = store.engine.open_writer("target")
    writer.append(b"ab")
    if not writes:
        store.engine.close_writer(writer)
    with another(store) as other, refused(writes, Conflict, "being written"):
        other.concat("target", "source")
    assert store.segment("target").length == (2 if writes else 4)


@pytest.mark.parametrize("state", [ChunkState.GOOD, ChunkState.SUSPECT])
@pytest.mark.parametrize(("verb", "left"), [("lose", ChunkState.LOST), ("take_out", None)])
def test_bytes_around_a_cut_keep_the_state_of_their_chunk(
    store: TestStore, verb: str, left: ChunkState | None, state: ChunkState
) -> None:
    store.append("s", b"abcdefgh", seal=True)
    store.offload("s")
    placed = store.layout("s").cold[0]
    chain_edits.set_state(store.metadata, store.segment("s").id, Tier.COLD, placed.chunk, state)
    with store.metadata.write() as txn:
        editor = chain_edits.Editor(txn, segment_by_name(txn, "s"))
        edited = editor.lose(ByteRange(2, 5)) if verb == "lose" else editor.take_out(ByteRange(2, 5), due_ms=0)
        txn.put(SEGMENTS, tables.u64(edited.segment.id), edited.segment)
    states = {chunk.range: chunk.state for chunk in (each.chunk for each in store.layout("s").cold)}
    middle = {} if left is None else {ByteRange(2, 5): left}
    assert states == {ByteRange(0, 2): state, ByteRange(5, 8): state, **middle}
