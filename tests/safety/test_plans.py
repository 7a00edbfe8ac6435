"""What plans and checks make of chunks and checksums: gaps, marks, overlaps and shared blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledgers import ROOMY, new_ledger
from tests.stores import TestStore, open_test_store
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    ByteRange,
    ChunkState,
    LocationId,
    ObjectId,
    Payer,
    PayloadEncoding,
    SegmentId,
    Tier,
)
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.placements import HeldObject
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord
from tierfs.pipeline.reader.extents import Copy, Extent
from tierfs.reading.cold_path import ColdPath
from tierfs.reading.fetch.buffers import BufferPool
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.fetch.span_cache import SpanCache
from tierfs.reading.local import LocalPath, LocalReader
from tierfs.reading.verified import OwnSum
from tierfs.tiering.candidates import objects_to_make, offload_actions
from tierfs.tiering.offload import source_chunk
from tierfs.tiering.offload_source import ChunkSource, DamagedChunk
from tierfs.upkeep.check.checksum_runs import _first_gap

BLOCK = CRC_BLOCK_BYTES

ZERO_CRC = b"\xab\x9b\xe0\x9b"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=ROOMY) as opened:
        yield opened


chunks = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 1), st.sampled_from([ChunkState.GOOD, ChunkState.SUSPECT])), max_size=8
)


@given(chunks, st.integers(3, 9))
def test_an_object_is_of_neighbours_that_are_good(rows: list[tuple[int, int, ChunkState]], object_bytes: int) -> None:
    at, local = 0, []
    for number, (length, gap, state) in enumerate(rows):
        at += gap
        local.append(ChunkRecord(start_offset=at, length=length, object_id=ObjectId(number + 1), state=state))
        at += length
    actions = list(offload_actions(SegmentId(1), local, [], object_bytes))
    moved = [chunk for action in actions for chunk in action.chunks]
    assert moved == [chunk for chunk in local if chunk.state is ChunkState.GOOD]
    for action in actions:
        assert all(one.end_offset == other.start_offset for one, other in pairwise(action.chunks))
        assert action.range.length_bytes == sum(chunk.length for chunk in action.chunks)


@pytest.mark.parametrize("close", [False, True])
def test_a_ledger_becomes_cold_once_it_is_closed(store: TestStore, close: bool) -> None:
    name = new_ledger(store, [b"entry"], close=close)
    with store.metadata.read() as txn:
        assert len(list(objects_to_make(txn, store.segment(name)))) == close


@pytest.mark.parametrize(
    ("runs", "length", "gap"),
    [
        ([(0, 1)], BLOCK, None),
        ([(0, 1)], BLOCK + 1, BLOCK),
        ([(0, 2)], BLOCK + 1, None),
        ([(0, 2)], BLOCK, BLOCK),  # a checksum of nothing
        ([(0, 1), (BLOCK, 1)], 2 * BLOCK, None),
        ([(0, 2), (BLOCK + 1, 1)], 2 * BLOCK, None),  # a short block before it
        ([(0, 2), (BLOCK, 1)], 2 * BLOCK, 2 * BLOCK),
        ([(0, 1), (BLOCK + 1, 1)], 2 * BLOCK, BLOCK),
        ([(1, 1)], BLOCK, 0),
        ([], 1, 0),
    ],
)
def test_every_byte_has_one_checksum(runs: list[tuple[int, int]], length: int, gap: int | None) -> None:
    rows: list[tuple[bytes, Any]] = [
        (tables.pair(1, start), SimpleNamespace(start=start, crcs=bytes(4 * count))) for start, count in runs
    ]
    assert _first_gap(iter(rows), length) == gap


@pytest.mark.parametrize("bad", [None, 5, 15])
@pytest.mark.parametrize("known", [False, True])
def test_a_part_of_a_shared_block_is_right_by_its_own_checksum_alone(bad: int | None, known: bool) -> None:
    data, held = bytearray(range(20)), ByteRange(10, 20)
    own = OwnSum(held, crc32c(data[10:])) if known else None
    grid = Grid(ByteRange(0, 20), checksums.pack(block_crcs(bytes(data))))
    if bad is not None:
        data[bad] ^= 1
    holder = HeldObject(ObjectId(1), Tier.COLD, LocationId(1), "o", 20, "e", PayloadEncoding.RAW)
    right = Copy(holder, held, grid, own).is_right(memoryview(data), 0)
    assert right is (bad is None or (known and bad < 10))


@given(start=st.integers(0, 40), length=st.integers(1, 40), at=st.integers(0, 3))
def test_a_part_of_an_extent_keeps_the_checksums_of_all_its_blocks(start: int, length: int, at: int) -> None:
    """In units of a tenth of a block, in an object of five and a half."""
    unit, whole = BLOCK // 10, 5 * BLOCK + BLOCK // 2
    crcs = checksums.pack(range(6))
    holder = HeldObject(ObjectId(1), Tier.COLD, LocationId(1), "o", whole, "e", PayloadEncoding.RAW)
    held = ByteRange(at, whole)
    extent = Extent(ByteRange(1000 + at, 1000 + whole), (Copy(holder, held, Grid(ByteRange(0, whole), crcs)),))
    wanted = ByteRange(1000 + at + start * unit, min(1000 + whole, 1000 + at + (start + length) * unit))
    (copy,) = extent.clipped(wanted).copies
    assert copy.range == ByteRange(wanted.start - 1000, wanted.end - 1000)
    first, end = copy.range.start // BLOCK, -(-copy.range.end // BLOCK)
    assert copy.grid.range == ByteRange(first * BLOCK, min(end * BLOCK, whole))
    assert copy.grid.crcs == checksums.pack(range(first, end))


@pytest.mark.parametrize("growing", [False, True])
def test_a_chunk_that_grows_is_not_checked_by_an_old_checksum(store: TestStore, growing: bool) -> None:
    store.append("s", b"abcd")
    reader = LocalReader(store.files, 1, 1, NullMetrics())
    reader._page_cache = cast(Any, SimpleNamespace(tells=True, read=lambda fd, view, at: os.preadv(fd, [view], at)))
    (placed,) = store.layout("s").local
    data = LocalPath(store.metadata, reader).read_now(placed, ByteRange(0, 4), growing=growing)
    assert (data is None) is growing
    reader.close()


def test_spans_of_an_object_share_no_byte() -> None:
    holder = ObjectRecord(
        id=ObjectId(1), tier=Tier.COLD, location_id=LocationId(1), name="o", length=8 * BLOCK, etag="e"
    )
    path = ColdPath.__new__(ColdPath)
    path.spans = SpanCache(BufferPool(16 * BLOCK))
    grid = checksums.pack([0] * 8)
    path.checksums = cast(Any, SimpleNamespace(grid=lambda _, wanted, length: Grid(wanted, grid)))
    path.fetcher = cast(Any, SimpleNamespace(submit=lambda span, priority, payer: None, gate=None))
    placed = PlacedChunk(ChunkRecord(start_offset=0, length=8 * BLOCK, object_id=holder.id), holder)
    ranges, payer = ((2, 4), (0, 3), (4, 8)), Payer(0, 0)
    made = [path.ask(placed, ByteRange(start * BLOCK, end * BLOCK), 0, payer) for start, end in ranges]
    assert [(span.start // BLOCK, span.end // BLOCK) for span in made if span is not None] == [(2, 4), (0, 2), (4, 8)]


def test_bytes_that_were_not_sent_are_missed_whatever_their_checksum(store: TestStore) -> None:
    data = ZERO_CRC
    assert crc32c(data) == 0, "as that of no bytes"
    store.append("s", data, seal=True)
    (placed,) = store.layout("s").local
    with store.metadata.read() as txn:
        chunk = source_chunk(txn, placed.chunk, placed.object)
    with closing(ChunkSource(store.files, [chunk])) as source:
        with pytest.raises(DamagedChunk):
            source.verified_grid()
        source.read(0, 4)
        assert list(source.verified_grid().grid()) == [0]
