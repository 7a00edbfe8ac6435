"""What a segment keeps of those that were concatenated to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tierfs.base.bytes import recoveries
from tierfs.base.bytes.joins import MAX_JOINS, Join, Joins
from tierfs.base.words.types import SegmentId


def joined(number: int, recovered: tuple[int, ...] = ()) -> Join:
    birth = number + 100
    return Join(number * 10, number * 10 + 10, SegmentId(birth), birth, birth, 0, f"s{number}", 0, recovered)


def test_recoveries_of_sources_come_back_and_survive_that_several_become_one() -> None:
    each = [joined(0), joined(1, (7, 3, 9, 5)), joined(2, (8, 4))]
    kept = Joins.of(each)
    assert kept.is_sound
    assert list(kept) == each
    assert kept.last_recovery == 9
    assert list(kept.until(25))[2] == replace(each[2], end=25)
    many = Joins.of([*each, *map(joined, range(3, MAX_JOINS + 2))])
    assert many.is_sound
    assert next(iter(many)).recoveries == (9, 0), "no end is known any more"
    assert Joins.of([joined(0)]).recoveries == (), "older records have the same bytes"


@pytest.mark.parametrize(
    "values", [(0,), (0, 0, 0), (2, 7, 3), (0, 2, 7), (0, 1 << 62), (2, 7, 3, 4, 8, 9, 6, 9), (0, 4, 8, 3, 7, 5)]
)
def test_recoveries_that_no_concat_writes_are_not_sound(values: tuple[int, ...]) -> None:
    joins = replace(Joins.of([joined(0), joined(1)]), recoveries=values)
    assert not (joins.is_sound and all(recoveries.are_sound(join.recoveries) for join in joins))
