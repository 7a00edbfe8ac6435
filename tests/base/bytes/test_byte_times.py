"""Times of an object's bytes: whatever is merged, no byte leaves its bounds, and none gets much coarser than others."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.bytes.byte_times import MAX_STRETCHES, NO_TIMES, ByteTimes, TimedBytes

STRETCHES = st.lists(
    st.builds(TimedBytes.between, st.integers(0, 1 << 20), st.integers(0, 50), st.integers(0, 50)), max_size=200
)


def bounds(stretches: list[TimedBytes], at: int) -> TimedBytes:
    """The stretch that has a byte."""
    ends = accumulate(each.length_bytes for each in stretches)
    return next(each for end, each in zip(ends, stretches, strict=True) if at < end)


@given(STRETCHES, st.data())
def test_no_byte_leaves_its_bounds(stretches: list[TimedBytes], drawn: st.DataObject) -> None:
    times = ByteTimes.of(stretches)
    total = sum(each.length_bytes for each in stretches)
    kept = list(times.stretches())
    assert times.is_sound(total)
    assert (len(kept) <= MAX_STRETCHES, sum(each.length_bytes for each in kept)) == (True, total)
    if total:
        at = drawn.draw(st.integers(0, total - 1))
        old, new = bounds(stretches, at), bounds(kept, at)
        assert new.first_ms <= old.first_ms
        assert old.written_ms <= new.written_ms
        end = drawn.draw(st.integers(at + 1, total))
        cut = list(times.stretches(at, end))
        assert (sum(each.length_bytes for each in cut), bounds(cut, 0).written_ms) == (end - at, new.written_ms)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33, 64, 65, 1000, 20_000])
def test_resolution_degrades_evenly(count: int) -> None:
    kept = list(ByteTimes.of(TimedBytes(100, number + 1, number + 2) for number in range(count)).stretches())
    assert len(kept) == min(count, MAX_STRETCHES)
    assert (kept[0].first_ms, kept[-1].written_ms) == (1, count + 1)
    assert max(each.length_bytes for each in kept) <= max(100, 3 * 100 * count // MAX_STRETCHES)


def test_a_large_stretch_among_small_ones_stays_alone() -> None:
    stretches = [*(TimedBytes(1, at, at) for at in range(1, 30)), TimedBytes(1 << 30, 50, 60), TimedBytes(7, 70, 80)]
    kept = list(ByteTimes.of(stretches).stretches())
    assert any((each.first_ms, each.written_ms) == (50, 60) for each in kept)


def test_neighbours_of_one_time_are_one() -> None:
    assert ByteTimes.of(TimedBytes(5, 1, 2) for _ in range(9)) == ByteTimes(ends=(45,), first_ms=(1,), written_ms=(2,))
    assert ByteTimes.of([TimedBytes(0, 1, 2)]) == NO_TIMES


def test_a_file_grows_under_a_clock_that_is_set_back() -> None:
    times = NO_TIMES.grown(5, 100, 100)
    for length, now_ms in ((6, 120), (9, 90), (10, 95)):
        times = times.grown(length, 100, now_ms)
    assert times == ByteTimes(ends=(10,), first_ms=(90,), written_ms=(120,))


@pytest.mark.parametrize(
    ("ends", "first_ms", "written_ms"),
    [
        ((5,), (), (1,)),
        ((5, 5), (1, 1), (1, 1)),
        ((0,), (1,), (1,)),
        ((11,), (1,), (1,)),
        ((5,), (2,), (1,)),
        (tuple(range(1, 10)) * 2, (1,) * 18, (1,) * 18),
        (tuple(range(1, 18)), (1,) * 17, (1,) * 17),
    ],
)
def test_what_cannot_be_is_not_sound(
    ends: tuple[int, ...], first_ms: tuple[int, ...], written_ms: tuple[int, ...]
) -> None:
    assert not ByteTimes(ends=ends, first_ms=first_ms, written_ms=written_ms).is_sound(10 if len(ends) < 9 else 99)


def test_no_time_is_in_the_future() -> None:
    times = ByteTimes(ends=(1, 2), first_ms=(5, 50), written_ms=(9, 60)).until(20)
    assert (times.first_ms, times.written_ms) == ((5, 20), (9, 20))
