"""ChunkSource: parts of chunk files, on and off the grid, as one verified object."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tierfs.checksum import block_crcs, crc32c
from tierfs.chunkstore.local_files import ChunkFiles, file_name
from tierfs.errors import DataLoss
from tierfs.tiering.offload_source import ChunkSource, SourceChunk
from tierfs.types import CRC_BLOCK_BYTES, AttemptId, ByteRange, SegmentId

BLOCK = CRC_BLOCK_BYTES
STEP = 50_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ChunkFiles:
    return ChunkFiles.create(tmp_path_factory.mktemp("source") / "chunks")


def content(number: int, length: int) -> bytes:
    return bytes((number * 37 + at * 11) % 251 for at in range(1009)) * (length // 1009 + 1)


def chunk(files: ChunkFiles, number: int, length: int, held: ByteRange) -> tuple[SourceChunk, bytes]:
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
    made = [chunk(files, index, length, ByteRange(start, end)) for index, (length, start, end) in enumerate(wanted)]
    expected = b"".join(data for _, data in made)
    with closing(ChunkSource(files, [one for one, _ in made])) as source:
        assert source.crc32c() == crc32c(expected)
        assert read_all(source, step) == expected
        assert source.verified_grid().grid().tolist() == block_crcs(expected)


@pytest.mark.parametrize("damaged", [0, BLOCK - 5, BLOCK, 2 * BLOCK, 2 * BLOCK + 900])
def test_damage_anywhere_in_a_touched_block_is_found(files: ChunkFiles, damaged: int) -> None:
    """Also where the block's rest belongs to nobody: the chunk's own bytes could not be checked otherwise."""
    part, _ = chunk(files, 99, 2 * BLOCK + 1000, ByteRange(BLOCK - 10, 2 * BLOCK + 10))
    path = files.root / part.name
    data = bytearray(path.read_bytes())
    data[damaged] ^= 1
    path.write_bytes(data)
    with closing(ChunkSource(files, [part])) as source:
        read_all(source, STEP)
        with pytest.raises(DataLoss, match="does not match its checksums"):
            source.verified_grid()


def test_what_was_not_read_is_not_verified(files: ChunkFiles) -> None:
    part, _ = chunk(files, 98, 2 * BLOCK, ByteRange(10, 2 * BLOCK))
    with closing(ChunkSource(files, [part])) as source:
        source.read(0, BLOCK)
        with pytest.raises(DataLoss):
            source.verified_grid()


def test_a_damaged_edge_is_found_before_anything_is_uploaded(files: ChunkFiles) -> None:
    part, _ = chunk(files, 97, 1000, ByteRange(10, 1000))
    (files.root / part.name).write_bytes(b"x" * 1000)
    with closing(ChunkSource(files, [part])) as source, pytest.raises(DataLoss):
        source.crc32c()


@pytest.mark.parametrize("step", [1, 7, 99, 100, 101, 199, 200, 201, 300])
@pytest.mark.parametrize("tail", [0, 1, 99, 100, 101, 250])
def test_reads_that_begin_or_end_in_the_tail_hold_its_bytes(files: ChunkFiles, step: int, tail: int) -> None:
    """The tail of a pack is its index: a read of an upload may begin in it, after the last file."""
    made = [chunk(files, number, 100, ByteRange(0, 100)) for number in range(90, 92)]
    index = content(5, tail)[:tail]
    expected = b"".join(data for _, data in made) + index
    with closing(ChunkSource(files, [source_chunk for source_chunk, _ in made])) as source:
        source.add_tail(index)
        assert read_all(source, step) == expected
        assert source.crc32c() == crc32c(expected)
        assert source.verified_grid().grid().tolist() == block_crcs(expected)
