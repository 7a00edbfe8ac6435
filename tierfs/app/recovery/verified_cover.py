"""Verify the objects that make up a segment: each chosen one is read once, and compared with its CRC32C.

A damaged object makes room for the smaller ones that it was made of. The reads yield a new checksum grid.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from tierfs.app.found_objects import FoundObject, LeftOver
from tierfs.app.recovery.cover import ObjectCover, choose
from tierfs.base.bytes.checksum import grid_of, proved_sums
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.engine.chunkstore.link import streams_to
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import read_steps
from tierfs.engine.metadata import checksums
from tierfs.tiering.packs import format as packs

# Objects read at once far from the server: 128 MiB of memory.
_MOST_AT_ONCE = 16

# CRC32C of each 128 KiB of the object, by label.
Grids = dict[str, tuple[int, ...]]


class Packs:
    """Checksums of packs: each pack is read once, though many segments have bytes in it. Thread-safe."""

    def __init__(self) -> None:
        self._grids: dict[str, tuple[bytes, bool]] = {}
        """Block CRCs, four bytes each, and whether the whole pack is undamaged."""
        self._lock = threading.Lock()

    def read_grid(self, storage: ChunkStorage, entry: FoundObject) -> tuple[int, ...]:
        """Return the grid of the pack that holds `entry`. Raises DataLoss when these bytes are damaged.

        A pack with one bad byte has many good segments: then the entry's own CRC decides.
        """
        with self._lock:
            if entry.name not in self._grids:
                named, read = packs.parse_name(entry.name), _reading(storage, entry, 0, entry.object_bytes)
                sums = grid_of(read())
                if named is not None and sums.crc32c != named.crc32c:
                    sums = grid_of(read())  # a transfer damages bytes once
                sound = named is not None and sums.crc32c == named.crc32c
                self._grids[entry.name] = (checksums.pack(sums.grid()), sound)
            packed, sound = self._grids[entry.name]
        if not sound:
            assert entry.crc32c is not None, "the index of a pack has that of each entry"
            proved_sums(_reading(storage, entry, entry.object_offset, entry.length_bytes), entry.crc32c)
        return struct.unpack(f">{len(packed) // 4}I", packed)


def _reading(
    storage: ChunkStorage, item: FoundObject, offset: int, length_bytes: int
) -> Callable[[], Iterator[memoryview]]:
    """Return a function that begins to read a part of an object, as it is now."""
    stored = StoredObject(item.name, item.object_bytes, item.etag)
    return partial(read_steps, storage, stored, offset, offset + length_bytes)


def verified_cover(
    storage: ChunkStorage, objects: Sequence[FoundObject], packs: Packs, advance: Meter
) -> tuple[ObjectCover, Grids, list[LeftOver]]:
    """Return the best cover of undamaged objects, their grids, and the damaged objects.

    A damaged object makes room for the smaller ones that it was made of, which are then read. Raises storage errors,
    except for damage.
    """
    grids: Grids = {}
    damaged: list[LeftOver] = []
    candidates = list(objects)
    while True:
        cover = choose(candidates)
        unread = [chosen for chosen in cover.chosen if chosen.label not in grids]
        if not unread:
            return cover, grids, damaged
        broken = _read_all(storage, unread, packs, grids, advance)
        damaged += broken
        labels = {leftover.name for leftover in broken}
        candidates = [candidate for candidate in candidates if candidate.label not in labels]


def _read_all(
    storage: ChunkStorage, objects: Iterable[FoundObject], packs: Packs, grids: Grids, advance: Meter
) -> list[LeftOver]:
    """Read objects, as many at once as fill the link; return the damaged ones."""

    def read(item: FoundObject) -> tuple[FoundObject, tuple[int, ...] | LeftOver]:
        try:
            return item, packs.read_grid(storage, item) if item.pack_bytes else read_grid(storage, item)
        except (DataLoss, NotFound) as exc:
            return item, LeftOver(item.label, f"it is damaged: {exc}")

    broken: list[LeftOver] = []
    at_once = streams_to(storage, _MOST_AT_ONCE)
    with Pool(at_once, "tierfs-recover") as pool:
        for item, grid in pool.in_order(read, objects, ahead=at_once):
            if isinstance(grid, LeftOver):
                broken.append(grid)
            else:
                grids[item.label] = grid
            advance(item.length_bytes, item.path)
    return broken


def read_grid(storage: ChunkStorage, item: FoundObject) -> tuple[int, ...]:
    """Return the grid of an object. Raises DataLoss when its bytes contradict its CRC32C, if that is known."""
    read = _reading(storage, item, 0, item.object_bytes)
    sums = grid_of(read()) if item.crc32c is None else proved_sums(read, item.crc32c)
    return tuple(sums.grid())
