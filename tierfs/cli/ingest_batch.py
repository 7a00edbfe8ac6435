"""Batches of small files of an ingest: read together, created in one commit.

A file whose segment exists, or that turns out to be long, is left to ingest_file.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tierfs.app import Store
from tierfs.cli.ingest_plan import Item, file_of
from tierfs.errors import InvalidRequest, NotDirectory, TierfsError
from tierfs.metadata import directories
from tierfs.segments.bulk_create import BulkCreator, WholeSegment
from tierfs.types import MIB

_SMALL_FILE_BYTES = MIB
"""A longer file is appended by itself: its syncs are a small part of it (guess)."""

_LEAST_READ_BYTES = 4096
"""A file that was empty when the plan was made may have grown since."""

_BATCH_BYTES = 16 * MIB
"""Memory of one batch; each of --jobs has one."""

_BATCH_FILES = 256
"""A commit of some 50 ms, which other writers wait for."""

_OPEN_FILES = 512
"""Descriptors of the batches of all --jobs, each held until its commit: half of 1024, which is the usual limit."""


def batches(items: Iterator[Item], jobs: int) -> Iterator[list[Item]]:
    """Consecutive files in batches that `ingest_batch` takes, `jobs` at once; a long file is a batch of its own."""
    most_files = min(_BATCH_FILES, _OPEN_FILES // jobs)
    batch: list[Item] = []
    size_bytes = 0
    for item in items:
        if batch and (len(batch) == most_files or size_bytes + item.size_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        if item.size_bytes > _SMALL_FILE_BYTES:
            if batch:
                yield batch
            yield [item]
            batch, size_bytes = [], 0
            continue
        batch.append(item)
        size_bytes += item.size_bytes
    if batch:
        yield batch


def ingest_batch(store: Store, bulk: BulkCreator, batch: Sequence[Item], *, seal: bool) -> list[tuple[Item, int]]:
    """Create the segments of small files; returns those that are durable now, with their bytes.

    The others are for FileIngest, one by one, which continues, compares, waits for room or says what is wrong."""
    whole = [(item, found) for item in _missing(store, batch) if (found := _small_file(item)) is not None]
    if not whole:
        return []
    try:
        created = bulk.create([found for _, found in whole], seal=seal)
    except TierfsError:
        return []  # FileIngest meets the same trouble and reports it by file
    return [(item, found.file.length) for (item, found), made in zip(whole, created, strict=True) if made]


def _missing(store: Store, batch: Sequence[Item]) -> list[Item]:
    """The files whose segments do not exist."""
    if len(batch) == 1:
        return []  # nothing to share a commit with
    missing: list[Item] = []
    with store.metadata.read() as txn:
        for item in batch:
            with suppress(InvalidRequest, NotDirectory):
                if directories.find(txn, item.segment) is None:
                    missing.append(item)
    return missing


def _small_file(item: Item) -> WholeSegment | None:
    """A file as a segment; None when it is long by now, or cannot be read, which FileIngest reports."""
    try:
        fd = os.open(item.path, os.O_RDONLY | os.O_CLOEXEC)  # a file object costs twice as much
        try:
            status = os.fstat(fd)
            data = bytearray()
            while len(data) <= _SMALL_FILE_BYTES:
                more = os.read(fd, max(item.size_bytes, _LEAST_READ_BYTES) + 1)
                if not more:
                    return WholeSegment(item.segment, data, file_of(status, len(data)))
                data += more
        finally:
            os.close(fd)
    except OSError:
        return None
    return None
