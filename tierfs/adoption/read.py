"""Reading foreign objects once, for the checksums every later read is checked against (invariant 8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tierfs.adoption.plan import SegmentPlan
from tierfs.checksum import GridBuilder, combine
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.errors import Conflict, DataLoss
from tierfs.metadata import checksums
from tierfs.names import printable
from tierfs.types import CRC_BLOCK_BYTES, MIB

_STEP_BYTES = 8 * MIB
"""Bytes per request, and memory per job: the size of a part of our own uploads."""

_PART_BYTES = 64 * MIB
"""What one job reads without a break; a multiple of the grid, so that parts' grids join."""

assert _PART_BYTES % _STEP_BYTES == 0
assert _STEP_BYTES % CRC_BLOCK_BYTES == 0


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an object that one job reads."""

    extent: int
    """Which extent of the segment."""
    object: StoredObject
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sums:
    """Checksums of consecutive bytes: the packed CRCs of their blocks, and the CRC of all."""

    packed: bytes = b""
    crc32c: int = 0

    def plus(self, other: Sums, other_bytes: int) -> Sums:
        """With the bytes behind."""
        return Sums(self.packed + other.packed, combine(self.crc32c, other.crc32c, other_bytes))


def parts_of(plan: SegmentPlan) -> Iterator[Part]:
    """All bytes of all objects of a segment, in order."""
    for index, extent in enumerate(plan.extents):
        length = extent.object.length_bytes
        for start in range(0, length, _PART_BYTES):
            yield Part(index, extent.object, start, min(start + _PART_BYTES, length))


def read_part(storage: ChunkStorage, part: Part) -> Sums:
    """Read one part and sum it up.

    Raises Conflict when the object is another by now than the one that was listed, and what the storage
    raises. Servers that ignore If-Match are found out by the look afterwards.
    """
    try:
        sums = _read(storage, part)
    except DataLoss:
        _require_unchanged(storage, part.object)
        raise
    _require_unchanged(storage, part.object)
    return sums


def join(parts: list[tuple[Part, Sums]], extents: int) -> list[Sums]:
    """The sums of each extent's object, from those of all parts in any order."""
    found = [Sums()] * extents
    for part, sums in sorted(parts, key=lambda one: (one[0].extent, one[0].start)):
        found[part.extent] = found[part.extent].plus(sums, part.end - part.start)
    return found


def _read(storage: ChunkStorage, part: Part) -> Sums:
    buffer = memoryview(bytearray(min(_STEP_BYTES, part.end - part.start)))
    grid = GridBuilder()
    for start in range(part.start, part.end, _STEP_BYTES):
        view = buffer[: min(_STEP_BYTES, part.end - start)]
        storage.read_into(part.object.name, start, view, if_match=part.object.etag)
        grid.feed(view)
    return Sums(checksums.pack(grid.grid()), grid.crc32c)


def _require_unchanged(storage: ChunkStorage, listed: StoredObject) -> None:
    found = storage.stat(listed.name)
    if (found.etag, found.length_bytes) != (listed.etag, listed.length_bytes):
        raise Conflict(
            f"{printable(listed.name)}: it changed while it was read", remedy="adopt it when nobody writes to it"
        )
