"""Blocks for cache tests: the bytes of any object, their checksums, and a process that stores until it is killed.

    python -m tests.reading.cache.cache_blocks DIRECTORY SIZE SEED

prints `working` and stores ranges of random objects for ever.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from pathlib import Path

from tierfs.base.bytes.checksum import block_crcs
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ObjectId
from tierfs.engine.metadata.records import ChecksumRun
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.fetch.grid import Grid, grid_of

STORE_ID = "0123456789abcdef" * 2
BLOCK = CRC_BLOCK_BYTES
OBJECT_BYTES = 5 * BLOCK + 1000
"""The last block is short."""

BLOCKS = -(-OBJECT_BYTES // BLOCK)
OBJECTS = 12

HEADER_BYTES = 64
RECORD_BYTES = 32
"""As in docs/format.md."""

Open = Callable[..., DiskCache]
"""Opens the test's cache, after closing the one before: slots, store_id, at (the directory), floor."""


def size_for(slots: int) -> int:
    """The smallest cache of so many slots."""
    return HEADER_BYTES + slots * (BLOCK + RECORD_BYTES)


@functools.cache
def content(object_id: int) -> bytes:
    """All bytes of an object."""
    return random.Random(object_id).randbytes(OBJECT_BYTES)


@functools.cache
def grid(object_id: int) -> Grid:
    """The checksums of a whole object."""
    crcs = b"".join(crc.to_bytes(4, "big") for crc in block_crcs(content(object_id)))
    run = ChecksumRun(start=0, crcs=crcs, object_id=ObjectId(object_id))
    return grid_of([run], ByteRange(0, OBJECT_BYTES), OBJECT_BYTES)


def store(cache: DiskCache, object_id: int, start: int = 0, end: int = OBJECT_BYTES) -> None:
    """Store a range of an object."""
    cache.store(ObjectId(object_id), start, memoryview(content(object_id))[start:end])


def read(cache: DiskCache, object_id: int, start: int = 0, end: int = OBJECT_BYTES, *, now: bool = False) -> int:
    """Read a range; returns how much was found, all of it right."""
    view = memoryview(bytearray(end - start))
    filled = (cache.read_now if now else cache.read)(ObjectId(object_id), start, view, grid(object_id))
    assert view[:filled] == content(object_id)[start : start + filled]
    return filled


def some_range(chosen: random.Random) -> tuple[int, int, int]:
    """An object and a range of whole blocks in it."""
    first, last = sorted(chosen.sample(range(7), 2))
    return 1 + chosen.randrange(OBJECTS), first * BLOCK, min(last * BLOCK, OBJECT_BYTES)


def _main(directory: str, size: str, seed: str) -> None:
    cache = DiskCache.open(Path(directory), STORE_ID, int(size), NullMetrics())
    assert cache is not None
    chosen = random.Random(int(seed))
    store(cache, *some_range(chosen))
    print("working", flush=True)
    while True:
        store(cache, *some_range(chosen))


if __name__ == "__main__":
    _main(*sys.argv[1:])
