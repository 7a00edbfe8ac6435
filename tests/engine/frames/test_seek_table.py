"""Seek tables: the bytes of the published format, objects of several sections, and what is refused."""

from __future__ import annotations

import pytest

from tests.engine.frames.objects import compressed_object, text, unpacked
from tierfs.base.words.errors import DataLoss
from tierfs.engine.frames import seek_table as module
from tierfs.engine.frames.seek_table import (
    FOOTER_BYTES,
    FORMAT_FRAME_BYTES,
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


@pytest.mark.parametrize("size", [FrameSize(7, 0), FrameSize(1 << 32, 0), FrameSize(9, 1 << 20), FrameSize(99, -1)])
def test_a_frame_that_cannot_be_is_not_written(size: FrameSize) -> None:
    with pytest.raises(ValueError, match="no frame of"):
        seek_table([size])


def test_a_frame_has_at_most_a_gib() -> None:
    seek_table([FrameSize(1 << 20, FORMAT_FRAME_BYTES)])
    with pytest.raises(ValueError, match="no frame of"):
        seek_table([FrameSize(1 << 20, FORMAT_FRAME_BYTES + 1)])


def test_too_many_frames_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FRAMES", 1)
    with pytest.raises(ValueError, match="2 frames are more than 1"):
        seek_table(FRAMES)


def test_ten_thousand_frames_are_found_and_read() -> None:
    plain = text(1_000_000)
    stored = compressed_object(plain, 100)
    reads = []

    def read(start: int, end: int) -> bytes:
        reads.append((start, end))
        return stored[start:end]

    (found,) = read_sections(read, len(stored), 1000)
    assert len(reads) == 2
    assert len(list(found.frames())) == 10_000
    assert found.start_offset == 0
    assert unpacked(stored[: found.table_offset], len(plain)) == plain


def test_more_sections_than_can_be_joined_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SECTIONS", 3)
    joined = seek_table([]) * 4
    with pytest.raises(DataLoss, match="more than 3 seek tables"):
        read_sections(lambda start, end: joined[start:end], len(joined), 100)
    assert len(read_sections(lambda start, end: joined[start:end], len(joined) - 17, 100)) == 3


def test_an_object_without_a_table_before_its_last_section_is_refused() -> None:
    joined = b"x" * 20 + bytes(12345 + 42) + GOLDEN
    with pytest.raises(DataLoss, match="those of no seek table"):
        read_sections(lambda start, end: joined[start:end], len(joined), 100)


def test_an_object_that_changes_while_its_table_is_read_is_refused() -> None:
    one, other = seek_table([FRAMES[1]] * 10), seek_table([FRAMES[1]] * 20)
    answers = [one[-20:], other[-len(one) :]]
    with pytest.raises(DataLoss, match="differs"):
        read_sections(lambda start, end: answers.pop(0), 20000, 20)


def test_an_object_shorter_than_a_footer_is_refused() -> None:
    with pytest.raises(DataLoss, match="there are 8 bytes"):
        read_sections(lambda start, end: GOLDEN[-8:], 8, 100)
