"""Head truncation: removed and kept chunks, and readers and writers that are not disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.segments.changes import Crash, crashing, journaled, link_local
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.errors import DataLoss, InvalidRequest, IsDirectory, NotFound
from tierfs.metadata import changes as journal
from tierfs.metadata import directories, policies
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.tables import CHECKSUMS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.segments.create import create
from tierfs.segments.truncate import Truncation, truncate
from tierfs.tiering.candidates import offload_actions
from tierfs.types import ROOT_DIRECTORY, ByteRange, ObjectId, SegmentId, SegmentKind, Tier

DATA = b"abcdefghijkl"
GRACE_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def cut(store: TestStore, name: str, before: int) -> Truncation:
    return store.engine.truncate(name, before, cold_due_ms=store.clock.now_ms() + GRACE_MS)


def readable(store: TestStore, name: str) -> bytes:
    return store.read(name)[store.segment(name).start_offset :]


@pytest.mark.parametrize(
    ("before", "local", "cold"),
    [
        (0, [4, 4, 4], [8, 4]),
        (1, [4, 4, 4], [8, 4]),
        (3, [4, 4, 4], [8, 4]),
        (4, [4, 4], [8, 4]),
        (6, [4, 4], [8, 4]),
        (8, [4], [4]),
        (9, [4], [4]),
        (12, [], []),
    ],
)
@pytest.mark.parametrize("seal", [True, False])
def test_truncate_at_and_inside_chunks_of_both_tiers(
    store: TestStore, before: int, local: list[int], cold: list[int], seal: bool
) -> None:
    store.append("s", DATA, seal=seal)
    store.offload()
    done = cut(store, "s", before)
    assert_layout(store, "s", local=local, cold=cold)
    assert (store.segment("s").start_offset, store.segment("s").length) == (before, 12)
    assert (done.start_offset, done.bytes) == (before, before)
    assert (done.local_bytes, done.cold_bytes) == (12 - sum(local), 12 - sum(cold))
    assert readable(store, "s") == DATA[before:]


def test_repeated_and_lower_offsets_change_nothing(store: TestStore) -> None:
    store.append("s", DATA)
    cut(store, "s", 5)
    before = store.segment("s")
    for offset in (5, 4, 0):
        assert cut(store, "s", offset) == Truncation(start_offset=5)
    assert store.segment("s") == before


def test_many_small_steps_equal_one(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    for offset in range(1, 13):
        cut(store, "s", offset)
        assert readable(store, "s") == DATA[offset:]
    assert_layout(store, "s", local=[], cold=[])


def test_beyond_the_end_is_refused_naming_the_length(store: TestStore) -> None:
    store.append("s", DATA)
    with pytest.raises(InvalidRequest, match="its length is 12"):
        cut(store, "s", 13)


def test_what_cannot_be_truncated(store: TestStore) -> None:
    store.append("d/s", DATA)
    with store.metadata.write() as txn:
        create(txn, "ledger", SegmentKind.LEDGER)
    with pytest.raises(NotFound):
        cut(store, "missing", 1)
    with pytest.raises(IsDirectory):
        cut(store, "d", 1)
    with pytest.raises(InvalidRequest, match="ledger"):
        cut(store, "ledger", 0)


def test_an_empty_segment_is_truncated_at_0(store: TestStore) -> None:
    store.append("s", b"")
    assert cut(store, "s", 0).bytes == 0


def test_an_emptied_segment_grows_on_at_its_length(store: TestStore) -> None:
    store.append("s", DATA)
    cut(store, "s", 12)
    store.append("s", b"more")
    assert_layout(store, "s", local=[4], cold=[])
    assert readable(store, "s") == b"more"
    assert store.segment("s").length == 16


@pytest.mark.parametrize("before", [2, 4, 5, 6])
def test_a_live_writer_goes_on(store: TestStore, before: int) -> None:
    """Below, at and inside the active chunk, and at the end, where that chunk goes."""
    writer = store.engine.open_writer("s")
    writer.append(b"abcdef")
    cut(store, "s", before)
    assert writer.append(b"gh", expected_offset=6) == ByteRange(6, 8)
    assert writer.append(b"ij") == ByteRange(8, 10)
    assert store.segment("s").writer_epoch == 1
    assert readable(store, "s") == b"abcdefghij"[before:]
    assert_layout(store, "s", local=[4, 4, 2] if before < 4 else [4, 2] if before < 6 else [4], cold=[])


def test_a_new_writer_goes_on_in_the_chunk_that_holds_the_start(store: TestStore) -> None:
    store.append("s", b"ab")
    cut(store, "s", 1)
    store.append("s", b"cd")
    assert_layout(store, "s", local=[4], cold=[])
    assert readable(store, "s") == b"bcd"


def test_the_name_gets_a_new_inode_and_the_generation_counts_once(store: TestStore) -> None:
    store.append("d/s", DATA)
    store.offload()
    before = store.segment("d/s")
    store.clock.advance(5)
    cut(store, "d/s", 8)
    after = store.segment("d/s")
    assert after.inode != before.inode
    assert after.generation == before.generation + 1
    assert (after.modified_ms, after.changed_ms) == (before.modified_ms, store.clock.now_ms())
    with store.metadata.read() as txn:
        assert directories.directory(txn, after.parent_id).modified_ms == store.clock.now_ms()


def test_local_files_go_at_once_and_cold_objects_after_grace_and_journal(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    cut(store, "s", 8)
    with store.metadata.read() as txn:
        rows = {row.tier: row for _, row in txn.scan(GARBAGE)}
        changes = [(number, pb.Change.FromString(data)) for number, data in journal.outbox(txn, 0)]
    cut_sequence = max(number for number, change in changes if change.HasField("segment"))
    assert rows[Tier.LOCAL].due_ms == store.clock.now_ms()
    assert rows[Tier.COLD].due_ms == store.clock.now_ms() + GRACE_MS
    assert rows[Tier.COLD].after_sequence == cut_sequence
    assert [found.length_bytes for found in store.cold.list("segments/")] == [8, 4]
    store.settle()
    assert len(list(store.files.names())) == 1
    assert [found.length_bytes for found in store.cold.list("segments/")] == [8, 4]
    store.clock.advance(GRACE_MS / 1000)
    store.settle()
    assert [found.length_bytes for found in store.cold.list("segments/")] == [4]


def test_a_shared_object_stays_as_long_as_a_chunk_needs_it(store: TestStore) -> None:
    """Source a was cut inside its object: the rest of the object is a chunk of t, until that is cut too."""
    store.append("t", b"0123")
    store.append("a", b"abcdefgh", seal=True)
    store.offload()
    store.evict()
    cut(store, "a", 3)
    store.engine.concat("t", "a")
    assert_layout(store, "t", local=[], cold=[4, 5])
    with store.metadata.read() as txn:
        assert txn.count(OBJECTS.name) == 2
    cut(store, "t", 9)
    assert_layout(store, "t", local=[], cold=[])
    with store.metadata.read() as txn:
        assert (txn.count(OBJECTS.name), txn.count(CHECKSUMS.name)) == (0, 0)


def test_the_journal_says_what_goes_and_then_where_the_segment_begins(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    with journaled(store) as changes:
        cut(store, "s", 9)
    unlinked, segment = changes
    assert list(unlinked.cold_unlink.start_offsets) == [0]
    assert (segment.segment.start_offset, segment.segment.cold.count) == (9, 1)


def test_a_local_only_truncation_is_one_change(store: TestStore) -> None:
    store.append("s", DATA)
    with journaled(store) as changes:
        cut(store, "s", 9)
    assert [change.WhichOneof("body") for change in changes] == ["segment"]


def test_a_crash_before_the_commit_changes_nothing(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    store.offload()

    before = store.segment("s")
    with pytest.raises(Crash):
        truncate(crashing(store.metadata), "s", 8, cold_due_ms=0)
    assert store.segment("s") == before
    assert_layout(store, "s", local=[4, 4, 4], cold=[8, 4])
    with store.metadata.read() as txn:
        assert txn.count(GARBAGE.name) == 0


def test_what_a_crash_after_the_commit_left_is_collected_by_the_next_process(store: TestStore) -> None:
    store.append("s", DATA)
    cut(store, "s", 8)
    assert len(list(store.files.names())) == 3
    store.reopen()
    store.settle()
    assert len(list(store.files.names())) == 1
    assert readable(store, "s") == DATA[8:]


def test_after_a_failover_the_visible_range_is_the_same(store: TestStore) -> None:
    """Each new writer ends the chunk of the one that crashed; truncation moves only the start."""
    model, start = b"", 0
    for round_ in range(6):
        writer = store.engine.open_writer("s")
        writer.append(bytes([65 + round_]) * 3)
        model += bytes([65 + round_]) * 3
        store.reopen()  # a crash: its garbage beyond the committed length is nobody's
        start = round_ * 2 + 1
        cut(store, "s", start)
        assert readable(store, "s") == model[start:]
        assert (store.segment("s").start_offset, store.segment("s").length) == (start, len(model))
    store.offload()
    assert readable(store, "s") == model[start:]


@pytest.mark.parametrize("before", [1, 4, 6, 8])
def test_the_head_that_stays_is_offloaded_and_evicted(store: TestStore, before: int) -> None:
    store.append("s", DATA, seal=True)
    cut(store, "s", before)
    store.offload()
    store.evict()
    with store.metadata.read() as txn:
        assert txn.must_get(SEGMENTS, store.segment("s").id.to_bytes(8, "big"), "s").local.count == 0
    assert readable(store, "s") == DATA[before:]


def test_a_local_chunk_goes_when_what_can_be_read_of_it_is_cold(store: TestStore) -> None:
    """Its first bytes are cut off and their object is gone: no read needs them."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "4", "object_bytes": "4"})
    store.append("s", b"abcdefgh", seal=True)
    store.offload()
    store.evict()
    # One local chunk over both objects, as a warm-up or a larger chunk size would leave it.
    link_local(store, "s", 0, b"abcdefgh")
    cut(store, "s", 6)
    assert_layout(store, "s", local=[8], cold=[4])
    report = store.offload()
    assert report.objects == 0
    store.evict()
    assert_layout(store, "s", local=[], cold=[4])


@pytest.mark.parametrize(("start", "planned"), [(3, 1), (4, 0), (6, 0), (8, 0)])
def test_bytes_below_the_start_need_no_cold_copy(start: int, planned: int) -> None:
    local = ChunkRecord(start_offset=0, length=8, object_id=ObjectId(1))
    cold = ChunkRecord(start_offset=4, length=4, object_id=ObjectId(2))
    actions = offload_actions(SegmentId(1), [local], [cold], 8, start_offset=start)
    assert len(list(actions)) == planned


def test_a_suspect_head_can_be_cut_off(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    path = store.files.root / store.layout("s").local[0].object.name
    path.chmod(0o600)
    path.write_bytes(b"XXXX")
    with pytest.raises(DataLoss):
        store.offload()
    cut(store, "s", 8)
    store.offload()
    assert_layout(store, "s", local=[4], cold=[4])
