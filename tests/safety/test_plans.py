"""What plans and checks make of chunks and checksums: gaps, marks, overlaps and shared blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledgers import ROOMY, new_ledger
from tests.stores import TestStore, open_test_store
from tierfs.checksum import block_crcs, crc32c
from tierfs.fsck.objects import _first_gap
from tierfs.metadata import checksums, tables
from tierfs.metadata.layout import HeldObject
from tierfs.metadata.records import ChunkRecord
from tierfs.reading.fetch.grid import Grid
from tierfs.scan.extents import Copy
from tierfs.scan.fetching import _is_right
from tierfs.tiering.candidates import objects_to_make, offload_actions
from tierfs.types import (
    CRC_BLOCK_BYTES,
    ByteRange,
    ChunkState,
    LocationId,
    ObjectId,
    PayloadEncoding,
    SegmentId,
    Tier,
)

BLOCK = CRC_BLOCK_BYTES


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
    crc = crc32c(data[10:]) if known else None
    grid = Grid(ByteRange(0, 20), checksums.pack(block_crcs(bytes(data))))
    if bad is not None:
        data[bad] ^= 1
    holder = HeldObject(ObjectId(1), Tier.COLD, LocationId(1), "o", 20, "e", PayloadEncoding.RAW)
    right = _is_right(Copy(holder, held, grid, crc), memoryview(data), 0)
    assert right is (bad is None or (known and bad < 10))
