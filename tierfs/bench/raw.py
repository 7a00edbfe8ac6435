"""Read objects without tierfs around them: ranges in parallel, as fast as the cold tier delivers."""

from __future__ import annotations

import os
import queue
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tierfs.app.store import Store
from tierfs.chunkstore.directory.storage import DirectoryStorage
from tierfs.chunkstore.link_limit import LinkMeasurement
from tierfs.chunkstore.link_probe import ReadRange, measure_link
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import no_cold_tier
from tierfs.metadata import chains, tables
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import LOCATIONS
from tierfs.parallel import Pool
from tierfs.setup.connect import connect_bare
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, Tier

RANGE_BYTES = 8 * MIB
IN_PARALLEL = 8
"""With these a single reader is as fast as it gets (measured against Ceph RGW: more and larger gain nothing)."""

_MOST_LINK_BYTES = 256 * MIB
"""Several ranges for each stream of a far link."""

_LEAST_LINK_BYTES = 32 * MIB
"""A run that reads less measures its link by reading again."""

SMALL_BYTES = CRC_BLOCK_BYTES
"""The least a mount fetches: what one checksum covers."""


def pieces(store: Store, segment: SegmentRecord, wanted: ByteRange) -> list[ReadRange]:
    """Return the object ranges of a segment's cold bytes, of 8 MiB at most."""
    found: list[ReadRange] = []
    with store.metadata.read() as txn:
        for chunk in chains.overlapping(txn, segment.id, Tier.COLD, wanted):
            if chunk.lost:
                continue
            held = chunk.range.intersect(wanted)
            name = chains.object_of(txn, chunk).name
            for at in range(held.start, held.end, RANGE_BYTES):
                offset = chunk.object_offset + at - chunk.start_offset
                found.append(ReadRange(name, offset, min(RANGE_BYTES, held.end - at)))
    return found


@contextmanager
def bare_storage(store: Store) -> Iterator[ChunkStorage]:
    """The store's cold tier without retries and limits. Raises NoColdTier."""
    location_id = store.cold_location_id
    if location_id is None:
        raise no_cold_tier("the measurement of cold reads")
    with store.metadata.read() as txn:
        location = txn.must_get(LOCATIONS, tables.u32(location_id), f"location {location_id}")
    storage = connect_bare(location, store.path, store.settings.cold)
    try:
        yield storage
    finally:
        storage.close()


def parallel_s(storage: ChunkStorage, wanted: Sequence[ReadRange]) -> float:
    """Seconds of reading all pieces, eight at a time, into memory that was touched before."""
    buffers: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
    for _ in range(IN_PARALLEL):
        buffers.put(bytearray(RANGE_BYTES))

    def read(piece: ReadRange) -> None:
        buffer = buffers.get()
        storage.read_into(piece.name, piece.offset, memoryview(buffer)[: piece.length_bytes])
        buffers.put(buffer)

    forget(storage, wanted)
    with Pool(IN_PARALLEL, "tierfs-bench") as pool:
        started = time.perf_counter()
        pool.run(read, wanted)
        return time.perf_counter() - started


def small_s(storage: ChunkStorage, wanted: Sequence[ReadRange], count: int, chosen: random.Random) -> float:
    """Median seconds of `count` reads of 128 KiB, one after the other, at random."""
    forget(storage, wanted)
    buffer = memoryview(bytearray(SMALL_BYTES))
    taken = []
    for _ in range(count):
        piece = chosen.choice(wanted)
        offset = piece.offset + chosen.randrange(max(1, piece.length_bytes // SMALL_BYTES)) * SMALL_BYTES
        length = min(SMALL_BYTES, piece.offset + piece.length_bytes - offset)
        started = time.perf_counter()
        storage.read_into(piece.name, offset, buffer[:length])
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def link(storage: ChunkStorage, wanted: Sequence[ReadRange], most_streams: int) -> LinkMeasurement:
    """Measure the link by some of the pieces."""
    forget(storage, wanted)
    most_bytes = min(max(sum(piece.length_bytes for piece in wanted), _LEAST_LINK_BYTES), _MOST_LINK_BYTES)
    return measure_link(storage, wanted, most_streams=most_streams, most_bytes=most_bytes)


def forget(storage: ChunkStorage, wanted: Sequence[ReadRange]) -> None:
    """Drop objects that are files here from the page cache; of a server's caches nobody knows."""
    if isinstance(storage, DirectoryStorage):
        for name in {piece.name for piece in wanted}:
            forget_file(storage.root / name)


def forget_file(path: Path) -> None:
    """Drop the file's clean pages from the page cache; one that is gone has none."""
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


Tell = Callable[[str], None]
"""Takes a line that says what is being done."""

RAW = "raw GETs, 8 x 8 MiB"
"""Plain reads of the files where the cold tier is a directory."""

NULL = "null filesystem"
MOUNT_COLD = "mount, cold tier"
MOUNT_LOCAL = "mount, local tier"
RAW_SMALL = "raw GET of 128 KiB, p50"
MOUNT_RANDOM = "mount, random 4 KiB, p50"
