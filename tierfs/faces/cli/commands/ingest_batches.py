"""Copy small files into new segments: a batch of them in one commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tierfs.app.store import Store
from tierfs.base.bytes import ranges
from tierfs.base.system import osio
from tierfs.base.words.errors import InvalidRequest, NotDirectory, TierfsError
from tierfs.base.words.types import MIB
from tierfs.engine.metadata import directories
from tierfs.engine.segments.bulk_create import BulkCreator, WholeSegment
from tierfs.faces.cli.commands.ingest_files import file_of
from tierfs.faces.cli.commands.ingest_plan import Item

# Limit of a file in a batch; a longer one is appended alone, as its syncs are a small part of it (guess).
SMALL_FILE_BYTES = MIB

# Least size of a read: a file that was empty at planning may have grown since.
_LEAST_READ_BYTES = 4096

# Memory of one batch; each of --jobs has one.
_BATCH_BYTES = 16 * MIB

# Limit of one commit: it takes some 50 ms, and other writers wait for it.
_BATCH_FILES = 256

# Open files in the batches of all --jobs, each kept until its commit: half of the usual limit of 1024.
_OPEN_FILES = 512


def batches(items: Iterator[Item], jobs: int) -> Iterator[list[Item]]:
    """Return consecutive files in batches for `jobs` parallel calls of `ingest_batch`; a long file is its own batch."""
    most_files = max(1, min(_BATCH_FILES, osio.open_files_within_limit(_OPEN_FILES) // jobs))

    def cost(item: Item) -> int:
        return item.size_bytes if item.size_bytes <= SMALL_FILE_BYTES else _BATCH_BYTES + 1  # alone

    return ranges.groups(items, cost, _BATCH_BYTES, most_files)


def ingest_batch(store: Store, bulk: BulkCreator, batch: Sequence[Item], *, seal: bool) -> list[tuple[Item, int]]:
    """Create the segments of small files; return those that are durable now, with their bytes.

    FileIngest handles the others one by one: it continues, compares, waits for room or reports errors.
    """
    missing: list[Item] = []
    if len(batch) > 1:  # one alone has nothing to share a commit with
        with store.metadata.read() as txn:
            for item in batch:
                with suppress(InvalidRequest, NotDirectory):
                    if directories.find(txn, item.segment) is None:
                        missing.append(item)
    whole = [(item, segment) for item in missing if (segment := _small_file(item)) is not None]
    if not whole:
        return []
    try:
        created = bulk.create([segment for _, segment in whole], seal=seal)
    except TierfsError:
        return []  # FileIngest meets the same error and reports it by file
    return [(item, segment.file.length) for (item, segment), made in zip(whole, created, strict=True) if made]


def _small_file(item: Item) -> WholeSegment | None:
    """Read a file as a segment; None if it has grown long or cannot be read, which FileIngest reports."""
    if item.packed:
        return None  # FileIngest reads it to its end first
    try:
        fd = os.open(item.path, os.O_RDONLY | os.O_CLOEXEC)  # a file object costs twice as much
        try:
            status = os.fstat(fd)
            data = bytearray()
            while len(data) <= SMALL_FILE_BYTES:
                more = os.read(fd, max(item.size_bytes, _LEAST_READ_BYTES) + 1)
                if not more:
                    return WholeSegment(item.segment, data, file_of(status, len(data)))
                data += more
        finally:
            os.close(fd)
    except OSError:
        return None
    return None
