"""The bytes of a warm-up: by read priority, cut at whole blocks, without lost ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.base.options.precedence import Effective, PolicyOrigin, SetBy
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ChunkState, ObjectId, ReadPriority, Tier
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.reading.cache.fill_plan import FillPlan, Target, held_bytes, plan

BLOCK = CRC_BLOCK_BYTES
EVERYTHING = 100 * BLOCK

CALL = PolicyOrigin(SetBy.CALL)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    """`s`: bytes 0 to 8 and 8 to 16 cold in an object each, 8 to 16 local too, 16 to 20 local only."""
    with open_test_store(tmp_path) as opened:
        opened.append("s", b"abcdefgh")
        opened.offload()
        opened.evict()
        opened.append("s", b"ijklmnop")
        opened.offload()
        opened.append("s", b"qrst")
        yield opened


def planned(store: TestStore, priority: ReadPriority, room_bytes: int = EVERYTHING) -> FillPlan:
    return plan(store.metadata, [Target("s", store.segment("s").id, Effective(priority, CALL))], room_bytes)


@pytest.mark.parametrize(
    ("priority", "wanted", "local_bytes"),
    [
        (ReadPriority.OFFLOADED_FIRST, [(0, 8), (8, 16)], 4),
        (ReadPriority.OFFLOADED_ONLY, [(0, 8), (8, 16)], 4),
        (ReadPriority.LOCAL_FIRST, [(0, 8)], 12),
        (ReadPriority.LOCAL_ONLY, [], 20),
    ],
)
def test_the_priority_decides(
    store: TestStore, priority: ReadPriority, wanted: list[tuple[int, int]], local_bytes: int
) -> None:
    found = planned(store, priority)
    assert [(one.start, one.end) for one in found.wanted] == wanted
    assert (found.local_bytes, found.lost_bytes, found.left_out_bytes) == (local_bytes, 0, 0)


def test_a_cut_leaves_out_whole_blocks_at_the_end(store: TestStore) -> None:
    found = planned(store, ReadPriority.OFFLOADED_FIRST, room_bytes=2 * BLOCK - 1)
    assert [(one.start, one.end) for one in found.wanted] == [(0, 8)]
    assert (found.cold_bytes, found.left_out_bytes) == (16, 8)
    assert planned(store, ReadPriority.OFFLOADED_FIRST, room_bytes=BLOCK - 1).wanted == []


def test_a_block_that_two_chunks_share_counts_once(tmp_path: Path) -> None:
    policy = {"chunk_bytes": str(3 * BLOCK // 2), "object_bytes": str(12 * BLOCK)}
    with open_test_store(tmp_path, policy=policy) as store:
        store.append("s", *[bytes(BLOCK // 2)] * 12)
        store.offload()
        found = planned(store, ReadPriority.OFFLOADED_FIRST, room_bytes=6 * BLOCK)
        assert len(store.layout("s").local) > len(found.wanted) == 1
        assert found.wanted[0].held == ByteRange(0, 6 * BLOCK)
        cut = planned(store, ReadPriority.OFFLOADED_FIRST, room_bytes=4 * BLOCK)
        assert cut.wanted[0].held == ByteRange(0, 4 * BLOCK)
        assert cut.left_out_bytes == 2 * BLOCK
        half = replace(found.wanted[0], held=ByteRange(BLOCK // 2, 6 * BLOCK))
        assert held_bytes([half], lambda _, start: start in (0, 2 * BLOCK)) == BLOCK // 2 + BLOCK


def test_lost_bytes_are_counted_and_not_wanted(store: TestStore) -> None:
    segment_id = store.segment("s").id
    with store.metadata.write() as txn:
        first = next(chains.chunks(txn, segment_id, Tier.COLD))
        txn.put(
            CHUNKS, tables.chunk(segment_id, Tier.COLD, 0), replace(first, state=ChunkState.LOST, object_id=ObjectId(0))
        )
    found = planned(store, ReadPriority.OFFLOADED_FIRST)
    assert [(one.start, one.end) for one in found.wanted] == [(8, 16)]
    assert found.lost_bytes == 8


def test_a_segment_deleted_meanwhile_is_left_out(store: TestStore) -> None:
    target = Target("s", store.segment("s").id, Effective(ReadPriority.OFFLOADED_FIRST, CALL))
    store.engine.delete("s", recursive=False, cold_due_ms=0)
    assert plan(store.metadata, [target], EVERYTHING) == FillPlan()
