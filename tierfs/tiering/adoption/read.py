"""Read foreign objects once, for the checksums that every later read is checked against (invariant 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tierfs.base.bytes.checksum import combine, grid_of
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import Conflict, DataLoss
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import read_steps
from tierfs.engine.metadata import checksums
from tierfs.tiering.adoption.plan import ForeignExtent
from tierfs.tiering.adoption.prove import NOTHING_PROVED, Comparison, Proof, Proved, require_proved

# Bytes that one job reads in sequence; a multiple of the grid, so that parts' grids join.
_PART_BYTES = 64 * MIB

assert _PART_BYTES % CRC_BLOCK_BYTES == 0


@dataclass(frozen=True, slots=True)
class PartSums:
    """Checksums of consecutive bytes: the packed CRCs of their blocks, and the CRC of all."""

    packed: bytes = b""
    crc32c: int = 0
    proved: Proved = NOTHING_PROVED

    def plus(self, other: PartSums, other_bytes: int) -> PartSums:
        """Return the sums including the bytes that follow."""
        return PartSums(self.packed + other.packed, combine(self.crc32c, other.crc32c, other_bytes))


@dataclass(frozen=True, slots=True)
class ExtentRead:
    """An extent whose object is to be read."""

    extent: ForeignExtent
    start: int = 0
    """First byte to read, on the grid."""
    known: PartSums = PartSums()
    """Sums of the bytes before it."""
    proofs: tuple[Proof, ...] = ()
    """Of the bytes to read; in order, and they do not overlap."""


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A piece of an object that one job reads."""

    extent: int
    """Index of the extent among those to read."""
    object: StoredObject
    start: int
    end: int
    segment_start: int = 0
    """Offset of the object's first byte in the segment."""
    proofs: tuple[Proof, ...] = ()
    appended: bool = False
    """Whether its system appends to it, perhaps while it is read."""


def parts_of(reads: Sequence[ExtentRead], *, appended: bool = False) -> Iterator[ReadPart]:
    """Yield the parts of all objects to read, in order."""
    for index, read in enumerate(reads):
        held, begins = read.extent.object, read.extent.start_offset
        for start in range(read.start, held.length_bytes, _PART_BYTES):
            end = min(start + _PART_BYTES, held.length_bytes)
            yield ReadPart(index, held, start, end, begins, read.proofs, appended)


def read_part(storage: ChunkStorage, part: ReadPart) -> PartSums:
    """Read one part and return its checksums.

    Raises Conflict when the object changed since it was listed, but for bytes appended; AlreadyExists when a block
    differs that was linked before; and storage errors. A stat afterwards detects changes on servers that ignore
    If-Match.
    """
    comparison = Comparison(part.proofs, part.object.name, part.segment_start, part.start)
    try:
        steps = read_steps(storage, part.object, part.start, part.end, appended=part.appended)
        sums = grid_of(comparison.passed(steps))
    except DataLoss:
        _require_unchanged(storage, part)
        raise
    _require_unchanged(storage, part)
    return PartSums(checksums.pack(sums.grid()), sums.crc32c, comparison.proved())


def join(parts: list[tuple[ReadPart, PartSums]], reads: Sequence[ExtentRead]) -> list[PartSums]:
    """Return the sums of each object to read, from those of all parts in any order.

    Raises AlreadyExists when they do not hold the bytes that were linked before.
    """
    joined = [read.known for read in reads]
    for part, sums in sorted(parts, key=lambda pair: (pair[0].extent, pair[0].start)):
        joined[part.extent] = joined[part.extent].plus(sums, part.end - part.start)
    require_proved([proof for read in reads for proof in read.proofs], [sums.proved for _, sums in parts])
    return joined


def _require_unchanged(storage: ChunkStorage, part: ReadPart) -> None:
    listed, present = part.object, storage.stat(part.object.name)
    if part.appended and present.length_bytes > listed.length_bytes:
        return  # the bytes up to its listed length are those that were read, and the next adoption proves them
    if (present.etag, present.length_bytes) != (listed.etag, listed.length_bytes):
        raise Conflict(
            f"{printable(listed.name)}: it changed while it was read", remedy="adopt it when it is no longer written to"
        )
