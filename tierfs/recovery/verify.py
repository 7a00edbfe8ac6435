"""Reading every chosen object once: its bytes against the CRC32C it was written with, and a new checksum grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

from tierfs.checksum import block_crcs, whole_crc
from tierfs.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.chunkstore.steps import read_steps
from tierfs.errors import DataLoss, NotFound
from tierfs.recovery.bucket import in_order
from tierfs.recovery.cover import Cover, choose
from tierfs.recovery.inventory import FoundObject, LeftOver

Grids = dict[str, tuple[int, ...]]
"""CRC32C of each 128 KiB, by object name."""

Show = Callable[[int, str], None]
"""Called with the bytes of an object that was read, and its segment."""


def verified_cover(
    storage: ChunkStorage, objects: Sequence[FoundObject], show: Show
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
        unread = [one for one in cover.chosen if one.name not in grids]
        if not unread:
            return cover, grids, damaged
        broken = _read_all(storage, unread, grids, show)
        damaged += broken
        names = {one.name for one in broken}
        candidates = [one for one in candidates if one.name not in names]


def _read_all(storage: ChunkStorage, objects: Iterable[FoundObject], grids: Grids, show: Show) -> list[LeftOver]:
    """Read objects, several at once; returns those that are damaged."""

    def read(one: FoundObject) -> tuple[FoundObject, tuple[int, ...] | LeftOver]:
        try:
            return one, read_grid(storage, one)
        except (DataLoss, NotFound) as exc:
            return one, LeftOver(one.name, f"it is damaged: {exc}")

    broken: list[LeftOver] = []
    with closing(in_order(objects, read)) as found:
        for one, grid in found:
            if isinstance(grid, LeftOver):
                broken.append(grid)
            else:
                grids[one.name] = grid
            show(one.length_bytes, one.path)
    return broken


def read_grid(storage: ChunkStorage, one: FoundObject) -> tuple[int, ...]:
    """The grid of an object. Raises DataLoss when its bytes are not those it was written with, if anything tells."""
    version = StoredObject(one.name, one.length_bytes, one.etag)
    crcs = [crc for step in read_steps(storage, version) for crc in block_crcs(step)]
    found = whole_crc(crcs, one.length_bytes)
    if one.crc32c is not None and found != one.crc32c:
        raise DataLoss(f"its CRC32C is {found:08x}, it was written with {one.crc32c:08x}")
    return tuple(crcs)
