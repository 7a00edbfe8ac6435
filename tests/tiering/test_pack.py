"""Packs: golden bytes, what is read is what was written, and damage that is refused before it does harm."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.checksum import crc32c
from tierfs.errors import DataLoss
from tierfs.metadata import records_pb2 as pb
from tierfs.tiering import packs
from tierfs.tiering.packs import PackEntry, PackIndex, Trailer
from tierfs.types import AttemptId, ByteRange, ObjectId, SegmentId

INDEX = PackIndex(
    "s" * 4,
    2,
    AttemptId("ab"),
    1000,
    (PackEntry(SegmentId(7), "a/b", 0, 5, 0, 1), PackEntry(SegmentId(9), "c", 4, 3, 5, 0xFFFFFFFF)),
)
GOLDEN = (
    "08011204737373731802220261 6228e807320e0807120361 2f6220053501000000321008091201631804200328053 5ffffffff"
    "54465350 00000001 0000000000000008 0000000000000033 43f1709c 457f3a3e"
)


def parsed(data: bytes, object_bytes: int) -> PackIndex:
    """As a reader does: the trailer, then the index it names."""
    trailer = packs.parse_trailer(data[-packs.TRAILER_BYTES :], object_bytes, "packs/x")
    start = len(data) - packs.TRAILER_BYTES - trailer.index.length_bytes
    return packs.parse_index(data[start : len(data) - packs.TRAILER_BYTES], trailer, "packs/x")


def test_golden_bytes() -> None:
    data = packs.index_and_trailer(INDEX, 8)
    assert data.hex() == GOLDEN.replace(" ", "")
    assert parsed(data, 8 + len(data)) == INDEX


entries = st.lists(
    st.tuples(
        st.integers(1, 2**62),
        st.text(max_size=20),
        st.integers(0, 2**62),
        st.integers(1, 2**40),
        st.integers(0, 2**32 - 1),
    ),
    max_size=20,
)


@given(entries, st.integers(1, 2**31), st.integers(0, 2**40))
def test_what_is_written_is_read(rows: list[tuple[int, str, int, int, int]], epoch: int, created_ms: int) -> None:
    at, made = 0, []
    for number, path, start, length, crc in rows:
        made.append(PackEntry(SegmentId(number), path, start, length, at, crc))
        at += length
    index = PackIndex("store", epoch, AttemptId("ff"), created_ms, tuple(made))
    data = packs.index_and_trailer(index, at)
    assert parsed(data, at + len(data)) == index


@given(st.binary(min_size=packs.TRAILER_BYTES, max_size=packs.TRAILER_BYTES), st.integers(0, 2**40))
def test_random_bytes_are_no_trailer(data: bytes, object_bytes: int) -> None:
    with pytest.raises(DataLoss):
        packs.parse_trailer(data, object_bytes, "packs/x")


@given(st.integers(0, 1000), st.integers(0, 7))
def test_every_flipped_bit_of_index_and_trailer_is_found(at: int, bit: int) -> None:
    data = bytearray(packs.index_and_trailer(INDEX, 8))
    at %= len(data)
    data[at] ^= 1 << bit
    with pytest.raises(DataLoss, match="packs/x"):
        parsed(bytes(data), 8 + len(data))


def test_a_huge_index_is_refused_before_it_is_read() -> None:
    checked = struct.pack(">4sIQQI", b"TFSP", 1, 0, 2**30, 0)
    trailer = checked + crc32c(checked).to_bytes(4, "big")
    with pytest.raises(DataLoss, match="its index lies elsewhere"):
        packs.parse_trailer(trailer, 2**30 + 32, "packs/x")


@pytest.mark.parametrize(
    "bad",
    [
        {"length": 0},
        {"length": 9},
        {"object_offset": 8, "length": 1},
        {"object_offset": 2**64 - 1, "length": 1},
        {"segment_id": 0},
        {"start_offset": 2**63},
    ],
)
def test_impossible_entries_are_refused(bad: dict[str, int]) -> None:
    entry = pb.PackEntry(segment_id=1, path="a", length=8)
    for key, value in bad.items():
        setattr(entry, key, value)
    data = pb.PackIndex(version=1, entries=[entry]).SerializeToString()
    with pytest.raises(DataLoss, match="is damaged"):
        packs.parse_index(data, Trailer(ByteRange(8, 8 + len(data)), crc32c(data)), "packs/x")


def test_overlapping_entries_and_too_many_are_refused() -> None:
    one = pb.PackEntry(segment_id=1, path="a", length=4)
    for count in (2, packs.MAX_PACK_ENTRIES + 1):
        data = pb.PackIndex(version=1, entries=[one] * count).SerializeToString()
        with pytest.raises(DataLoss, match="is damaged"):
            packs.parse_index(data, Trailer(ByteRange(8, 8 + len(data)), crc32c(data)), "packs/x")


def test_a_newer_format_says_so() -> None:
    data = pb.PackIndex(version=9).SerializeToString()
    with pytest.raises(DataLoss, match="format version 9"):
        packs.parse_index(data, Trailer(ByteRange(0, len(data)), crc32c(data)), "packs/x")


def test_names_tell_object_epoch_attempt_and_checksum() -> None:
    name = packs.pack_name(ObjectId(12), 3, AttemptId("0a" * 16), 0xAB)
    assert name == f"packs/00000000000000000012-e3-{'0a' * 16}-c000000ab"
    assert packs.parse_name(name) == packs.PackName(ObjectId(12), 3, AttemptId("0a" * 16), 0xAB)
    assert packs.parse_name("segments/a/1/chunk-0-1-e1-ab") is None
