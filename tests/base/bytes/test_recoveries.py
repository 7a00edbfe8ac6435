"""What a segment keeps of its recoveries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tierfs.base.bytes import recoveries


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_nothing_that_was_lost_counts_as_there(ends: list[int], since: int, position: int) -> None:
    """Recoveries 1, 2, … left these ends: what was read before some of them is there up to the least of their ends."""
    kept: tuple[int, ...] = ()
    for number, end in enumerate(ends, 1):
        kept = recoveries.added(kept, number, end)
        assert recoveries.are_sound(kept)
    assert recoveries.last(kept) == len(ends)
    least = min(ends[since:], default=None)
    end = recoveries.end_since(kept, since)
    assert (end is None) == (least is None)
    if least is not None and end is not None:
        assert end <= least
        assert end == least or len(kept) == 2 * recoveries.MAX_RECOVERIES, "exact while all are kept"


def test_what_no_recovery_writes_is_not_sound() -> None:
    for impossible in ((1,), (2, 5, 1, 6), (1, 6, 2, 5), (1, 5, 1, 6), tuple(range(2 * recoveries.MAX_RECOVERIES + 2))):
        assert not recoveries.are_sound(impossible)
