"""Join ranges that are close together, so that one read serves several of them."""

from __future__ import annotations

from collections.abc import Sequence

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange

# Two ranges closer than a block share one that is fetched and checked anyway.
GAP_BYTES = CRC_BLOCK_BYTES

# Limit of a joined range: several of this length are fetched at once.
JOINED_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class Joined:
    """Ranges of one file, and fewer ones that hold them all."""

    reads: tuple[ByteRange, ...]
    places: tuple[tuple[int, int], ...]
    """For each requested range: the read that holds it, and its offset there."""


def join(wanted: Sequence[ByteRange], gap_bytes: int = GAP_BYTES, joined_bytes: int = JOINED_BYTES) -> Joined:
    """Join neighbours, in order of their starts; a range is never cut."""
    reads: list[ByteRange] = []
    places = [(0, 0)] * len(wanted)
    for index in sorted(range(len(wanted)), key=lambda index: (wanted[index].start, wanted[index].end)):
        new = wanted[index]
        last = reads[-1] if reads else None
        if last is not None and new.start - last.end <= gap_bytes and _length(last, new) <= joined_bytes:
            reads[-1] = ByteRange(last.start, max(last.end, new.end))
        elif last is None or not last.contains(new):
            reads.append(new)
        places[index] = (len(reads) - 1, new.start - reads[-1].start)
    return Joined(tuple(reads), tuple(places))


def _length(last: ByteRange, new: ByteRange) -> int:
    return max(last.end, new.end) - last.start


def of_slice(start: int | None, end: int | None, size: int) -> ByteRange:
    """Return the bytes of `data[start:end]` for data of `size` bytes, by Python's rules for slices."""
    first, behind, _ = slice(start, end).indices(size)
    return ByteRange(first, max(first, behind))
