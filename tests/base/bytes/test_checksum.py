"""CRC32C grids: however an object's bytes are cut, its blocks and the whole get the CRCs of a naive computation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.bytes.checksum import GridBuilder, Stretch, block_crcs, crc32c, cut_at_lines, grid_of, joined
from tierfs.base.words.types import CRC_BLOCK_BYTES as BLOCK

CONTENT = bytes((at * 11 + at // 251) % 253 for at in range(3 * BLOCK + 4321))

EDGES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK, len(CONTENT)]

places = st.sampled_from(EDGES) | st.integers(0, len(CONTENT))


def naive(data: bytes) -> tuple[int, list[int]]:
    """Return the CRC32C of the whole and of each block, each by itself."""
    return crc32c(data), [crc32c(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    lines = sorted({0, len(data), *(one for one in at if one < len(data))})
    return [data[start:end] for start, end in pairwise(lines)]


@given(places, st.lists(places, max_size=6))
def test_bytes_in_any_steps_make_the_same_grid(end: int, lines: list[int]) -> None:
    data = CONTENT[:end]
    found = grid_of(cut(data, lines))
    assert (found.crc32c, list(found.grid())) == naive(data)
    assert found.length_bytes == end
    assert list(found.grid()) == block_crcs(data)


@given(places, st.lists(places, max_size=6), st.lists(st.integers(0, 3 * BLOCK), max_size=3))
def test_cuts_at_the_lines_of_all_grids_combine_to_each(end: int, lines: list[int], shifts: list[int]) -> None:
    data = CONTENT[:end]
    builder, offset, others = GridBuilder(), 0, [GridBuilder(shift, 0, 0) for shift in shifts]
    for step in cut(data, lines):
        place = 0
        for at, stretch in cut_at_lines(memoryview(step), offset, *(shift + offset for shift in shifts)):
            assert at == place
            assert stretch == Stretch.of(step[at : at + stretch.length_bytes])
            for one in (builder, *others):
                one.add(stretch)  # crosses no line of any of them
            place += stretch.length_bytes
        offset += len(step)
    assert (builder.crc32c, list(builder.grid())) == naive(data)
    for shift, one in zip(shifts, others, strict=True):
        first = BLOCK - shift % BLOCK
        assert list(one.grid())[1:] == naive(data[first:])[1]


@given(places, st.lists(places, max_size=6))
def test_the_blocks_that_an_append_touches_are_taken(start: int, lines: list[int]) -> None:
    """As an appender does that resumes: the CRCs so far, then only the blocks that change."""
    whole, blocks = naive(CONTENT[:start])
    partial = start % BLOCK
    builder = GridBuilder(start, blocks[-1] if partial else 0, whole)
    for step in cut(CONTENT[start:], [line - start for line in lines if line > start]):
        before = builder.length_bytes
        builder.feed(step)
        first, crcs = builder.take()
        assert first == before // BLOCK
        blocks[first:] = crcs
        assert (builder.crc32c, blocks) == naive(CONTENT[: builder.length_bytes])


@given(st.lists(places, max_size=6))
def test_stretches_of_any_cuts_join_to_the_whole(lines: list[int]) -> None:
    assert joined(Stretch.of(step) for step in cut(CONTENT, lines)) == Stretch(len(CONTENT), crc32c(CONTENT))
    assert joined([]) == Stretch()
