"""Offload and evict: what becomes cold, what may go, and what every crash and fault leaves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.stores import LOCATION, TestStore, assert_layout, quiet
from tests.upkeep.check.looking import flip_local
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.words.errors import Conflict, DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES, ROOT_DIRECTORY, AttemptId, ByteRange, ChunkState, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles, file_name
from tierfs.engine.metadata import chains, policies
from tierfs.engine.metadata.records import GarbageRecord
from tierfs.engine.metadata.tables import INTENTS
from tierfs.tiering import evict, objects
from tierfs.tiering.candidates import objects_to_make
from tierfs.tiering.objects import ChunksMoved
from tierfs.tiering.offload_source import ChunkSource, SourceChunk
from tierfs.tiering.policy import EvictAction
from tierfs.upkeep.holder.lock import hold

GARBAGE_ROWS = 250


def cold_names(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("segments/")]


@pytest.mark.parametrize(
    ("parts", "local", "cold"),
    [
        ([0], [], []),
        ([1], [1], [1]),
        ([4], [4], [4]),
        ([7], [4, 3], [7]),
        ([8], [4, 4], [8]),
        ([9], [4, 4, 1], [8, 1]),
        ([15], [4, 4, 4, 3], [8, 7]),
        ([8, 3, 5], [4, 4, 3, 4, 1], [8, 3, 5]),
        ([3, 3, 9], [3, 3, 4, 4, 1], [3, 3, 8, 1]),
    ],
)
def test_offload_rolls_joins_up_to_the_object_limit_and_goes_on_behind_what_is_cold(
    store: TestStore, parts: list[int], local: list[int], cold: list[int]
) -> None:
    """An offload after each part, again when nothing is left, and an evict of all of it but what came later."""
    data = b""
    for length in parts:
        part = b"abcdefghijklmno"[:length]
        before = len(store.layout("s").cold) if data else 0
        store.append("s", part)
        report = store.offload()
        data += part
        assert (report.objects, report.bytes) == (len(store.layout("s").cold) - before, length)
    assert_layout(store, "s", local=local, cold=cold)
    assert store.read("s", Tier.COLD) == data
    report = store.offload("s")
    assert (report.objects, report.bytes, report.already_cold_bytes) == (0, 0, len(data))
    assert len(cold_names(store)) == len(cold)
    store.append("s", b"ij")
    dry = store.cold_work().evict("", force=False, dry_run=True, report=quiet)
    assert_layout(store, "s", local=[*local, 2], cold=cold)
    report = store.evict()
    assert (report.chunks, report.bytes, report.kept_bytes) == (len(local), len(data), 2)
    assert (dry.chunks, dry.bytes, dry.kept_bytes) == (report.chunks, report.bytes, report.kept_bytes)
    assert_layout(store, "s", local=[2], cold=cold)
    assert len(list(store.files.names())) == 1
    assert store.read("s") == data + b"ij"


def test_objects_describe_themselves(store: TestStore) -> None:
    store.append("logs/ü", b"abc")
    store.offload()
    (name,) = cold_names(store)
    metadata = store.cold.stat(name).metadata
    assert name.startswith("segments/logs/ü/")
    assert (metadata["start"], metadata["end"], metadata["epoch"]) == ("0", "3", "1")
    assert metadata["store"] == store.metadata.store_id
    assert all(value.isascii() for value in metadata.values())


def test_evict_keeps_what_the_journal_does_not_name(store: TestStore) -> None:
    store.append("s", b"abcd")
    store.offload()
    with store.metadata.write() as txn:
        journal = txn.store.journal
        txn.update_store(journal=type(journal)(next_slot=journal.next_slot, published_sequence=0))
    ((_, kept),) = evict.evict_some(store.metadata, [EvictAction(store.segment("s").id, store.clock.now_ms())])
    assert kept == evict.Evicted()


def test_evict_keeps_local_only_segments_unless_forced(store: TestStore) -> None:
    store.append("s", b"abcd")
    store.offload()
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"read_priority": "local-only"})
    assert store.evict().reasons == {"read priority is local-only (--force overrides)": 4}
    assert store.evict(force=True).bytes == 4


def test_a_damaged_source_is_never_made_cold_and_becomes_suspect(store: TestStore) -> None:
    store.append("s", b"abcd", seal=True)
    flip_local(store, "s", 1)
    with pytest.raises(DataLoss, match="does not match its checksums"):
        store.offload()
    assert_layout(store, "s", local=[4], cold=[])
    assert [placed.chunk.state for placed in store.layout("s").local] == [ChunkState.SUSPECT]
    store.clock.advance(7200)
    store.settle()
    assert cold_names(store) == []


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_short_source_is_data_loss(store: TestStore, kept: int) -> None:
    store.append("s", b"abcd", seal=True)
    os.truncate(store.files.root / store.layout("s").local[0].object.name, kept)
    with pytest.raises(DataLoss, match=f"ends at {kept}"):
        store.offload()


def test_a_second_holder_is_refused_by_name(store: TestStore) -> None:
    store.append("s", b"abcd")
    with hold(store.paths.holder, store.clock), pytest.raises(Conflict, match=f"process {os.getpid()}"):
        store.offload()


@pytest.mark.parametrize("part", [b"de", b"defghij"])
@pytest.mark.parametrize("open_files", [0, 256])
def test_a_live_writer_goes_on_when_its_chunk_was_evicted(store: TestStore, part: bytes, open_files: int) -> None:
    store.engine._tools.descriptors.limit = open_files  # with 0 the writer has to open its file again
    writer = store.engine.open_writer("s")
    writer.append(b"abc")
    store.offload("s")
    store.evict("s")
    assert list(store.files.names()) == []
    writer.append(part)
    assert store.read("s") == b"abc" + part


def test_an_action_that_is_done_already_is_not_done_again(store: TestStore) -> None:
    store.append("s", b"abcdefgh", seal=True)
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    offload = store.cold_work().offloader
    assert offload.run(action) == 8
    with pytest.raises(ChunksMoved, match="cold meanwhile"):
        offload.run(action)
    assert len(cold_names(store)) == 1
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0


def test_an_upload_that_was_taken_for_a_dead_ones_is_not_linked(store: TestStore, storage: ScriptedStorage) -> None:
    store.append("s", b"abcdefgh", seal=True)
    # What the next holder does first.
    storage.do("put", lambda: objects.abandon_all(store.metadata), when=When.AFTER, of="segments/")
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    with pytest.raises(ChunksMoved, match="an exited process"):
        store.cold_work().offloader.run(action)
    assert_layout(store, "s", local=[4, 4], cold=[])
    store.cold_work().collect()
    assert cold_names(store) == []
    store.offload()
    assert store.read("s", Tier.COLD) == b"abcdefgh"


def test_deletions_are_noted_many_in_one_commit(store: TestStore) -> None:
    with store.metadata.write() as txn:
        for number in range(GARBAGE_ROWS):
            row = GarbageRecord(
                due_ms=txn.now_ms,
                tier=Tier.COLD,
                location_id=LOCATION,
                name=f"segments/x/1/chunk-{number:020d}-{number + 1:020d}-e1-aa",
            )
            chains.add_garbage(txn, row)
    before = store.metadata.last_transaction_id()
    assert store.cold_work().collect().deleted == GARBAGE_ROWS
    assert store.metadata.last_transaction_id() - before <= GARBAGE_ROWS // 50


BLOCK = CRC_BLOCK_BYTES

STEP = 50_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ChunkFiles:
    return ChunkFiles.create(tmp_path_factory.mktemp("source") / "chunks")


def content(number: int, length: int) -> bytes:
    return bytes((number * 37 + at * 11) % 251 for at in range(1009)) * (length // 1009 + 1)


def chunk_file(files: ChunkFiles, number: int, length: int, held: ByteRange) -> tuple[SourceChunk, bytes]:
    data = content(number, length)[:length]
    name = file_name(SegmentId(number + 1), length, AttemptId("a" * 32))
    (files.root / name).write_bytes(data)
    return SourceChunk(name, length, tuple(block_crcs(data)), held), data[held.start : held.end]


def read_all(source: ChunkSource, step: int) -> bytes:
    return b"".join(source.read(at, min(step, source.length_bytes - at)) for at in range(0, source.length_bytes, step))


EDGES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 77]


@st.composite
def parts(draw: st.DrawFn) -> tuple[int, int, int]:
    length = draw(st.sampled_from([1, 1000, BLOCK, BLOCK + 5, 3 * BLOCK, 3 * BLOCK + 999]))
    start = draw(st.sampled_from([edge for edge in EDGES if edge < length]))
    end = draw(st.sampled_from([length, start + 1, *(edge for edge in EDGES if start < edge <= length)]))
    return length, start, end


@settings(max_examples=60, deadline=None)
@given(st.lists(parts(), min_size=1, max_size=4), st.sampled_from([STEP, BLOCK, 1 << 20]))
def test_any_parts_become_one_object_with_its_own_grid(
    files: ChunkFiles, wanted: Sequence[tuple[int, int, int]], step: int
) -> None:
    made = [
        chunk_file(files, index, length, ByteRange(start, end)) for index, (length, start, end) in enumerate(wanted)
    ]
    expected = b"".join(data for _, data in made)
    with closing(ChunkSource(files, [one for one, _ in made])) as source:
        assert source.crc32c() == crc32c(expected)
        assert read_all(source, step) == expected
        assert source.verified_grid().grid().tolist() == block_crcs(expected)


@pytest.mark.parametrize("damaged", [0, BLOCK - 5, BLOCK, 2 * BLOCK, 2 * BLOCK + 900])
def test_damage_anywhere_in_a_touched_block_is_found(files: ChunkFiles, damaged: int) -> None:
    """Also where the block's rest belongs to nobody: the chunk's own bytes could not be checked otherwise."""
    part, _ = chunk_file(files, 99, 2 * BLOCK + 1000, ByteRange(BLOCK - 10, 2 * BLOCK + 10))
    path = files.root / part.name
    data = bytearray(path.read_bytes())
    data[damaged] ^= 1
    path.write_bytes(data)
    with closing(ChunkSource(files, [part])) as source:
        read_all(source, STEP)
        with pytest.raises(DataLoss, match="does not match its checksums"):
            source.verified_grid()


def test_what_was_not_read_is_not_verified(files: ChunkFiles) -> None:
    part, _ = chunk_file(files, 98, 2 * BLOCK, ByteRange(10, 2 * BLOCK))
    with closing(ChunkSource(files, [part])) as source:
        source.read(0, BLOCK)
        with pytest.raises(DataLoss):
            source.verified_grid()


def test_a_damaged_edge_is_found_before_anything_is_uploaded(files: ChunkFiles) -> None:
    part, _ = chunk_file(files, 97, 1000, ByteRange(10, 1000))
    (files.root / part.name).write_bytes(b"x" * 1000)
    with closing(ChunkSource(files, [part])) as source, pytest.raises(DataLoss):
        source.crc32c()


@pytest.mark.parametrize("step", [1, 7, 99, 100, 101, 199, 200, 201, 300])
@pytest.mark.parametrize("tail", [0, 1, 99, 100, 101, 250])
def test_reads_that_begin_or_end_in_the_tail_hold_its_bytes(files: ChunkFiles, step: int, tail: int) -> None:
    """The tail of a pack is its index: a read of an upload may begin in it, after the last file."""
    made = [chunk_file(files, number, 100, ByteRange(0, 100)) for number in range(90, 92)]
    index = content(5, tail)[:tail]
    expected = b"".join(data for _, data in made) + index
    with closing(ChunkSource(files, [source_chunk for source_chunk, _ in made])) as source:
        source.add_tail(index)
        assert read_all(source, step) == expected
        assert source.crc32c() == crc32c(expected)
        assert source.verified_grid().grid().tolist() == block_crcs(expected)
