"""Reading every chosen object once: its bytes against the CRC32C it was written with, and a new checksum grid."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Sequence

from tierfs.checksum import GridBuilder, crc32c, grid_of
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.chunkstore.steps import STEP_BYTES, read_steps
from tierfs.errors import DataLoss, NotFound
from tierfs.metadata import checksums, pack
from tierfs.parallel import Meter, Pool
from tierfs.recovery.bucket import READ_AHEAD
from tierfs.recovery.cover import Cover, choose
from tierfs.recovery.found import FoundObject, LeftOver

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
                said = pack.parse_name(one.name)
                sound = said is not None and found.crc32c == said.crc32c
                self._grids[one.name] = (checksums.pack(found.grid()), sound)
            packed, sound = self._grids[one.name]
        if not sound:
            _check_entry(storage, one)
        return struct.unpack(f">{len(packed) // 4}I", packed)


def verified_cover(
    storage: ChunkStorage, objects: Sequence[FoundObject], packs: Packs, advance: Meter
) -> tuple[Cover, Grids, list[LeftOver]]:
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
    crc, buffer = 0, memoryview(bytearray(min(STEP_BYTES, one.length_bytes)))
    for start in range(0, one.length_bytes, STEP_BYTES):
        view = buffer[: min(STEP_BYTES, one.length_bytes - start)]
        storage.read_into(one.name, one.object_offset + start, view, if_match=one.etag)
        crc = crc32c(view, crc)
    if crc != one.crc32c:
        raise _differs(crc, one)


def _differs(found: int, one: FoundObject) -> DataLoss:
    return DataLoss(f"its CRC32C is {found:08x}, it was written with {one.crc32c or 0:08x}")
