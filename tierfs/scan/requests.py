"""What is fetched together: extents that follow each other in one object become one request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tierfs import ranges
from tierfs.scan.extents import Copy, Extent
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, PayloadEncoding, Tier

STEP_BYTES = 8 * MIB
"""Most bytes of a request: measured, larger ones gain nothing, and each in flight holds so much memory."""

LOCAL_STEP_BYTES = 2 * MIB
"""The same of a local file, which is as quick in small pieces and stays in the processor's cache."""

_GAP_BYTES = 2 * CRC_BLOCK_BYTES
"""Bytes between two extents that are rather read than asked around (a guess)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bytes of one extent for one reader."""

    owner: int
    """The reader's own number."""
    extent: Extent

    @property
    def blocks(self) -> ByteRange:
        """What of the first copy's object is read for it: whole blocks of checksums."""
        return self.extent.copies[0].grid.range


@dataclass(frozen=True, slots=True)
class Request:
    """One read of one object, for one or several extents, in order."""

    wanted: tuple[Wanted, ...]

    @property
    def first(self) -> Copy:
        """The copy that is read, of the first extent; those of the others are in the same object."""
        return self.wanted[0].extent.copies[0]

    @property
    def range(self) -> ByteRange:
        """The object's bytes that are read."""
        return ByteRange(self.wanted[0].blocks.start, max(one.blocks.end for one in self.wanted))


def requests_of(wanted: Iterable[Wanted]) -> Iterator[Request]:
    """Requests that together have all that is wanted, in order."""
    return (Request(tuple(run)) for run in ranges.runs(_cut(wanted), _goes_with))


def _cut(wanted: Iterable[Wanted]) -> Iterator[Wanted]:
    """Extents in steps that end on a line of the object's grid, so that no block is read twice."""
    for one in wanted:
        copy, span = one.extent.copies[0], one.extent.range
        step = LOCAL_STEP_BYTES if copy.object.tier is Tier.LOCAL else STEP_BYTES
        at = span.start
        while at < span.end:
            held = copy.range.start + at - span.start
            end = min(span.end, at + step - held % step)
            yield Wanted(one.owner, one.extent.clipped(ByteRange(at, end)))
            at = end


def _goes_with(waiting: Sequence[Wanted], one: Wanted) -> bool:
    first, last, new = waiting[0], waiting[-1].extent.copies[0], one.extent.copies[0]
    if new.object.id != last.object.id or new.object.encoding is not PayloadEncoding.RAW:
        return False
    return last.range.end <= new.range.start <= last.range.end + _GAP_BYTES and one.blocks.end - first.blocks.start <= (
        LOCAL_STEP_BYTES if new.object.tier is Tier.LOCAL else STEP_BYTES
    )
