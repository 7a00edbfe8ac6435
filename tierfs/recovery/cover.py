"""Which objects make up a segment: a cover without overlaps, the newest owner's and the largest first. Pure.

A higher epoch wins, because after a recovery offsets may have been written again; of one epoch the larger
object wins, because it was made of the smaller ones. An object that overlaps a better one is left out
whole: what of it would not overlap may be of a past that was given up.

What was found of a store in a bucket without a journal: objects that say what they are, and those that do not.

Reading every chosen object once: its bytes against the CRC32C it was written with, and a new checksum grid.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tierfs import names, ranges
from tierfs.checksum import GridBuilder, crc32c, grid_of
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.chunkstore.validate import READ_STEP_BYTES, read_steps
from tierfs.errors import DataLoss, NotFound, TierfsError
from tierfs.journal.reader import READ_AHEAD
from tierfs.metadata import checksums
from tierfs.metadata.journal_state import MAX_EPOCH
from tierfs.parallel import Meter, Pool
from tierfs.tiering import packs
from tierfs.types import ByteRange

_MAX_SEGMENT_ID = 2**62
"""Far more than a counter reaches, and it can go on from there."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One object of a store, by its own words."""

    name: str
    etag: str
    modified_ms: int
    store_id: str
    """Empty where it does not tell."""
    segment_id: int
    path: str
    start: int
    end: int
    epoch: int
    attempt: str
    crc32c: int | None
    """Of the segment's bytes; None where neither name nor metadata tell it: an old object of which a copy dropped the
    metadata."""
    pack_bytes: int = 0
    """Size of the pack that holds them among others; 0: they are the whole object."""
    object_offset: int = 0

    @property
    def length_bytes(self) -> int:
        """How many of the segment's bytes it has."""
        return self.end - self.start

    @property
    def object_bytes(self) -> int:
        """Size of the object."""
        return self.pack_bytes or self.length_bytes

    @property
    def label(self) -> str:
        """What it is called where it is left aside."""
        return f"{self.name}, {self.path} from {self.start}" if self.pack_bytes else self.name


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An object that was not linked, and why."""

    name: str
    why: str


def checked_path(found: FoundObject) -> str:
    """The name of the segment. Raises DataLoss for a segment or an owner that cannot be."""
    if not (0 < found.segment_id <= _MAX_SEGMENT_ID and 0 < found.epoch <= MAX_EPOCH):
        raise DataLoss("it names an impossible segment or owner")
    try:
        path = names.join(names.split(found.path))
    except TierfsError as exc:
        raise DataLoss(f"it names an impossible segment: {exc}") from exc
    if path != found.path or not path or names.is_removed(path):
        raise DataLoss("it names an impossible segment")
    return path


@dataclass(frozen=True, slots=True)
class ObjectCover:
    """A choice of objects, in offset order, and those that it leaves out."""

    chosen: tuple[FoundObject, ...]
    left: tuple[FoundObject, ...]

    @property
    def gaps(self) -> tuple[ByteRange, ...]:
        """What is missing between the chosen objects."""
        held = [ByteRange(one.start, one.end) for one in self.chosen]
        return tuple(ranges.gaps(ByteRange(held[0].start, held[-1].end), held)) if held else ()


def choose(objects: Sequence[FoundObject]) -> ObjectCover:
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
    return ObjectCover(tuple(row[2] for row in placed), tuple(left))


Grids = dict[str, tuple[int, ...]]
"""CRC32C of each 128 KiB of the object, by label."""


class Packs:
    """Packs that were read: each once, though many segments have bytes in it. Thread-safe."""

    def __init__(self) -> None:
        self._grids: dict[str, tuple[bytes, bool]] = {}
        """Block CRCs, four bytes each, and whether all of the pack is what it was."""
        self._lock = threading.Lock()

    def read_grid(self, storage: ChunkStorage, one: FoundObject) -> tuple[int, ...]:
        """The grid of the pack that holds `one`. Raises DataLoss when these bytes are not what they were.

        A pack with one bad byte has many good segments: then the entry's own CRC decides.
        """
        with self._lock:
            if one.name not in self._grids:
                found = _sum_up(storage, one)
                said = packs.parse_name(one.name)
                sound = said is not None and found.crc32c == said.crc32c
                self._grids[one.name] = (checksums.pack(found.grid()), sound)
            packed, sound = self._grids[one.name]
        if not sound:
            _check_entry(storage, one)
        return struct.unpack(f">{len(packed) // 4}I", packed)


def verified_cover(
    storage: ChunkStorage, objects: Sequence[FoundObject], packs: Packs, advance: Meter
) -> tuple[ObjectCover, Grids, list[LeftOver]]:
    """The best cover of undamaged objects, their grids, and what is damaged.

    A damaged object makes room for what it was made of, which is read in its turn. Raises what the storage
    raises but for damage.
    """
    grids: Grids = {}
    damaged: list[LeftOver] = []
    candidates = list(objects)
    while True:
        cover = choose(candidates)
        unread = [one for one in cover.chosen if one.label not in grids]
        if not unread:
            return cover, grids, damaged
        broken = _read_all(storage, unread, packs, grids, advance)
        damaged += broken
        labels = {one.name for one in broken}
        candidates = [one for one in candidates if one.label not in labels]


def _read_all(
    storage: ChunkStorage, objects: Iterable[FoundObject], packs: Packs, grids: Grids, advance: Meter
) -> list[LeftOver]:
    """Read objects, several at once; returns those that are damaged."""

    def read(one: FoundObject) -> tuple[FoundObject, tuple[int, ...] | LeftOver]:
        try:
            return one, packs.read_grid(storage, one) if one.pack_bytes else read_grid(storage, one)
        except (DataLoss, NotFound) as exc:
            return one, LeftOver(one.label, f"it is damaged: {exc}")

    broken: list[LeftOver] = []
    with Pool(READ_AHEAD, "tierfs-recover") as pool:
        for one, grid in pool.in_order(read, objects, ahead=READ_AHEAD):
            if isinstance(grid, LeftOver):
                broken.append(grid)
            else:
                grids[one.label] = grid
            advance(one.length_bytes, one.path)
    return broken


def read_grid(storage: ChunkStorage, one: FoundObject) -> tuple[int, ...]:
    """The grid of an object. Raises DataLoss when its bytes are not those it was written with, if anything tells."""
    found = _sum_up(storage, one)
    if one.crc32c is not None and found.crc32c != one.crc32c:
        raise _differs(found.crc32c, one)
    return tuple(found.grid())


def _sum_up(storage: ChunkStorage, one: FoundObject) -> GridBuilder:
    """Read the whole object, as it is now."""
    return grid_of(read_steps(storage, StoredObject(one.name, one.object_bytes, one.etag)))


def _check_entry(storage: ChunkStorage, one: FoundObject) -> None:
    crc, buffer = 0, memoryview(bytearray(min(READ_STEP_BYTES, one.length_bytes)))
    for start in range(0, one.length_bytes, READ_STEP_BYTES):
        view = buffer[: min(READ_STEP_BYTES, one.length_bytes - start)]
        storage.read_into(one.name, one.object_offset + start, view, if_match=one.etag)
        crc = crc32c(view, crc)
    if crc != one.crc32c:
        raise _differs(crc, one)


def _differs(found: int, one: FoundObject) -> DataLoss:
    return DataLoss(f"its CRC32C is {found:08x}, it was written with {one.crc32c or 0:08x}")
