"""Concat: layouts of both tiers, refusals, and readers and writers that are not disturbed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.segments.changes import Crash, crashing, journaled, link_local
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.clock import ManualClock
from tierfs.errors import Conflict, InvalidRequest, IsDirectory, NotFound, OffsetMismatch, Sealed
from tierfs.metadata import chains, directories, policies, tables
from tierfs.metadata import changes as journal
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.tables import CHUNKS, OBJECTS, POLICIES, SEGMENTS
from tierfs.segments.concat import concat
from tierfs.segments.create import create
from tierfs.segments.ownership import WriterLocks
from tierfs.tiering.candidates import objects_to_make
from tierfs.tiering.objects import ChunksMoved
from tierfs.types import ByteRange, ChunkState, ObjectId, SegmentKind, SegmentStatus, Tier


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def chunked(store: TestStore, name: str, lengths: list[int], *, letter: bytes, seal: bool) -> bytes:
    """A segment whose local chunks have these lengths."""
    store.append(name, b"")
    for length in lengths:
        writer = store.engine.open_writer(name)
        writer.append(letter * length)
        store.engine.close_writer(writer)
        store.engine.roll(store.segment(name).id)
    if seal:
        store.engine.seal(name)
    return letter * sum(lengths)


LAYOUTS = [
    ([10], [1, 2, 3, 4, 5]),
    ([1, 2, 3, 4, 5], [10]),
    ([1, 2], [3, 4, 5, 6, 7]),
    ([10], [15]),
    ([1], [21, 21, 21]),
    ([30], [29, 2]),
    ([10], []),
    ([], [10]),
    ([], []),
]


@pytest.mark.parametrize(("target", "source"), LAYOUTS)
@pytest.mark.parametrize("state", ["local", "cold", "both"])
def test_chunks_of_both_come_one_behind_the_other(
    tmp_path: Path, target: list[int], source: list[int], state: str
) -> None:
    sizes = {"chunk_bytes": "1024", "object_bytes": "1"}
    with open_test_store(tmp_path / "store", policy=sizes) as store:
        data = chunked(store, "t", target, letter=b"t", seal=False)
        data += chunked(store, "s", source, letter=b"s", seal=True)
        if state != "local":
            store.offload()
        if state == "cold":
            store.evict()
        store.engine.concat("t", "s")
        joined = [*target, *source]
        assert_layout(store, "t", local=joined if state != "cold" else [], cold=joined if state != "local" else [])
        assert store.read("t") == data
        with store.metadata.read() as txn:
            assert directories.find(txn, "s") is None
            assert txn.count(SEGMENTS.name) == 1
            assert txn.count(CHUNKS.name) == len(joined) * (2 if state == "both" else 1)


def test_a_source_partly_local_partly_cold_with_gaps(store: TestStore) -> None:
    store.append("t", b"01234")
    store.append("s", b"abcdefghijkl")
    store.offload("s")
    store.evict("s")
    link_local(store, "s", 4, b"efgh")
    store.append("s", b"mnop", seal=True)
    store.engine.concat("t", "s")
    assert_layout(store, "t", local=[4, 1, 4, 4], cold=[8, 4])
    starts = [placed.chunk.start_offset for placed in store.layout("t").local]
    assert starts == [0, 4, 9, 17]
    assert store.read("t") == b"01234abcdefghijklmnop"
    store.offload()
    store.evict()
    assert_layout(store, "t", local=[], cold=[5, 8, 4, 4])
    assert store.read("t") == b"01234abcdefghijklmnop"


@pytest.mark.parametrize("start", [1, 2, 4, 5, 7, 8, 9, 12])
@pytest.mark.parametrize("state", ["local", "cold", "both"])
def test_a_truncated_source_is_cut_to_its_range_in_each_tier(store: TestStore, start: int, state: str) -> None:
    store.append("t", b"01234")
    store.append("s", b"abcdefghijkl", seal=True)
    if state != "local":
        store.offload("s")
    if state == "cold":
        store.evict("s")
    store.engine.truncate("s", start, cold_due_ms=0)
    done = store.engine.concat("t", "s")
    data = b"01234" + b"abcdefghijkl"[start:]
    assert done.range == ByteRange(5, 17 - start)
    assert store.segment("t").length == 17 - start
    assert store.read("t") == data
    for tier in Tier:
        placed = [one for one in store.layout("t").chunks(tier) if one.range.start >= 5]
        if placed:
            assert placed[0].range.start == 5
    store.offload()
    store.evict()
    assert store.segment("t").local.count == 0
    assert store.read("t") == data


def test_a_target_whose_head_was_cut(store: TestStore) -> None:
    store.append("t", b"0123456789")
    store.engine.truncate("t", 10, cold_due_ms=0)
    store.append("s", b"abcdef", seal=True)
    store.engine.concat("t", "s")
    assert (store.segment("t").start_offset, store.segment("t").length) == (10, 16)
    assert_layout(store, "t", local=[4, 2], cold=[])
    assert store.read("t")[10:] == b"abcdef"


def test_adjacent_pieces_of_one_object_become_one_chunk(store: TestStore) -> None:
    """Two segments hold the two halves of a file; as one segment they are one chunk of it again."""
    store.append("t", b"")
    store.append("s", b"")
    link_local(store, "t", 0, b"abcd")
    with store.metadata.write() as txn:
        shared = next(holder for _, holder in txn.scan(OBJECTS))
        (store.files.root / shared.name).write_bytes(b"abcdefgh")
        source = directories.segment_by_name(txn, "s")
        half = ChunkRecord(start_offset=0, length=4, object_id=shared.id, object_offset=4)
        changed = chains.insert(txn, source, Tier.LOCAL, half, shared)
        txn.put(SEGMENTS, tables.u64(source.id), replace(changed, length=4))
    store.engine.seal("s")
    store.engine.concat("t", "s")
    assert_layout(store, "t", local=[8], cold=[])
    assert store.read("t") == b"abcdefgh"
    with store.metadata.read() as txn:
        assert [holder.references for _, holder in txn.scan(OBJECTS)] == [1]


def test_one_after_the_other(store: TestStore) -> None:
    data = b""
    store.append("t", b"")
    for number in range(5):
        part = bytes([97 + number]) * (number + 3)
        store.append(f"s{number}", part, seal=True)
        if number % 2:
            store.offload()
            store.evict()
        store.engine.concat("t", f"s{number}")
        data += part
        assert store.read("t") == data
    store.offload()
    store.evict()
    assert store.read("t", Tier.COLD) == data


@pytest.mark.parametrize("length", [0, 5])
def test_an_empty_source_only_disappears(store: TestStore, length: int) -> None:
    store.append("t", b"x" * length)
    store.append("s", b"", seal=True)
    before = store.segment("t")
    done = store.engine.concat("t", "s")
    assert not done.range
    after = store.segment("t")
    assert (after.length, after.modified_ms) == (length, before.modified_ms)
    with store.metadata.read() as txn:
        assert directories.find(txn, "s") is None
    store.append("t", b"y")
    assert store.read("t") == b"x" * length + b"y"


def test_what_is_refused_changes_nothing(store: TestStore) -> None:
    store.append("t", b"abc")
    store.append("open", b"abc")
    store.append("d/s", b"abc", seal=True)
    store.append("sealed", b"abc", seal=True)
    with store.metadata.write() as txn:
        create(txn, "ledger", SegmentKind.LEDGER)
    with store.metadata.read() as txn:
        before = txn.id
    for target, source, error, match in (
        ("t", "missing", NotFound, "missing"),
        ("missing", "sealed", NotFound, "missing"),
        ("t", "d", IsDirectory, "d"),
        ("d", "sealed", IsDirectory, "d"),
        ("t", "t", InvalidRequest, "to itself"),
        ("t", "ledger", InvalidRequest, "ledger"),
        ("ledger", "sealed", InvalidRequest, "ledger"),
        ("sealed", "d/s", Sealed, "it is sealed"),
        ("t", "open", Conflict, "not sealed"),
    ):
        with pytest.raises(error, match=match) as caught:
            store.engine.concat(target, source)
        assert type(caught.value) is error
        assert source != "open" or caught.value.remedy == "tierfs seal open"
    with store.metadata.read() as txn:
        assert txn.id == before


def test_a_live_writer_of_the_target_elsewhere_is_a_conflict(store: TestStore) -> None:
    store.append("s", b"abc", seal=True)
    writer = store.engine.open_writer("t")
    writer.append(b"xyz")
    other = WriterLocks(store.path / "writers")
    try:
        with pytest.raises(Conflict, match="is being written by process"):
            concat(store.metadata, other, "t", "s")
    finally:
        other.close()
    assert store.segment("s").sealed


def test_the_writer_of_this_process_goes_on_at_the_new_end(store: TestStore) -> None:
    store.append("s", b"abc", seal=True)
    writer = store.engine.open_writer("t")
    writer.append(b"xy")
    store.engine.concat("t", "s")
    with pytest.raises(OffsetMismatch, match="its length is 5"):
        writer.append(b"z", expected_offset=2)
    assert writer.append(b"z") == ByteRange(5, 6)
    assert_layout(store, "t", local=[2, 3, 1], cold=[])
    assert store.read("t") == b"xyabcz"


def test_the_chunk_that_ended_is_read_only(store: TestStore) -> None:
    store.append("t", b"xy")
    store.append("s", b"abc", seal=True)
    name = store.layout("t").local[0].object.name
    store.engine.concat("t", "s")
    assert (store.files.root / name).stat().st_mode & 0o777 == 0o440
    assert not store.segment("t").active


def test_threads_append_while_segments_are_concatenated(store: TestStore) -> None:
    """Every piece is whole, in either order."""
    for number in range(8):
        store.append(f"s{number}", b"<%d>" % number, seal=True)
    writer = store.engine.open_writer("t")

    def append() -> None:
        for _ in range(40):
            writer.append(b"[abc]")

    thread = threading.Thread(target=append)
    thread.start()
    for number in range(8):
        store.engine.concat("t", f"s{number}")
    thread.join()
    data = store.read("t")
    for number in range(8):
        data = data.replace(b"<%d>" % number, b"")
    assert data == b"[abc]" * 40


def test_record_times_generation_inode_and_policy(store: TestStore) -> None:
    store.append("t", b"xy")
    store.append("s", b"abc", seal=True)
    with store.metadata.write() as txn:
        policies.change(txn, "s", put_settings={"chunk_bytes": "9"})
    before, source = store.segment("t"), store.segment("s")
    store.clock.advance(5)
    store.engine.concat("t", "s")
    after = store.segment("t")
    assert (after.inode, after.generation) == (before.inode, before.generation + 1)
    assert after.modified_ms == after.changed_ms == store.clock.now_ms()
    with store.metadata.read() as txn:
        assert txn.get(POLICIES, tables.u64(source.id)) is None


def test_the_journal_never_shows_a_byte_missing(store: TestStore) -> None:
    store.append("t", b"01234567")
    store.append("s", b"abcdefghijkl", seal=True)
    store.offload()
    source = store.segment("s").id
    with journaled(store) as changes:
        store.engine.concat("t", "s")
    linked, target, removed = changes
    assert [(chunk.start_offset, chunk.length) for chunk in linked.cold_link.chunks] == [(8, 8), (16, 4)]
    assert (len(linked.cold_link.objects), len(linked.cold_link.checksums)) == (0, 0)
    assert (target.segment.length, target.segment.cold.count) == (20, 3)
    assert removed.segment_removed == source


def test_the_journal_gets_chunks_in_changes_that_an_entry_can_hold(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CHUNKS_PER_CHANGE", 2)
    store.append("t", b"")
    store.append("s", b"a" * 40, seal=True)
    store.offload()
    with journaled(store) as changes:
        store.engine.concat("t", "s")
    assert [len(change.cold_link.chunks) for change in changes] == [2, 2, 1, 0, 0]
    with journaled(store) as changes:
        store.engine.truncate("t", 40, cold_due_ms=0)
    assert [len(change.cold_unlink.start_offsets) for change in changes] == [2, 2, 1, 0]


def test_a_crash_before_the_commit_changes_nothing(store: TestStore) -> None:
    store.append("t", b"012")
    store.append("s", b"abcdef", seal=True)
    store.offload()
    before = store.segment("t"), store.segment("s")
    with pytest.raises(Crash):
        concat(crashing(store.metadata), store.engine._locks, "t", "s")
    assert (store.segment("t"), store.segment("s")) == before
    assert_layout(store, "s", local=[4, 2], cold=[6])


def test_a_crash_after_the_commit_leaves_all_of_it(store: TestStore) -> None:
    store.append("t", b"012")
    store.append("s", b"abcdef", seal=True)
    concat(store.metadata, store.engine._locks, "t", "s")  # the ended file was not made read-only
    store.reopen()
    store.append("t", b"z")
    store.offload()
    store.evict()
    assert store.read("t") == b"012abcdefz"


@pytest.fixture
def met(tmp_path: Path) -> Iterator[tuple[TestStore, ScriptedStorage]]:
    cold = ScriptedStorage(MemoryStorage(ManualClock()))
    with open_test_store(tmp_path / "store", cold=cold) as opened:
        yield opened, cold


def test_an_offload_of_the_source_under_way_ends_and_is_planned_anew(met: tuple[TestStore, ScriptedStorage]) -> None:
    store, cold = met
    store.append("t", b"01")
    store.append("s", b"abcdefgh", seal=True)
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    cold.do("put", lambda: store.engine.concat("t", "s"), of="segments/")
    with pytest.raises(ChunksMoved):
        store.cold_work().tools.offload.run(action)
    assert_layout(store, "t", local=[2, 4, 4], cold=[])
    assert store.offload("t").bytes == 10
    assert store.read("t", Tier.COLD) == b"01abcdefgh"


def test_an_offload_command_follows_its_bytes_to_the_target(met: tuple[TestStore, ScriptedStorage]) -> None:
    store, cold = met
    store.append("a/s", b"abcdefgh", seal=True)
    store.append("a/t", b"01")
    cold.do("put", lambda: store.engine.concat("a/t", "a/s"), of="segments/")
    store.offload("a")
    assert store.read("a/t", Tier.COLD) == b"01abcdefgh"


@pytest.mark.parametrize("before", [2, 4, 6, 8, 12])
def test_an_offload_of_a_head_that_is_cut_meanwhile(met: tuple[TestStore, ScriptedStorage], before: int) -> None:
    store, cold = met
    store.append("s", b"abcdefghijkl", seal=True)
    cold.do("put", lambda: store.engine.truncate("s", before, cold_due_ms=0), of="segments/")
    store.offload()
    assert store.read("s", Tier.COLD)[before:] == b"abcdefghijkl"[before:]
    store.clock.advance(7200)
    store.settle()
    with store.metadata.read() as txn:
        named = {holder.name for _, holder in txn.scan(OBJECTS) if holder.tier is Tier.COLD}
    assert {found.name for found in store.cold.list("segments/")} == named


def test_an_offload_of_the_target_under_way_is_not_disturbed(met: tuple[TestStore, ScriptedStorage]) -> None:
    store, cold = met
    store.append("s", b"abc", seal=True)
    store.append("t", b"01234567")
    cold.do("put", lambda: store.engine.concat("t", "s"), of="segments/")
    store.offload("t")
    store.offload("t")
    assert store.read("t", Tier.COLD) == b"01234567abc"


def test_lost_extents_come_along(store: TestStore) -> None:
    store.append("t", b"01")
    store.append("s", b"abcdefgh", seal=True)
    store.offload()
    store.evict("s")
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "s")
        held = list(chains.chunks(txn, segment.id, Tier.COLD))
        segment = chains.remove(txn, segment, Tier.COLD, held, due_ms=0, after_sequence=0)
        lost = ChunkRecord(start_offset=0, length=8, object_id=ObjectId(0), state=ChunkState.LOST, next=0)
        txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, 0), lost)
        head = type(segment.cold)(count=1)
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, cold=head))
    store.engine.truncate("s", 3, cold_due_ms=0)
    store.engine.concat("t", "s")
    with store.metadata.read() as txn:
        kept = [chunk.range for chunk in chains.chunks(txn, store.segment("t").id, Tier.COLD) if chunk.lost]
    assert kept == [ByteRange(2, 7)]
    assert store.segment("t").length == 7


def test_a_segment_sealed_by_policy_can_be_a_source(store: TestStore) -> None:
    store.append("t", b"01")
    store.append("s", b"abc", seal=True)
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "s")
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, status=SegmentStatus.SEALED_BY_POLICY))
    store.engine.concat("t", "s")
    assert store.read("t") == b"01abc"


def test_lists_are_sound_behind_each_other(store: TestStore) -> None:
    store.append("t", b"a" * 10)
    store.append("s", b"b" * 10, seal=True)
    store.append("u", b"c")  # ids behind both: nothing can be appended to the database
    store.engine.concat("t", "s")
    with store.metadata.read() as txn:
        found = list(chains.chunks(txn, store.segment("t").id, Tier.LOCAL))
    assert all(one.next == other.start_offset for one, other in pairwise(found))
