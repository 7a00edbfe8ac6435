"""Head truncation: removed and kept chunks, and readers and writers that are not disturbed."""

from __future__ import annotations

import pytest

from tests.segments.changes import link_local
from tests.stores import TestStore, assert_layout
from tierfs.errors import DataLoss
from tierfs.metadata import changes as journal
from tierfs.metadata import policies
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import ChunkRecord
from tierfs.metadata.tables import CHECKSUMS, GARBAGE, OBJECTS
from tierfs.segments.truncate import Truncation
from tierfs.tiering.candidates import offload_actions
from tierfs.types import ROOT_DIRECTORY, ByteRange, ObjectId, SegmentId, Tier

DATA = b"abcdefghijkl"
GRACE_MS = 3_600_000


def cut(store: TestStore, name: str, before: int) -> Truncation:
    return store.engine.truncate(name, before, cold_due_ms=store.clock.now_ms() + GRACE_MS)


def readable(store: TestStore, name: str) -> bytes:
    return store.read(name)[store.segment(name).start_offset :]


CUTS = [
    (0, [4, 4, 4], [8, 4]),
    (1, [4, 4, 4], [8, 4]),
    (3, [4, 4, 4], [8, 4]),
    (4, [4, 4], [8, 4]),
    (5, [4, 4], [8, 4]),
    (7, [4, 4], [8, 4]),
    (8, [4], [4]),
    (9, [4], [4]),
    (11, [4], [4]),
    (12, [], []),
]


@pytest.mark.parametrize(("before", "local", "cold"), CUTS, ids=[f"at {row[0]}" for row in CUTS])
@pytest.mark.parametrize("state", ["open local", "open both", "sealed local", "sealed both", "sealed cold"])
def test_truncate_at_and_inside_chunks_of_both_tiers(
    store: TestStore, before: int, local: list[int], cold: list[int], state: str
) -> None:
    store.append("s", DATA, seal="sealed" in state)
    if "local" in state:
        cold = []
    else:
        store.offload()
    if "cold" in state:
        local = []
        store.evict()
    held = store.segment("s")
    done = cut(store, "s", before)
    assert_layout(store, "s", local=local, cold=cold)
    after = store.segment("s")
    assert (after.start_offset, after.length) == (before, 12)
    assert done == Truncation(
        start_offset=before,
        bytes=before,
        local_chunks=held.local.count - len(local),
        local_bytes=held.local.bytes - sum(local),
        cold_chunks=held.cold.count - len(cold),
        cold_bytes=held.cold.bytes - sum(cold),
    )
    assert readable(store, "s") == DATA[before:]
    for lower in (before, max(0, before - 1), 0):
        assert cut(store, "s", lower) == Truncation(start_offset=before)
    assert store.segment("s") == after
    store.offload()
    store.evict()
    assert (store.segment("s").local.count, readable(store, "s")) == (0, DATA[before:])


def test_many_small_steps_equal_one(store: TestStore) -> None:
    store.append("empty", b"")
    assert cut(store, "empty", 0).bytes == 0
    store.append("s", DATA, seal=True)
    store.offload()
    for offset in range(1, 13):
        cut(store, "s", offset)
        assert readable(store, "s") == DATA[offset:]
    assert_layout(store, "s", local=[], cold=[])


@pytest.mark.parametrize(
    ("length", "before", "local"),
    [(2, 1, [4]), (2, 2, [2]), (6, 2, [4, 4]), (6, 4, [4]), (6, 5, [4]), (6, 6, [2]), (12, 12, [2])],
)
@pytest.mark.parametrize("by", ["a live writer", "the next writer"])
def test_the_segment_grows_on_at_its_length(
    store: TestStore, length: int, before: int, local: list[int], by: str
) -> None:
    """Below, at and inside the active chunk, and at the end, where that chunk goes."""
    writer = store.engine.open_writer("s")
    writer.append(DATA[:length])
    cut(store, "s", before)
    if by == "the next writer":
        store.engine.close_writer(writer)
        writer = store.engine.open_writer("s")
    assert writer.append(b"gh", expected_offset=length) == ByteRange(length, length + 2)
    assert_layout(store, "s", local=local, cold=[])
    writer.append(b"ij")
    assert store.segment("s").writer_epoch == (1 if by == "a live writer" else 2)
    assert readable(store, "s") == (DATA[:length] + b"ghij")[before:]


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
    for passed_s, local, cold in ((0, 1, [8, 4]), (GRACE_MS / 1000 - 1, 1, [8, 4]), (1, 1, [4])):
        store.clock.advance(passed_s)
        store.settle()
        assert len(list(store.files.names())) == local
        assert [found.length_bytes for found in store.cold.list("segments/")] == cold


def test_a_shared_object_stays_as_long_as_a_chunk_needs_it(store: TestStore) -> None:
    """Source a was cut inside its object: the rest of the object is a chunk of t, until that is cut too."""
    store.append("t", b"0123")
    store.append("a", b"abcdefgh", seal=True)
    store.offload()
    store.evict()
    cut(store, "a", 3)
    store.engine.concat("t", "a")
    assert_layout(store, "t", local=[], cold=[4, 5])
    for before, rows in ((8, (1, 1)), (9, (0, 0))):
        cut(store, "t", before)
        with store.metadata.read() as txn:
            assert (txn.count(OBJECTS.name), txn.count(CHECKSUMS.name)) == rows


def test_after_a_failover_the_visible_range_is_the_same(store: TestStore) -> None:
    """Each new writer ends the chunk of the one that crashed; truncation moves only the start."""
    model, start = b"", 0
    for turn in range(6):
        writer = store.engine.open_writer("s")
        writer.append(bytes([65 + turn]) * 3)
        model += bytes([65 + turn]) * 3
        store.reopen()  # a crash: its garbage beyond the committed length is nobody's
        start = turn * 2 + 1
        cut(store, "s", start)
        assert readable(store, "s") == model[start:]
        assert (store.segment("s").start_offset, store.segment("s").length) == (start, len(model))


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
    assert store.offload().objects == 0
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
