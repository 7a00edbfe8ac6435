"""Damaged and forged frames and seek tables by a seed: bytes or one typed error, in bounded memory.

`TIERFS_TEST_MUTATIONS` multiplies the number of mutations.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator

import pytest

from tests.doubles.mutations import mutations, times
from tests.engine.frames.objects import LEVEL, compressed_object, text
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.frames.seek_table import (
    MAX_FRAMES,
    FrameSize,
    Section,
    object_frames,
    parse_tail,
    read_sections,
    seek_table,
)
from tierfs.engine.frames.zstd import compressed, decompress_into

PLAIN = {
    "one byte": b"a",
    "one byte again and again": bytes(CRC_BLOCK_BYTES),
    "not packed": random.Random(1).randbytes(300),
    "text": text(2000),
    "block": text(CRC_BLOCK_BYTES),
}
MOST_KIB = 64 * 1024
"""By which the memory of this process may grow."""


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


@pytest.mark.parametrize("name", PLAIN)
def test_damaged_frames_are_refused_or_found_by_the_checksum_of_the_reader(name: str) -> None:
    plain = PLAIN[name]
    two = compressed(plain, LEVEL) + compressed(plain[::-1], LEVEL)
    expected = plain + plain[::-1]
    into = bytearray(len(expected) + 1)
    view = memoryview(into)[: len(expected)]
    for damaged in mutations(two, 1, 200 * times()):
        try:
            decompress_into(memoryview(damaged), view)
        except DataLoss:
            continue
        assert view == expected or crc32c(view) != crc32c(expected)
    assert into[-1] == 0, "a byte after the end of the buffer was written"


def test_a_bomb_takes_no_memory() -> None:
    """A few KiB that say, and have, a GiB: blocks of one repeated byte."""
    block = (1 << 1 | CRC_BLOCK_BYTES << 3).to_bytes(3, "little") + b"\0"
    last = (1 | 1 << 1 | CRC_BLOCK_BYTES << 3).to_bytes(3, "little") + b"\0"
    blocks = block * ((1 << 30) // CRC_BLOCK_BYTES - 1) + last
    for size in (1 << 30, CRC_BLOCK_BYTES):
        bomb = b"\x28\xb5\x2f\xfd\xa0" + size.to_bytes(4, "little") + blocks
        with pytest.raises(DataLoss):
            decompress_into(memoryview(bomb), memoryview(bytearray(CRC_BLOCK_BYTES)))


def test_damaged_tables_are_refused_or_describe_what_is_there() -> None:
    stored = compressed_object(text(5000), 1000)
    frames = list(object_frames(read_sections(lambda start, end: stored[start:end], len(stored), 1000)))
    table = seek_table(frames)
    for damaged in mutations(table, 2, 1000 * times()):
        end = len(stored) - len(table) + len(damaged)
        try:
            section = parse_tail(damaged, end)
        except DataLoss:
            continue
        if isinstance(section, Section):
            assert section.end_offset == end
            assert section.table_offset == section.start_offset + sum(size.stored_bytes for size in section.frames())
            assert 0 <= section.start_offset <= section.table_offset < end
        else:
            assert len(damaged) < section <= end


def test_damaged_objects_are_walked_to_their_start_or_refused() -> None:
    one = compressed_object(text(3000), 1000)
    for damaged in mutations(one + one + one, 3, 300 * times()):
        try:
            sections = read_sections(lambda start, end, damaged=damaged: damaged[start:end], len(damaged), 64)
        except DataLoss:
            continue
        last = sections[-1]
        frames = [*object_frames(sections), FrameSize(last.end_offset - last.table_offset, 0)]
        assert sum(size.stored_bytes for size in frames) == len(damaged)


@pytest.mark.parametrize("count", [MAX_FRAMES + 1, 0xFFFFFFFF])
def test_a_table_that_says_it_is_huge_is_not_asked_for(count: int) -> None:
    footer = count.to_bytes(4, "little") + bytes.fromhex("00 b1ea928f")
    with pytest.raises(DataLoss, match=f"it has {count} frames"):
        parse_tail(footer, 1 << 40)
