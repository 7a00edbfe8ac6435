"""Ranges against sets of single bytes: every answer is what the sets say, in as few ranges as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.bytes import ranges
from tierfs.base.words.types import ByteRange

_LIMIT = 12


def _range(ends: tuple[int, int]) -> ByteRange:
    return ByteRange(min(ends), max(ends))


any_range = st.tuples(st.integers(0, _LIMIT), st.integers(0, _LIMIT)).map(_range)
any_order = st.lists(any_range, max_size=7)
ascending = any_order.map(lambda found: sorted(found, key=lambda one: one.start))


def _bytes(found: Iterable[ByteRange]) -> set[int]:
    return {byte for one in found for byte in range(one.start, one.end)}


def _as_ranges(held: set[int]) -> list[ByteRange]:
    """Return the fewest ranges that are these bytes."""
    starts = sorted(byte for byte in held if byte - 1 not in held)
    ends = sorted(byte + 1 for byte in held if byte + 1 not in held)
    return [ByteRange(start, end) for start, end in zip(starts, ends, strict=True)]


@given(ascending)
def test_merged_ranges_have_the_bytes_of_all(found: list[ByteRange]) -> None:
    assert list(ranges.merge(found)) == _as_ranges(_bytes(found))


@given(any_order)
def test_a_union_has_the_bytes_of_all_in_any_order(found: list[ByteRange]) -> None:
    assert ranges.union(iter(found)) == _as_ranges(_bytes(found))


@given(ascending)
def test_a_range_that_is_added_joins_what_it_touches(found: list[ByteRange]) -> None:
    merged: list[ByteRange] = []
    for one in found:
        ranges.add(merged, one)
    assert merged == _as_ranges(_bytes(found))


@given(ascending, ascending)
def test_a_difference_has_the_bytes_that_were_not_taken(found: list[ByteRange], taken: list[ByteRange]) -> None:
    assert list(ranges.subtract(found, taken)) == _as_ranges(_bytes(found) - _bytes(taken))


@given(ascending, ascending)
def test_an_intersection_has_the_bytes_of_both(found: list[ByteRange], other: list[ByteRange]) -> None:
    assert list(ranges.intersect(found, other)) == _as_ranges(_bytes(found) & _bytes(other))


@given(any_range, ascending)
def test_gaps_have_the_bytes_that_are_not_held(wanted: ByteRange, held: list[ByteRange]) -> None:
    assert list(ranges.gaps(wanted, held)) == _as_ranges(_bytes([wanted]) - _bytes(held))


@given(any_range, ascending)
def test_ranges_cover_another_if_they_have_each_of_its_bytes(wanted: ByteRange, held: list[ByteRange]) -> None:
    assert ranges.covers(held, wanted) == (_bytes([wanted]) <= _bytes(held))


@given(ascending, ascending)
def test_a_cover_is_asked_again_and_again(held: list[ByteRange], wanted: list[ByteRange]) -> None:
    cover = ranges.Cover(held)
    end = 0
    for one in wanted:
        asked = ByteRange(max(end, one.start), max(end, one.end))
        end = asked.end
        assert _bytes(cover.missing(asked)) == _bytes([asked]) - _bytes(held)


@given(st.integers(0, _LIMIT), ascending)
def test_the_reach_ends_at_the_first_missing_byte(start: int, held: list[ByteRange]) -> None:
    behind = [one for one in held if one.end > start]
    missing = set(range(start, _LIMIT + 1)) - _bytes(behind)
    assert ranges.reach(start, behind) == min(missing)


@given(st.lists(st.integers(0, 3)))
def test_runs_are_cut_where_an_item_does_not_go_on(items: list[int]) -> None:
    found = list(ranges.runs(items, lambda run, item: item >= run[-1]))
    assert [item for run in found for item in run] == items
    assert all(run == sorted(run) and run for run in found)
    assert all(one[-1] > other[0] for one, other in pairwise(found))


def _chain(read: list[int]) -> Iterator[ByteRange]:
    """Endless chunks of four bytes, and how many were read."""
    while True:
        read.append(4 * len(read))
        yield ByteRange(read[-1], read[-1] + 4)


@pytest.mark.parametrize("wanted", [ByteRange(0, 6), ByteRange(5, 8)])
def test_no_more_of_a_chain_is_read_than_the_answer_needs(wanted: ByteRange) -> None:
    for ask in (ranges.covers, lambda held, wanted: not ranges.Cover(held).missing(wanted)):
        read: list[int] = []
        assert ask(_chain(read), wanted)
        assert len(read) <= 3


@given(any_range, st.integers(0, _LIMIT), st.integers(0, _LIMIT))
def test_a_range_cuts_its_own_bytes_or_raises(span: ByteRange, origin: int, length: int) -> None:
    view = memoryview(bytes(range(origin, origin + length)))
    if ByteRange(origin, origin + length).contains(span):
        assert bytes(span.of(view, origin)) == bytes(range(span.start, span.end))
    else:
        with pytest.raises(ValueError, match="is not in"):
            span.of(view, origin)


@pytest.mark.parametrize(("start", "end"), [(1, 0), (-1, 0), (-2, -1)])
def test_a_range_that_runs_backwards_raises(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a byte range"):
        ByteRange(start, end)
