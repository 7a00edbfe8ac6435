"""Joining of ranges that lie close together, so that one read serves several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange

GAP_BYTES = CRC_BLOCK_BYTES
"""Two ranges closer than a block share one that is fetched and checked anyway."""

JOINED_BYTES = 8 * MIB
"""A joined range grows no longer: several of this length are fetched at once."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Ranges of one file, and fewer ones that hold them all."""

    reads: tuple[ByteRange, ...]
    places: tuple[tuple[int, int], ...]
    """For each range that was asked for: the read that holds it, and where it begins there."""


def join(wanted: Sequence[ByteRange], gap_bytes: int = GAP_BYTES, joined_bytes: int = JOINED_BYTES) -> Joined:
    """Join neighbours, in order of where they begin; a range is never cut."""
    reads: list[ByteRange] = []
    places = [(0, 0)] * len(wanted)
    for index in sorted(range(len(wanted)), key=lambda index: (wanted[index].start, wanted[index].end)):
        one = wanted[index]
        last = reads[-1] if reads else None
        if last is not None and one.start - last.end <= gap_bytes and _length(last, one) <= joined_bytes:
            reads[-1] = ByteRange(last.start, max(last.end, one.end))
        elif last is None or not last.contains(one):
            reads.append(one)
        places[index] = (len(reads) - 1, one.start - reads[-1].start)
    return Joined(tuple(reads), tuple(places))


def _length(last: ByteRange, one: ByteRange) -> int:
    return max(last.end, one.end) - last.start


def of_slice(start: int | None, end: int | None, size: int) -> ByteRange:
    """The bytes of `data[start:end]` for data of `size` bytes, as Python slices."""
    first, behind, _ = slice(start, end).indices(size)
    return ByteRange(first, max(first, behind))
