"""Seek tables: the bytes of the published format, objects of several sections, and what is refused."""

from __future__ import annotations

import pytest

from tierfs.base.words.errors import DataLoss
from tierfs.engine.frames.seek_table import (
    FOOTER_BYTES,
    FrameSize,
    Section,
    object_frames,
    parse_tail,
    read_sections,
    seek_table,
)

GOLDEN = bytes.fromhex(
    "5e2a4d18 19000000"  # skippable frame of 25 bytes
    "39300000 00000200"  # 12345 bytes of 131072
    "2a000000 07000000"  # 42 bytes of 7
    "02000000 00 b1ea928f"  # two frames, no checksums, the magic number
)
FRAMES = [FrameSize(12345, 131072), FrameSize(42, 7)]


def section(tail: bytes, end: int) -> Section:
    found = parse_tail(tail, end)
    assert isinstance(found, Section)
    return found


def test_the_bytes_are_those_of_the_published_format() -> None:
    assert seek_table(FRAMES) == GOLDEN


def test_a_table_says_where_its_frames_are() -> None:
    found = section(GOLDEN, 20000)
    assert list(found.frames()) == FRAMES
    assert (found.start_offset, found.table_offset, found.end_offset) == (7580, 19967, 20000)


def test_a_tail_that_is_too_short_is_asked_for_again() -> None:
    for size in range(FOOTER_BYTES, len(GOLDEN)):
        assert parse_tail(GOLDEN[-size:], 20000) == len(GOLDEN)


def test_the_sections_of_a_joined_object_are_found_from_its_end() -> None:
    one = bytes(12345 + 42) + GOLDEN
    joined = one + seek_table([]) + one
    sections = read_sections(lambda start, end: joined[start:end], len(joined), 16)
    assert list(object_frames(sections)) == [*FRAMES, FrameSize(33, 0), FrameSize(17, 0), *FRAMES]
    assert sections[0].start_offset == 0


def test_checksums_in_a_table_are_read_over() -> None:
    table = bytes.fromhex("5e2a4d18 15000000 2a000000 07000000 ffffffff 01000000 80 b1ea928f")
    assert list(section(table, 42 + len(table)).frames()) == [FrameSize(42, 7)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("00 b1ea928f", "00 b1ea9200"),
        ("00 b1ea928f", "04 b1ea928f"),
        ("02000000 00 b1", "03000000 00 b1"),
        ("02000000 00 b1", "ffffffff 00 b1"),
        ("5e2a4d18", "5f2a4d18"),
        ("19000000", "18000000"),
        ("39300000", "39300001"),
        ("39300000", "07000000"),
        ("07000000", "00001500"),
    ],
)
def test_what_describes_no_bytes_before_it_is_refused(old: str, new: str) -> None:
    damaged = GOLDEN.replace(bytes.fromhex(old), bytes.fromhex(new))
    assert damaged != GOLDEN
    with pytest.raises(DataLoss, match="the seek table that ends at 20000 is damaged"):
        parse_tail(bytes(100) + damaged, 20000)
