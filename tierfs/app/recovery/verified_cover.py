"""Verify the objects that make up a segment: each chosen one is read once, and compared with its CRC32C.

A damaged object makes room for the smaller ones that it was made of. The reads yield a new checksum grid, and of
compressed objects the places of their frames.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from tierfs.app.found_objects import FoundObject, LeftOver, Storages
from tierfs.app.recovery.cover import ObjectCover, choose
from tierfs.base.bytes.checksum import grid_of, proved_sums, twice
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.link import streams_to
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.sequential_read import read_steps
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.reading import compressed_objects
from tierfs.reading.compressed_objects import CompressedSums
from tierfs.tiering.packs import format as packs

# Objects read at once far from the server: 128 MiB of memory.
_MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FoundSums:
    """Result of reading an object."""

    grid: array[int]
    """CRC32C of each 128 KiB of its plain bytes."""
    frames: FrameMap | None = None
    """Of a compressed object."""
    stored_crc32c: int | None = None
    """Of all stored bytes of a compressed object."""


# By the label of the object.
SumsByLabel = dict[str, FoundSums]


class Packs:
    """Checksums of packs: each pack is read once, though many segments have bytes in it. Thread-safe."""

    def __init__(self) -> None:
        self._packs: dict[tuple[bool, str], tuple[FoundSums, bool]] = {}
        """Sums, and whether the whole pack is undamaged."""
        self._lock = threading.Lock()

    def read_sums(self, storage: ChunkStorage, entry: FoundObject) -> FoundSums:
        """Return the sums of the pack that holds `entry`. Raises DataLoss when these bytes are damaged.

        A pack with one bad byte has many good segments: then the entry's own CRC decides.
        """
        with self._lock:
            if entry.key not in self._packs:
                named = packs.parse_name(entry.name)
                sums, crc32c = _sums(storage, entry)
                if named is not None and crc32c != named.crc32c:
                    sums, crc32c = _sums(storage, entry)  # a transfer damages bytes once
                sound = named is not None and crc32c == named.crc32c
                self._packs[entry.key] = sums, sound
            sums, sound = self._packs[entry.key]
        if not sound:
            assert entry.crc32c is not None, "the index of a pack has that of each entry"
            proved_sums(_reading(storage, entry, entry.object_offset, entry.length_bytes), entry.crc32c)
        return sums


def _sums(storage: ChunkStorage, entry: FoundObject) -> tuple[FoundSums, int]:
    """Read a whole pack once; return its sums and its CRC32C. Frames that do not unpack count as zeros."""
    if entry.compressed_bytes:
        whole = twice(lambda: compressed_objects.summed(storage, entry.stored, entry.object_bytes, zeros=True))
        return _of_compressed(whole), whole.crc32c
    sums = grid_of(read_steps(storage, entry.stored))
    return FoundSums(sums.grid()), sums.crc32c


def _of_compressed(sums: CompressedSums) -> FoundSums:
    return FoundSums(sums.grid, sums.frames, sums.stored_crc32c)


def _reading(
    storage: ChunkStorage, item: FoundObject, offset: int, length_bytes: int
) -> Callable[[], Iterator[memoryview]]:
    """Return a function that begins to read a part of an object's plain bytes, as it is now."""
    if not item.compressed_bytes:
        return partial(read_steps, storage, item.stored, offset, offset + length_bytes)
    wanted = ByteRange(offset, offset + length_bytes)

    def read() -> Iterator[memoryview]:
        compressed = compressed_objects.opened(storage, item.stored, item.object_bytes)
        return compressed_objects.plain_steps(storage, compressed, wanted)

    return read


def verified_cover(
    storages: Storages, objects: Sequence[FoundObject], packs: Packs, advance: Meter
) -> tuple[ObjectCover, SumsByLabel, list[LeftOver]]:
    """Return the best cover of undamaged objects, their sums, and the damaged objects.

    A damaged object makes room for the smaller ones that it was made of, which are then read. Raises storage errors,
    except for damage.
    """
    sums: SumsByLabel = {}
    damaged: list[LeftOver] = []
    candidates = list(objects)
    while True:
        cover = choose(candidates)
        unread = [chosen for chosen in cover.chosen if chosen.label not in sums]
        if not unread:
            return cover, sums, damaged
        broken = _read_all(storages, unread, packs, sums, advance)
        damaged += broken
        labels = {leftover.name for leftover in broken}
        candidates = [candidate for candidate in candidates if candidate.label not in labels]


def _read_all(
    storages: Storages, objects: Sequence[FoundObject], packs: Packs, sums: SumsByLabel, advance: Meter
) -> list[LeftOver]:
    """Read objects, as many at once as fill the link; return the damaged ones."""

    def read(item: FoundObject) -> tuple[FoundObject, FoundSums | LeftOver]:
        storage = storages.of(item)
        try:
            return item, packs.read_sums(storage, item) if item.pack_bytes else read_sums(storage, item)
        except (DataLoss, NotFound) as exc:
            return item, LeftOver(item.label, f"it is damaged: {exc}")

    broken: list[LeftOver] = []
    places = {item.in_archive for item in objects}
    at_once = max(streams_to(storages.at(in_archive=each), _MOST_AT_ONCE) for each in places)
    results: Iterator[tuple[FoundObject, FoundSums | LeftOver]]
    with ExitStack() as stack:
        if len(objects) > 1:
            pool = stack.enter_context(Pool(at_once, "tierfs-recover"))
            results = pool.in_order(read, objects, ahead=at_once)
        else:
            results = map(read, objects)  # most small segments have one, and its pack was read for another
        for item, result in results:
            if isinstance(result, LeftOver):
                broken.append(result)
            else:
                sums[item.label] = result
            advance(item.length_bytes, item.path)
    return broken


def read_sums(storage: ChunkStorage, item: FoundObject) -> FoundSums:
    """Return the sums of an object. Raises DataLoss when its bytes contradict its CRC32C, if that is known."""
    if item.compressed_bytes:
        assert item.crc32c is not None, "the name of a compressed object has it"
        return _of_compressed(compressed_objects.proved(storage, item.stored, item.object_bytes, item.crc32c))
    read = _reading(storage, item, 0, item.object_bytes)
    sums = grid_of(read()) if item.crc32c is None else proved_sums(read, item.crc32c)
    return FoundSums(sums.grid())
