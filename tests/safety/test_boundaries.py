"""Boundaries of records and plans: on the edge, one before it and one behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.safety.refused import refused
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    AttemptId,
    ByteRange,
    ChunkState,
    LocationId,
    ObjectId,
    SegmentId,
    Tier,
)
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata import chain
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, TierState
from tierfs.reading.local import LocalReader
from tierfs.tiering import candidates
from tierfs.tiering.candidates import OffloadAction, PackAction, evictable, offload_actions
from tierfs.tiering.packs import format as packs
from tierfs.tiering.packs.format import PackIndex

LENGTHS = st.integers(1, 3)
SHIFTS = st.integers(-2, 2)


def chunk(start: int, length: int, object_id: int = 1, object_offset: int | None = None) -> ChunkRecord:
    at = start if object_offset is None else object_offset
    return ChunkRecord(start_offset=start, length=length, object_id=ObjectId(object_id), object_offset=at)


@given(before=LENGTHS, new=LENGTHS, after=LENGTHS, left=SHIFTS, right=SHIFTS)
def test_a_chunk_is_linked_only_where_it_overlaps_neither_neighbour(
    before: int, new: int, after: int, left: int, right: int
) -> None:
    previous = chunk(10, before, 1)
    added = chunk(10 + before + left, new, 2)
    following = chunk(added.end_offset + right, after, 3)
    state = TierState(first_chunk=10, last_chunk=following.start_offset, count=2, bytes=before + after)
    with refused(left < 0 or right < 0, DataLoss, "overlap"):
        linked = chain.insert(state, added, previous=previous, following=following)
        assert [record.start_offset for record in linked.put] == [10, added.start_offset]
        assert linked.put[1].next == following.start_offset


@given(first=LENGTHS, second=LENGTHS, at=st.integers(0, 5), shift=SHIFTS, same=st.booleans(), gap=st.integers(0, 1))
def test_chunks_are_one_only_if_their_bytes_follow_each_other_in_one_object(
    first: int, second: int, at: int, shift: int, same: bool, gap: int
) -> None:
    left = chunk(10, first, 1, at)
    right = chunk(10 + first + gap, second, 1 if same else 2, max(0, at + first + shift))
    one = same and not gap and right.object_offset == at + first
    assert chain.continues(left, right) is one
    assert len(chain.joined([left, right])) == (1 if one else 2)


def placed(record: ChunkRecord, *, linked: int, created_ms: int) -> PlacedChunk:
    holder = ObjectRecord(
        id=record.object_id,
        tier=Tier.COLD,
        location_id=LocationId(1),
        name="o",
        length=record.object_offset + record.length,
        linked_sequence=linked,
        created_ms=created_ms,
    )
    return PlacedChunk(record, holder)


@pytest.mark.parametrize("state", list(ChunkState))
@pytest.mark.parametrize("late", [-1, 0, 1])
@pytest.mark.parametrize("unpublished", [-1, 0, 1])
@pytest.mark.parametrize("short", [0, 1])
def test_a_local_chunk_goes_only_if_good_published_and_old_copies_have_every_byte(
    state: ChunkState, late: int, unpublished: int, short: int
) -> None:
    """Of two copies the newer counts, and the worse."""
    local = chunk(8, 4)
    first = placed(chunk(8, 2), linked=1, created_ms=1000)
    rest = placed(replace(chunk(10, 2 - short), state=state), linked=50 + unpublished, created_ms=1000 + late)
    goes = list(evictable([local], [first, rest], published_sequence=50, cold_before_ms=1000))
    may_go = state is ChunkState.GOOD and late <= 0 and unpublished <= 0 and not short
    assert goes == ([local] if may_go else [])


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=8), object_bytes=st.integers(1, 8))
def test_an_object_is_as_large_as_the_limit_at_most_or_one_chunk(lengths: list[int], object_bytes: int) -> None:
    chunks, start = [], 0
    for number, length in enumerate(lengths):
        chunks.append(chunk(start, length, number + 1, 0))
        start += length
    actions = list(offload_actions(SegmentId(1), chunks, [], object_bytes))
    assert [part for action in actions for part in action.chunks] == chunks
    for action, following in zip(actions, [*actions[1:], None], strict=True):
        assert len(action.chunks) == 1 or action.range.length_bytes <= object_bytes
        if following is not None:
            assert action.range.length_bytes + following.chunks[0].length > object_bytes


def in_object(record: ChunkRecord, object_bytes: int) -> OffloadAction:
    return OffloadAction(SegmentId(record.object_id), (record,), object_bytes)


@given(lengths=st.lists(LENGTHS, min_size=1, max_size=12), object_bytes=st.integers(3, 8), most=st.integers(1, 4))
def test_a_pack_has_at_most_its_bytes_and_its_entries(lengths: list[int], object_bytes: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "MAX_PACK_ENTRIES", most)
        patch.setattr(candidates, "is_small", lambda *_: True)
        actions = [in_object(chunk(0, length, number + 1), object_bytes) for number, length in enumerate(lengths)]
        groups = list(candidates.packed(actions, below_bytes=0))
    parts = [group.actions if isinstance(group, PackAction) else (group,) for group in groups]
    assert [action for part in parts for action in part] == actions
    sizes = [sum(action.range.length_bytes for action in part) for part in parts]
    assert all(size <= object_bytes and len(part) <= most for size, part in zip(sizes, parts, strict=True))
    for size, part, following in zip(sizes, parts, parts[1:], strict=False):
        assert len(part) == most or size + following[0].range.length_bytes > object_bytes


@given(at=st.integers(0, packs.TRAILER_BYTES - 1), bit=st.integers(0, 7))
def test_a_trailer_with_a_flipped_bit_is_refused(at: int, bit: int) -> None:
    data = packs.index_and_trailer(PackIndex("0" * 32, 1, AttemptId("1" * 32), 0, ()), 10)
    trailer = bytearray(data[-packs.TRAILER_BYTES :])
    trailer[at] ^= 1 << bit
    with pytest.raises(DataLoss):
        packs.parse_trailer(trailer, 10 + len(data), "p")


@given(start=st.integers(0, 3 * CRC_BLOCK_BYTES), length=st.integers(1, 3 * CRC_BLOCK_BYTES), shift=SHIFTS)
def test_only_whole_blocks_count_as_checked(start: int, length: int, shift: int) -> None:
    start = max(0, start - start % CRC_BLOCK_BYTES + shift)
    end = start + length - length % CRC_BLOCK_BYTES + CRC_BLOCK_BYTES + shift
    reader = LocalReader(cast(ChunkFiles, None), 1, 1, NullMetrics())
    reader.mark_checked(ObjectId(1), ByteRange(start, end))
    for block in range(end // CRC_BLOCK_BYTES + 2):
        whole = ByteRange(block * CRC_BLOCK_BYTES, (block + 1) * CRC_BLOCK_BYTES)
        inside = start <= whole.start and whole.end <= end
        assert reader.is_checked(ObjectId(1), whole) is inside
        assert reader.is_checked(ObjectId(1), ByteRange(whole.end - 1, whole.end)) is inside
    first, last = -(-start // CRC_BLOCK_BYTES) * CRC_BLOCK_BYTES, end // CRC_BLOCK_BYTES * CRC_BLOCK_BYTES
    if first < last:
        assert reader.is_checked(ObjectId(1), ByteRange(first, last))
        assert not reader.is_checked(ObjectId(1), ByteRange(first, last + 1))
