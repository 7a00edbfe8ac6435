"""Joined ranges hold all that was asked for, and no more gap than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierfs.fsspec.files import join, of_slice
from tierfs.types import ByteRange

DATA = bytes(range(200))
places = st.tuples(st.integers(0, 200), st.integers(0, 200)).map(lambda ends: ByteRange(min(ends), max(ends)))


@given(wanted=st.lists(places, max_size=12), gap=st.integers(0, 30), limit=st.integers(1, 200))
def test_every_range_is_where_it_says(wanted: list[ByteRange], gap: int, limit: int) -> None:
    joined = join(wanted, gap, limit)
    for one, (read, start) in zip(wanted, joined.places, strict=True):
        held = joined.reads[read]
        assert DATA[held.start : held.end][start : start + one.length_bytes] == DATA[one.start : one.end]
    longest = max((one.length_bytes for one in wanted), default=0)
    assert all(read.length_bytes <= max(limit, longest) for read in joined.reads)


def test_neighbours_share_a_read() -> None:
    wanted = [ByteRange(90, 100), ByteRange(0, 10), ByteRange(15, 20)]
    assert join(wanted, 5).reads == (ByteRange(0, 20), ByteRange(90, 100))
    assert join(wanted, 4).reads == (ByteRange(0, 10), ByteRange(15, 20), ByteRange(90, 100))
    assert join(wanted, 100, 20).reads == (ByteRange(0, 20), ByteRange(90, 100))
    assert join([ByteRange(0, 100), ByteRange(10, 20)], 5, 50).reads == (ByteRange(0, 100),)


@given(start=st.none() | st.integers(-250, 250), end=st.none() | st.integers(-250, 250))
def test_slices_are_pythons(start: int | None, end: int | None) -> None:
    found = of_slice(start, end, len(DATA))
    assert DATA[found.start : found.end] == DATA[start:end]
