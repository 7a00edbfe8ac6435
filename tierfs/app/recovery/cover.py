"""Choose the objects that make up a segment: a cover without overlaps, the newest owner's and the largest first. Pure.

A higher epoch wins, because after a recovery offsets may have been written again; of one epoch the larger object wins,
because it was made of the smaller ones. An object that overlaps a better one is left out whole: its other bytes may
belong to a history that was abandoned.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from tierfs.base.bytes import ranges
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, TierfsError
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH

# Far more than the id counter reaches, and it can still count on from there.
_MAX_SEGMENT_ID = 2**62


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of a store, as its name, metadata, index or manifest describes it."""

    name: str
    etag: str
    modified_ms: int
    store_id: str
    """Empty if the object does not name it."""
    segment_id: int
    path: str
    start: int
    end: int
    epoch: int
    attempt: str
    crc32c: int | None
    """CRC32C of the segment's bytes; None if neither name nor metadata contain it: a copy of an old object without its
    metadata."""
    pack_bytes: int = 0
    """Size of the pack that holds the bytes among others; 0 if they are the whole object."""
    object_offset: int = 0
    appended: int = 0
    """Number of the pack among those that appends waited for, the later ones higher; 0 for any other object."""

    @property
    def length_bytes(self) -> int:
        """Number of the segment's bytes in it."""
        return self.end - self.start

    @property
    def object_bytes(self) -> int:
        """Size of the object."""
        return self.pack_bytes or self.length_bytes

    @property
    def label(self) -> str:
        """Its name in reports of objects that were not linked."""
        return f"{self.name}, {self.path} from {self.start}" if self.pack_bytes else self.name


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An object that was not linked, and why."""

    name: str
    why: str


def checked_path(item: FoundObject) -> str:
    """Return the name of the segment. Raises DataLoss for an impossible segment or owner."""
    if not (0 < item.segment_id <= _MAX_SEGMENT_ID and 0 < item.epoch <= MAX_EPOCH):
        raise DataLoss("it refers to an impossible segment or owner")
    try:
        path = names.join(names.split(item.path))
    except TierfsError as exc:
        raise DataLoss(f"it refers to an impossible segment: {exc}") from exc
    if path != item.path or not path or names.is_removed(path):
        raise DataLoss("it refers to an impossible segment")
    return path


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
        return (-item.epoch, *doubt, -item.length_bytes, item.start, item.attempt)

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
