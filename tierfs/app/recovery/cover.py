"""Choose the objects that make up a segment: a cover without overlaps, the newest owner's and the largest first. Pure.

A higher epoch wins, because after a recovery offsets may have been written again; of one epoch the larger object wins,
because it was made of the smaller ones. An object that overlaps a better one is left out whole: its other bytes may
belong to a history that was abandoned.

An object that moves to another storage class or place gets a new name, and for the grace period both copies are there.
They have the same bytes, so each is right, and the later one is chosen: an owner that is still at work deletes only the
other. Times of a place that was copied by hand may mislead, but every chosen object is read and compared.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from tierfs.app.found_objects import FoundObject
from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange


@dataclass(frozen=True, slots=True)
class ObjectCover:
    """A choice of objects, in offset order, and the omitted ones."""

    chosen: tuple[FoundObject, ...]
    left: tuple[FoundObject, ...]

    @property
    def gaps(self) -> tuple[ByteRange, ...]:
        """Ranges between the chosen objects that none of them holds."""
        held = [ByteRange(chosen.start, chosen.end) for chosen in self.chosen]
        return tuple(ranges.gaps(ByteRange(held[0].start, held[-1].end), held)) if held else ()


def choose(objects: Sequence[FoundObject]) -> ObjectCover:
    """Return the best cover of a segment."""

    def rank(item: FoundObject) -> tuple[object, ...]:
        # The bytes of an append that failed with its pack in the bucket never were in the segment, and the next append
        # began at the same offset: any object is better than such a pack, and of two of them the later one.
        doubt = item.appended > 0, -item.appended
        copies = -item.modified_ms, item.in_archive, item.name
        return (-item.epoch, *doubt, -item.length_bytes, item.start, *copies, item.attempt)

    placed: list[tuple[int, int, FoundObject]] = []
    omitted: list[FoundObject] = []
    for item in sorted(objects, key=rank):
        at = bisect_left(placed, item.start, key=lambda row: row[0])
        fits_before = at == 0 or placed[at - 1][1] <= item.start
        fits_after = at == len(placed) or item.end <= placed[at][0]
        if fits_before and fits_after:
            insort(placed, (item.start, item.end, item), key=lambda row: row[0])
        else:
            omitted.append(item)
    return ObjectCover(tuple(row[2] for row in placed), tuple(omitted))
