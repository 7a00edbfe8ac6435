"""Resolution against a model that looks at every byte."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tierfs.metadata.layout import Layout, PlacedChunk
from tierfs.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.reading.view import in_object, resolve
from tierfs.types import (
    ByteRange,
    ChunkState,
    DirectoryId,
    Inode,
    LocationId,
    ObjectId,
    ReadPriority,
    SegmentId,
    Tier,
)

LENGTH = 40


@st.composite
def chains(draw: st.DrawFn, tier: Tier) -> tuple[PlacedChunk, ...]:
    cuts = sorted(draw(st.sets(st.integers(0, LENGTH), max_size=8)))
    placed = []
    for number, (start, end) in enumerate(pairwise(cuts)):
        if draw(st.booleans()):
            state = draw(st.sampled_from(list(ChunkState)))
            object_id = ObjectId(1 + number + 100 * tier)
            offset = draw(st.integers(0, 5))
            chunk = ChunkRecord(
                start_offset=start, length=end - start, object_id=object_id, object_offset=offset, state=state
            )
            holder = ObjectRecord(
                id=object_id, tier=tier, location_id=LocationId(1), name="n", etag="e", length=offset + end - start
            )
            placed.append(PlacedChunk(chunk, holder))
    return tuple(placed)


def model(layout: Layout, offset: int, tiers: tuple[Tier, ...]) -> list[tuple[int, int]]:
    """Object and offset in it of every copy of one byte, best first."""
    found: list[tuple[ChunkState, int, int]] = []
    for tier in tiers:
        for placed in layout.chunks(tier):
            chunk = placed.chunk
            if chunk.start_offset <= offset < chunk.end_offset:
                found.append((chunk.state, placed.object.id, offset - chunk.start_offset + chunk.object_offset))
    return [(object_id, at) for _, object_id, at in sorted(found, key=lambda copy: copy[0])]


@given(
    chains(Tier.LOCAL),
    chains(Tier.COLD),
    st.integers(0, LENGTH),
    st.integers(0, LENGTH),
    st.sampled_from(list(ReadPriority)),
)
def test_every_byte_has_its_copies_in_order(
    local: tuple[PlacedChunk, ...], cold: tuple[PlacedChunk, ...], one: int, other: int, priority: ReadPriority
) -> None:
    segment = SegmentRecord(id=SegmentId(1), parent_id=DirectoryId(1), name="s", inode=Inode(2), length=LENGTH)
    layout = Layout(segment, ByteRange(0, LENGTH), local, cold, 1)
    wanted = ByteRange(min(one, other), max(one, other))
    at = wanted.start
    for piece in resolve(layout, wanted, priority.tiers):
        assert piece.range.start == at
        assert piece.range
        for offset in range(piece.range.start, piece.range.end):
            copies = [
                (placed.object.id, in_object(piece.range, placed).start + offset - piece.range.start)
                for placed in piece.candidates
            ]
            assert copies == model(layout, offset, priority.tiers)
        at = piece.range.end
    assert at == wanted.end
