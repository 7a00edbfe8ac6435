"""Readers over test stores: opened, read to the end, and the marks that they leave."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from tests.stores import TestStore
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import ChunkState, Tier
from tierfs.engine.metadata import chains
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader

POLICY = {"chunk_bytes": "300000", "object_bytes": "700000", "read_priority": "local-first"}
DATA = random.Random(9).randbytes(3_000_007)
LATE_S, POLL_S = 60.0, 0.01


def reader_of(store: TestStore, **settings: object) -> StoreReader:
    """Return a reader as a new process would make it."""
    return StoreReader(store.metadata, store.files, lambda _: store.cold, ReadSettings(**settings), NullMetrics())  # type: ignore[arg-type]


@asynccontextmanager
async def reading(
    store: TestStore, name: str = "s", **settings: object
) -> AsyncIterator[tuple[StoreReader, ReadHandle]]:
    """A reader that has a segment open."""
    async with reader_of(store, **settings) as reader:
        handle = reader.open(store.segment(name).id)
        yield reader, handle
        handle.close()


async def check(handle: ReadHandle, offset: int, size_bytes: int, data: bytes = DATA) -> None:
    """Read a range of a segment whose bytes are `data`."""
    assert bytes(await handle.read(offset, size_bytes)) == data[offset : offset + size_bytes]


async def read_all(handle: ReadHandle, length: int, step: int = 131_072) -> bytes:
    """Return so many bytes from the start, read one step after the other."""
    out = bytearray()
    while len(out) < length:
        data = bytes(await handle.read(len(out), step))
        assert data
        out += data
    return bytes(out)


def make_cold(store: TestStore, name: str = "s", data: bytes = DATA) -> None:
    """Make a sealed segment whose bytes are in the cold tier alone."""
    store.append(name, data, seal=True)
    store.offload(name)
    store.evict(name)


def states(store: TestStore, tier: Tier, name: str = "s") -> list[ChunkState]:
    """Return the states of a segment's chunks."""
    with store.metadata.read() as txn:
        return [chunk.state for chunk in chains.chunks(txn, store.segment(name).id, tier)]


async def reached(condition: Callable[[], bool]) -> None:
    """Wait until the reader is in a state for which it has no event."""
    with trio.fail_after(LATE_S):
        while not condition():  # noqa: ASYNC110 - the reader has no event for it
            await trio.sleep(POLL_S)
