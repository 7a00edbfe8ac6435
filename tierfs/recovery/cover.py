"""Which objects make up a segment: a cover without overlaps, the newest owner's and the largest first. Pure.

A higher epoch wins, because after a recovery offsets may have been written again; of one epoch the larger
object wins, because it was made of the smaller ones. An object that overlaps a better one is left out
whole: what of it would not overlap may be of a past that was given up.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from tierfs import ranges
from tierfs.recovery.found import FoundObject
from tierfs.types import ByteRange


@dataclass(frozen=True, slots=True)
class Cover:
    """A choice of objects, in offset order, and those that it leaves out."""

    chosen: tuple[FoundObject, ...]
    left: tuple[FoundObject, ...]

    @property
    def gaps(self) -> tuple[ByteRange, ...]:
        """What is missing between the chosen objects."""
        held = [ByteRange(one.start, one.end) for one in self.chosen]
        return tuple(ranges.gaps(ByteRange(held[0].start, held[-1].end), held)) if held else ()


def choose(objects: Sequence[FoundObject]) -> Cover:
    """The best cover of a segment."""
    placed: list[tuple[int, int, FoundObject]] = []
    left: list[FoundObject] = []
    for one in sorted(objects, key=lambda item: (-item.epoch, -item.length_bytes, item.start, item.attempt)):
        at = bisect_left(placed, one.start, key=lambda row: row[0])
        fits_before = at == 0 or placed[at - 1][1] <= one.start
        fits_behind = at == len(placed) or one.end <= placed[at][0]
        if fits_before and fits_behind:
            insort(placed, (one.start, one.end, one), key=lambda row: row[0])
        else:
            left.append(one)
    return Cover(tuple(row[2] for row in placed), tuple(left))
