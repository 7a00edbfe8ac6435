"""Reads through the disk cache: what was fetched once is not fetched again, whatever happens to cache and tier."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.readers import make_cold, read_all
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.cache.files import DATA_NAME
from tierfs.reading.cache.slots import SLOT_BYTES
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader

BLOCK = CRC_BLOCK_BYTES
LENGTH = 6 * MIB + 1234
DATA = random.Random(8).randbytes(LENGTH)
STORE_ID = "0123456789abcdef" * 2
CACHE_BYTES = 64 * MIB
BUDGET_BYTES = 4 * MIB
PATIENCE_S = 20.0
PLACES = random.Random(5).sample(range(LENGTH // BLOCK), 20)


@pytest.fixture
def store(tmp_path: Path, storage: ScriptedStorage) -> Iterator[TestStore]:
    policy = {"chunk_bytes": str(MIB), "object_bytes": str(4 * MIB), "read_priority": "local-first"}
    with open_test_store(tmp_path / "store", policy=policy, cold=storage) as opened:
        make_cold(opened, data=DATA)
        yield opened


@dataclass(frozen=True, slots=True)
class Opened:
    """A reader that is in use."""

    reader: StoreReader
    cache: DiskCache
    handle: ReadHandle
    failed: list[int]
    """Locations that were asked for in vain."""


@asynccontextmanager
async def reading(store: TestStore, storage: MemoryStorage | None, **settings: object) -> AsyncIterator[Opened]:
    """A reader with a disk cache as a process has it: the cache holds all that was fetched when it ends.

    Without a storage there is no way to the cold tier.
    """

    failed: list[int] = []

    def storage_of(location_id: int) -> MemoryStorage:
        if storage is None:
            failed.append(location_id)
            raise Unavailable("no way to the cold tier")
        return storage

    cache = DiskCache.open(store.path / "cache", STORE_ID, CACHE_BYTES, NullMetrics(), free_floor_bytes=0)
    assert cache is not None
    chosen = ReadSettings(**settings)  # type: ignore[arg-type]
    async with StoreReader(store.metadata, store.files, storage_of, chosen, NullMetrics(), cache) as reader:
        handle = reader.open(store.segment("s").id)
        yield Opened(reader, cache, handle, failed)
        await settled(reader)  # what is read ahead too: closing the handle would drop it
        handle.close()


async def settled(reader: StoreReader) -> None:
    """Return when nothing is fetched or stored."""
    while reader.fetcher.busy:
        await reader.spans.wait_room()


async def read_in_turn(handle: ReadHandle) -> None:
    assert await read_all(handle, LENGTH) == DATA


async def read_here_and_there(handle: ReadHandle) -> None:
    for place in PLACES:
        await read_block(handle, place)


async def read_block(handle: ReadHandle, number: int, count: int = 1) -> None:
    start, end = number * BLOCK, min((number + count) * BLOCK, LENGTH)
    assert bytes(await handle.read(start, end - start)) == DATA[start:end]


WAYS = {"in turn": read_in_turn, "here and there": read_here_and_there}
ways = pytest.mark.parametrize("way", WAYS)


@ways
async def test_a_restart_fetches_nothing_again(store: TestStore, storage: ScriptedStorage, way: str) -> None:
    async with reading(store, storage) as opened:
        await WAYS[way](opened.handle)
    assert storage.reads
    async with reading(store, None) as opened:
        await WAYS[way](opened.handle)
        assert not opened.failed, "the cold tier is not needed, nor asked for"


async def test_what_left_the_memory_is_not_fetched_again(store: TestStore, storage: ScriptedStorage) -> None:
    async with reading(store, storage, budget_bytes=4 * BLOCK) as opened:
        for _ in range(2):
            for place in PLACES:
                await read_block(opened.handle, place)
                await settled(opened.reader)
    assert len(storage.reads) == len(PLACES)


async def test_ranges_that_are_large_for_the_memory_are_stored_too(store: TestStore, storage: ScriptedStorage) -> None:
    async with reading(store, storage, budget_bytes=3 * MIB) as opened:
        for place in range(0, LENGTH // BLOCK + 1):
            await read_block(opened.handle, place)
            await settled(opened.reader)
    assert max(get.length_bytes for get in storage.reads) > 3 * MIB // 4, "more than may wait for the disk"
    async with reading(store, None) as opened:
        await read_in_turn(opened.handle)


@pytest.mark.parametrize(("every", "fetched"), [(1, 3), (1000, 1)])
async def test_damaged_blocks_are_fetched_again_and_no_others(
    store: TestStore, storage: ScriptedStorage, every: int, fetched: int
) -> None:
    async with reading(store, storage) as opened:
        for place in (3, 8, 20):
            await read_block(opened.handle, place)
    path = store.path / "cache" / DATA_NAME
    data = bytearray(path.read_bytes())
    for start in range(0, len(data), every * SLOT_BYTES):
        data[start + 1000] ^= 1
    path.write_bytes(data)
    storage.reads.clear()
    for readable in (storage, None):  # then they are whole again
        async with reading(store, readable) as opened:
            for place in (3, 8, 20):
                await read_block(opened.handle, place)
    assert [get.length_bytes for get in storage.reads] == [BLOCK] * fetched


async def test_only_what_the_cache_lacks_is_fetched(store: TestStore, storage: ScriptedStorage) -> None:
    async with reading(store, storage) as opened:
        await read_block(opened.handle, 3, 2)
    storage.reads.clear()
    async with reading(store, storage) as opened:
        await read_block(opened.handle, 3, 4)
    (get,) = storage.reads
    assert (get.offset, get.length_bytes) == (5 * BLOCK, 2 * BLOCK)
    async with reading(store, None) as opened:
        await read_block(opened.handle, 3, 4)


class SlowDisk:
    """Holds up what a reader stores until it is told to go on."""

    def __init__(self, cache: DiskCache) -> None:
        self.may_go_on = threading.Event()
        self.stored_bytes = 0
        self._store = cache.store
        cache.store = self.store  # type: ignore[method-assign]

    def store(self, object_id: int, start: int, view: memoryview) -> None:
        assert self.may_go_on.wait(PATIENCE_S)
        self.stored_bytes += len(view)
        self._store(object_id, start, view)  # type: ignore[arg-type]


@ways
async def test_a_slow_disk_holds_up_no_read(store: TestStore, storage: ScriptedStorage, way: str) -> None:
    async with reading(store, storage, budget_bytes=BUDGET_BYTES) as opened:
        reader = opened.reader
        disk = SlowDisk(opened.cache)
        await WAYS[way](opened.handle)
        assert disk.stored_bytes == 0
        assert 0 < reader.fetcher.unstored_bytes <= BUDGET_BYTES // 4, "a quarter of the memory may wait for the disk"
        assert reader.spans.pool.used_bytes <= BUDGET_BYTES
        disk.may_go_on.set()
        await settled(reader)
        assert 0 < disk.stored_bytes < sum(get.length_bytes for get in storage.reads)
        assert reader.fetcher.unstored_bytes == 0
    storage.reads.clear()
    async with reading(store, storage) as opened:
        await WAYS[way](opened.handle)
    assert storage.reads, "what found no place in the queue was not stored"
