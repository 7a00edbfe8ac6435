"""Planning the parts of a composed object: exact cover, the server's limits, and the fewest uploaded bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.s3.compose_plan import S3_LIMITS, PartLimits, client_bytes, plan_parts

SMALL = PartLimits(min_bytes=5, max_bytes=12, upload_bytes=8, max_parts=1000)
GIB = 1024 * MIB


def shape(lengths: list[int], limits: PartLimits = SMALL) -> list[str]:
    """Parts as pictures: `c7` is copied, `u5` uploaded."""
    return [f"{'c' if part.copied else 'u'}{part.length_bytes}" for part in plan_parts(lengths, limits)]


@pytest.mark.parametrize(
    ("lengths", "parts"),
    [
        ([7], ["c7"]),
        ([3], ["c3"]),  # the last part may be short
        ([5, 5, 5], ["c5", "c5", "c5"]),
        ([9, 2], ["c9", "c2"]),
        ([3, 3, 3], ["u6", "c3"]),
        ([2, 9, 6], ["u5", "c6", "c6"]),  # the 9 lends 3 of its head
        ([9, 2, 9], ["c6", "u5", "c9"]),  # and here 3 of its tail
        ([7, 2, 6, 9], ["c5", "u5", "c5", "c9"]),  # both lend
        ([5, 2, 5, 9], ["c5", "u7", "c9"]),  # nothing to lend: one of them is uploaded
        ([25], ["c8", "c8", "c9"]),
        ([1] * 20, ["u9", "u10", "c1"]),
    ],
)
def test_parts_are_those_of_the_pictures(lengths: list[int], parts: list[str]) -> None:
    assert shape(lengths) == parts


def test_parts_at_s3s_limits() -> None:
    assert client_bytes(plan_parts([5 * MIB, 64 * MIB, 11 * GIB, 5 * MIB, 1])) == 0
    (part,) = plan_parts([1000] * 1000)
    assert (part.copied, part.length_bytes, len(part.slices)) == (False, 1_000_000, 1000)
    parts = plan_parts([4 * MIB] * 30_000)
    assert len(parts) <= S3_LIMITS.max_parts, "uploaded parts grow with what is uploaded"
    assert client_bytes(parts) == 29_999 * 4 * MIB
    assert len(plan_parts([5 * MIB] * S3_LIMITS.max_parts)) == S3_LIMITS.max_parts
    with pytest.raises(InvalidRequest, match="10001 parts"):
        plan_parts([5 * MIB] * (S3_LIMITS.max_parts + 1))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
@example([1, 5, 1, 5, 1, 9, 4])
def test_every_plan_is_a_whole_one_and_the_cheapest(lengths: list[int]) -> None:
    parts = plan_parts(lengths, SMALL)
    slices = [one for part in parts for one in part.slices]
    covered = [(one.piece, one.offset + at) for one in slices for at in range(one.length_bytes)]
    assert covered == [(piece, at) for piece, length in enumerate(lengths) for at in range(length)]
    assert all(len(part.slices) == 1 for part in parts if part.copied)
    assert all(SMALL.min_bytes <= part.length_bytes for part in parts[:-1])
    assert all(part.length_bytes <= SMALL.max_bytes for part in parts if part.copied)
    assert all(part.length_bytes < 2 * SMALL.upload_bytes for part in parts if not part.copied)
    assert client_bytes(parts) == fewest_uploaded(lengths, SMALL.min_bytes)


def fewest_uploaded(lengths: list[int], least: int) -> int:
    """The same by trying everything, byte by byte: (copied?, length so far up to `least`) -> uploaded bytes."""
    states: dict[tuple[bool, int], int] = {(True, least): 0}
    for length in lengths:
        for offset in range(length):
            found: dict[tuple[bool, int], int] = {}
            for (copied, size), cost in states.items():
                ways = [(True, 1, cost), (False, 1, cost + 1)] if size == least else []
                if not copied:
                    ways.append((False, min(least, size + 1), cost + 1))
                elif offset:
                    ways.append((True, min(least, size + 1), cost))
                for way_copied, way_size, way_cost in ways:
                    key = (way_copied, way_size)
                    found[key] = min(found.get(key, way_cost), way_cost)
            states = found
    return min(states.values())
