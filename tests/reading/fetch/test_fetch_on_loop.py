"""Small fetches on the loop: who reads sees no difference, whatever the server does."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.reading.cache.cache_blocks import STORE_ID, size_for
from tests.reading.fetch.chaos import CheckedPool
from tests.servers.scripted_http import Do, Script, ScriptedHttp, head
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import Closed, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId, PayloadEncoding, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import ChunkStorage, RangeUrl
from tierfs.engine.metadata import chains, checksums, frame_rows
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.reader import StoreReader

BLOCK = CRC_BLOCK_BYTES
BLOCKS = 8
DATA = random.Random(5).randbytes(BLOCKS * BLOCK)
POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(MIB), "read_priority": "local-first"}
REQUEST, AWAIT_CLOSE, AWAIT_GO, TELL = Do.AWAIT_REQUEST, Do.AWAIT_CLOSE, Do.AWAIT_GO, Do.TELL
PATIENCE_S = 60.0
"""A test that takes longer waits for something that will not happen."""


class RangedStorage(MemoryStorage):
    """Objects a scripted server has too; counts, holds back and damages what threads read."""

    def __init__(self) -> None:
        super().__init__()
        self.url: RangeUrl | None = None
        self.stored = b""
        """Of the only chunk."""
        self.places: list[ByteRange] = [ByteRange(start, start + BLOCK) for start in range(0, len(DATA), BLOCK)]
        """Where its blocks are stored."""
        self.reads: list[tuple[int, int]] = []
        """Offset and length of each read of a chunk."""
        self.damages: deque[int] = deque()
        """Offsets, in their buffers, of the damage of the next reads."""
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def range_url(self, name: str) -> RangeUrl | None:
        return self.url

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        if not name.startswith("segments/"):
            super().read_into(name, offset, buffer, **more)
            return
        self.reads.append((offset, len(buffer)))
        self.entered.release()
        assert self.gate.wait(PATIENCE_S), "forgotten"
        super().read_into(name, offset, buffer, if_match=more.get("if_match"))
        if self.damages:
            buffer[self.damages.popleft()] ^= 1
        if (progress := more.get("progress")) is not None:
            progress(len(buffer))

    @property
    def etag(self) -> str:
        """That of the only chunk."""
        (chunk,) = self.list("segments/")
        return chunk.etag


Bench = tuple[TestStore, Metrics]


async def read(reader: StoreReader, bench: Bench, first: int, count: int = 1) -> bytes:
    """Some blocks of the segment, by a handle of its own: no reader is sequential."""
    handle = reader.open(bench[0].segment("s").id)
    try:
        return bytes(await handle.read(first * BLOCK, count * BLOCK))
    finally:
        handle.close()


def blocks(first: int, count: int = 1) -> bytes:
    return DATA[first * BLOCK : (first + count) * BLOCK]


async def serve(nursery: trio.Nursery, storage: RangedStorage, *scripts: Script) -> ScriptedHttp:
    server = await ScriptedHttp(scripts).start(nursery)
    storage.url = server.url
    return server


def good(storage: RangedStorage, first: int, count: int = 1) -> tuple[bytes, bytes]:
    """Head and body of the right answer."""
    start, end = storage.places[first].start, storage.places[first + count - 1].end
    body = storage.stored[start:end]
    answer = head(start, len(body), etag=f'"{storage.etag}"')
    return answer, body


def place(storage: RangedStorage, first: int) -> tuple[int, int]:
    """Offset and length of a block in the stored object."""
    return storage.places[first].start, storage.places[first].length_bytes


async def all_ended(reader: StoreReader) -> None:
    """Wait for the fetches, then drop what they fetched: all memory comes back.

    Not by checkpoints: the server sends a script's next step when everybody waits.
    """
    with trio.fail_after(PATIENCE_S):
        while reader.fetcher.busy:
            await wait_all_tasks_blocked()
    for span in list(reader.spans._order.values()):
        reader.spans.drop(span)
    pool = reader.spans.pool
    assert isinstance(pool, CheckedPool)
    assert (pool.used_bytes, pool.out) == (0, set())


def counted(metrics: Metrics, line: str) -> bool:
    return line in metrics.exposition().decode().splitlines()


CACHE_SLOTS = 100


@pytest.fixture
def storage() -> Iterator[RangedStorage]:
    storage = RangedStorage()
    yield storage
    storage.gate.set()


@pytest.fixture(params=["off", "zstd"])
def store(tmp_path: Path, storage: RangedStorage, request: pytest.FixtureRequest) -> Iterator[TestStore]:
    """Of one chunk, stored as it is or compressed: what is asked for differs, and nothing else."""
    policy = POLICY | {"compression": request.param}
    with open_test_store(tmp_path / "store", policy=policy, cold=storage) as opened:
        opened.append("s", DATA, seal=True)
        opened.offload("s")
        opened.evict("s")
        with opened.metadata.read() as txn:
            (chunk,) = chains.chunks(txn, opened.segment("s").id, Tier.COLD)
            record = chains.object_of(txn, chunk)
            (run,) = checksums.runs(txn, record.id)
        if record.encoding is PayloadEncoding.ZSTD_FRAMES:
            stored = frame_rows.frames_of(run, record.length).stored
            storage.places = [ByteRange(start, end) for start, end in pairwise(stored)]
        whole = bytearray(record.stored_bytes)
        storage.read_into(record.name, 0, memoryview(whole))
        storage.stored = bytes(whole)
        storage.reads.clear()
        while storage.entered.acquire(blocking=False):
            continue
        yield opened


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def bench(store: TestStore, metrics: Metrics) -> Bench:
    return store, metrics


def reader_of(bench: Bench, cache: DiskCache | None = None, **settings: float) -> StoreReader:
    store, metrics = bench

    def storage_of(_: LocationId) -> ChunkStorage:
        return store.cold

    chosen = ReadSettings(**{"deadline_s": PATIENCE_S, **settings})  # type: ignore[arg-type]
    reader = StoreReader(store.metadata, store.files, storage_of, chosen, metrics, cache)
    reader.spans.pool = CheckedPool(chosen.budget_bytes)
    return reader


@asynccontextmanager
async def warm(bench: Bench, cache: DiskCache | None = None, **settings: float) -> AsyncIterator[StoreReader]:
    """A reader that has read block 6 by a thread, after which the loop knows the storage; all memory comes back."""
    async with reader_of(bench, cache, **settings) as reader:
        await read(reader, bench, 6)
        yield reader
        await all_ended(reader)


def open_cache(tmp_path: Path, metrics: Metrics) -> DiskCache:
    cache = DiskCache.open(tmp_path / "cache", STORE_ID, size_for(CACHE_SLOTS), metrics, free_floor_bytes=0)
    assert cache is not None
    return cache


async def test_the_first_read_is_a_threads_and_the_next_ones_are_the_loops(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery
) -> None:
    server = await serve(nursery, storage, (REQUEST, *good(storage, 3), REQUEST, *good(storage, 1), AWAIT_CLOSE))
    async with reader_of(bench) as reader:
        assert await read(reader, bench, 6) == blocks(6)
        assert (storage.reads, server.requests) == ([place(storage, 6)], [])
        assert await read(reader, bench, 3) == blocks(3)
        assert await read(reader, bench, 1) == blocks(1)
        assert (len(storage.reads), server.served_by) == (1, [0, 0])
        assert await read(reader, bench, 3) == blocks(3)  # from memory
        await all_ended(reader)
    assert counted(metrics, 'tierfs_storage_requests_total{tier="cold",verb="read"} 2.0')
    total_bytes = float(place(storage, 3)[1] + place(storage, 1)[1])
    assert counted(metrics, f'tierfs_storage_bytes_total{{tier="cold",verb="read"}} {total_bytes}')
    assert counted(metrics, 'tierfs_storage_request_seconds_count{tier="cold",verb="read"} 2.0')
    await server.closed[0].wait()


REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\n<xml>"


@pytest.mark.parametrize(
    "way", ["refused", "other version", "half a body", "a flipped bit", "garbage", "nothing", "nobody listens"]
)
async def test_a_get_that_fails_on_the_loop_is_repeated_by_a_thread(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery, way: str
) -> None:
    answer, body = good(storage, 3)
    script: Script = {
        "refused": (REQUEST, REFUSED),
        "other version": (REQUEST, head(*place(storage, 3), etag='"other"'), bytes(storage.places[3].length_bytes)),
        "half a body": (REQUEST, answer, bytes(BLOCK // 2)),
        "a flipped bit": (REQUEST, answer, bytes([body[0] ^ 1]) + body[1:], REQUEST, *good(storage, 1)),
        "garbage": (REQUEST, body),
        "nothing": (REQUEST,),
        "nobody listens": (),
    }[way]
    server = await serve(nursery, storage, script, (REQUEST, *good(storage, 1)))
    async with warm(bench) as reader:
        if way == "nobody listens":
            storage.url = RangeUrl("http://127.0.0.1:1", "/")
        assert await read(reader, bench, 3) == blocks(3)
        assert storage.reads == [place(storage, 6), place(storage, 3)]
        if way != "nobody listens":
            assert await read(reader, bench, 1) == blocks(1)
            assert (len(storage.reads), server.served_by) == (2, [0, int(way != "a flipped bit")])
    failures = counted(metrics, 'tierfs_checksum_failures_total{source="cold"} 1.0')
    assert failures is (way == "a flipped bit")


async def test_a_silent_server_is_hedged_by_a_thread_and_its_late_answer_is_dropped(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery
) -> None:
    answer, body = good(storage, 3)
    server = await serve(nursery, storage, (REQUEST, answer, TELL, AWAIT_GO, body, AWAIT_CLOSE))

    async def answered_by_the_thread(reader: StoreReader) -> None:
        assert await read(reader, bench, 3) == blocks(3)
        assert (len(storage.reads), server.served_by, reader.fetcher.busy) == (2, [0], True)

    async with warm(bench) as reader:
        reader.fetcher._hedges.delay_s = 0.001
        storage.gate.clear()
        async with trio.open_nursery() as inner:
            inner.start_soon(answered_by_the_thread, reader)
            await server.told.wait()
            storage.gate.set()
        server.go.set()
    assert counted(metrics, "tierfs_read_hedges_total 1.0")


async def test_gets_on_the_loop_are_bounded_and_threads_take_the_rest(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery
) -> None:
    """All of them are asked for in one turn of the loop, in any order."""
    server = await serve(nursery, storage, (REQUEST, AWAIT_GO, REFUSED))
    results: dict[int, bytes] = {}

    async with warm(bench, urgent_streams=1) as reader:
        handles = [reader.open(bench[0].segment("s").id) for _ in range(3)]

        async def one(number: int, first: int) -> None:
            results[first] = bytes(await handles[number].read(first * BLOCK, BLOCK))

        async with trio.open_nursery() as inner:
            for number, first in enumerate((5, 3, 1)):
                inner.start_soon(one, number, first)
            while len(results) < 2:
                await trio.lowlevel.checkpoint()
            server.go.set()
        for handle in handles:
            handle.close()
    assert results == {first: blocks(first) for first in (5, 3, 1)}
    assert (len(server.requests), len(storage.reads)) == (1, 4)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_get_ends_with_its_reader_and_who_still_waits_is_told(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery, cancelled: bool
) -> None:
    answer, _ = good(storage, 3)
    server = await serve(nursery, storage, (REQUEST, answer, TELL, AWAIT_CLOSE))

    async def waits() -> None:
        with pytest.raises(Closed):
            await read(reader, bench, 3)

    async with trio.open_nursery() as outer, reader_of(bench) as reader:
        await read(reader, bench, 6)
        outer.start_soon(waits)
        await server.told.wait()
        if cancelled:
            outer.cancel_scope.cancel()
    await server.closed[0].wait()
    await all_ended(reader)


async def test_a_closed_reader_begins_no_get(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    await serve(nursery, storage)
    async with reader_of(bench) as reader:
        await read(reader, bench, 6)
    mock_clock.autojump_threshold = 0
    with pytest.raises(Unavailable, match="no answer within"):
        await read(reader, bench, 3)


@pytest.mark.parametrize("page_cache", ["untold"], indirect=True)
async def test_the_disk_cache_comes_first_when_it_would_make_the_loop_wait(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery, tmp_path: Path
) -> None:
    server = await serve(nursery, storage)
    cache = open_cache(tmp_path, metrics)
    async with reader_of(bench, cache) as reader:
        await read(reader, bench, 3)
        await all_ended(reader)
        assert await read(reader, bench, 3) == blocks(3)
        await all_ended(reader)
    assert (len(storage.reads), server.requests) == (1, [])
    assert counted(metrics, 'tierfs_cache_hits_total{cache="disk"} 1.0')


async def test_what_the_loop_fetched_is_kept_in_the_disk_cache_and_nobody_waits_for_that(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery, tmp_path: Path
) -> None:
    server = await serve(nursery, storage, (REQUEST, *good(storage, 3)))
    cache = open_cache(tmp_path, metrics)
    async with warm(bench, cache) as reader:
        await all_ended(reader)
        reader.fetcher._hedges.delay_s = 2 * PATIENCE_S  # nobody looks again by himself
        with cache._writing:  # the disk hangs
            assert await read(reader, bench, 3) == blocks(3)
            assert reader.fetcher.unstored_bytes == BLOCK
        await all_ended(reader)
        assert await read(reader, bench, 3) == blocks(3)
    assert (len(storage.reads), len(server.requests)) == (1, 1)
