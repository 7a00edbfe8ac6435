"""Small fetches on the loop: who reads sees no difference, whatever the server does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.copied import copy_tier
from tests.reading.cache.cache_blocks import STORE_ID, size_for
from tests.reading.fetch.chaos import CheckedPool
from tests.reading.fetch.served_chunk import (
    AWAIT_CLOSE,
    AWAIT_GO,
    BLOCK,
    DATA,
    PATIENCE_S,
    POLICY,
    REQUEST,
    TELL,
    Bench,
    RangedStorage,
    all_ended,
    blocks,
    counted,
    good,
    read,
    serve,
)
from tests.servers.scripted_http import Script, head
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.protocol import ChunkStorage, RangeUrl
from tierfs.config import ReadSettings
from tierfs.errors import Closed, DataLoss, Unavailable
from tierfs.metrics import Metrics
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.reader import Reader
from tierfs.types import LocationId

CACHE_SLOTS = 100


@pytest.fixture
def storage() -> Iterator[RangedStorage]:
    storage = RangedStorage()
    yield storage
    storage.gate.set()


@pytest.fixture
def store(tmp_path: Path, storage: RangedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY, cold=storage) as opened:
        opened.append("s", DATA, seal=True)
        opened.offload("s")
        opened.evict("s")
        yield opened


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def bench(store: TestStore, metrics: Metrics) -> Bench:
    return store, metrics


def reader_of(bench: Bench, cache: DiskCache | None = None, **settings: float) -> Reader:
    store, metrics = bench

    def storage_of(_: LocationId) -> ChunkStorage:
        return store.cold

    chosen = ReadSettings(**{"deadline_s": PATIENCE_S, **settings})  # type: ignore[arg-type]
    reader = Reader(store.metadata, store.files, storage_of, chosen, metrics, cache)
    reader.spans.pool = CheckedPool(chosen.budget_bytes)
    return reader


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
        assert (storage.reads, server.requests) == ([(6 * BLOCK, BLOCK)], [])
        assert await read(reader, bench, 3) == blocks(3)
        assert await read(reader, bench, 1) == blocks(1)
        assert (len(storage.reads), server.served_by) == (1, [0, 0])
        assert await read(reader, bench, 3) == blocks(3)  # from memory
        await all_ended(reader)
    assert counted(metrics, 'tierfs_storage_requests_total{tier="cold",verb="read"} 2.0')
    assert counted(metrics, f'tierfs_storage_bytes_total{{tier="cold",verb="read"}} {2.0 * BLOCK}')
    assert counted(metrics, 'tierfs_storage_request_seconds_count{tier="cold",verb="read"} 2.0')
    await server.closed[0].wait()


async def test_a_copied_object_is_read_on_the_loop_as_soon_as_its_etag_is_known(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery
) -> None:
    copy_tier(storage)
    server = await serve(nursery, storage, (REQUEST, *good(storage, 3), REQUEST, *good(storage, 1), AWAIT_CLOSE))
    async with reader_of(bench) as reader:
        assert await read(reader, bench, 6) == blocks(6)
        assert len(storage.reads) == 2, "met under the old etag, read under the new one"
        assert await read(reader, bench, 3) == blocks(3)
        assert await read(reader, bench, 1) == blocks(1)
        assert (len(storage.reads), server.served_by) == (2, [0, 0])
        await all_ended(reader)


async def test_without_a_url_threads_read(bench: Bench, storage: RangedStorage) -> None:
    async with reader_of(bench) as reader:
        for first in (6, 3, 1):
            assert await read(reader, bench, first) == blocks(first)
        await all_ended(reader)
    assert len(storage.reads) == 3


REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\n<xml>"


@pytest.mark.parametrize("way", ["refused", "other version", "half a body", "garbage", "nothing", "nobody listens"])
async def test_when_it_fails_on_the_loop_a_thread_reads(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery, way: str
) -> None:
    answer, body = good(storage, 3)
    script: Script = {
        "refused": (REQUEST, REFUSED),
        "other version": (REQUEST, head(3 * BLOCK, BLOCK, etag='"other"'), bytes(BLOCK)),
        "half a body": (REQUEST, answer, bytes(BLOCK // 2)),
        "garbage": (REQUEST, body),
        "nothing": (REQUEST,),
        "nobody listens": (),
    }[way]
    server = await serve(nursery, storage, script, (REQUEST, *good(storage, 1)))
    async with reader_of(bench) as reader:
        await read(reader, bench, 6)
        if way == "nobody listens":
            storage.url = RangeUrl("http://127.0.0.1:1", "/")
        assert await read(reader, bench, 3) == blocks(3)
        assert storage.reads == [(6 * BLOCK, BLOCK), (3 * BLOCK, BLOCK)]
        if way != "nobody listens":
            assert await read(reader, bench, 1) == blocks(1)
            assert (len(storage.reads), server.served_by) == (2, [0, 1])
        await all_ended(reader)
    assert b"tierfs_checksum_failures_total{" not in metrics.exposition()


async def test_a_silent_server_is_hedged_by_a_thread_and_its_late_answer_is_dropped(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery
) -> None:
    answer, body = good(storage, 3)
    server = await serve(nursery, storage, (REQUEST, answer, TELL, AWAIT_GO, body, AWAIT_CLOSE))

    async def answered_by_the_thread(reader: Reader) -> None:
        assert await read(reader, bench, 3) == blocks(3)
        assert (len(storage.reads), server.served_by, reader.fetcher.busy) == (2, [0], True)

    async with reader_of(bench) as reader:
        await read(reader, bench, 6)
        reader.fetcher._hedges.delay_s = 0.001
        storage.gate.clear()
        async with trio.open_nursery() as inner:
            inner.start_soon(answered_by_the_thread, reader)
            await server.told.wait()
            storage.gate.set()
        server.go.set()
        await all_ended(reader)
    assert counted(metrics, "tierfs_read_hedges_total 1.0")


async def test_a_flipped_bit_is_counted_and_a_thread_reads(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery
) -> None:
    answer, body = good(storage, 3)
    wrong = bytes([body[0] ^ 1]) + body[1:]
    server = await serve(nursery, storage, (REQUEST, answer, wrong))
    async with reader_of(bench) as reader:
        await read(reader, bench, 6)
        assert await read(reader, bench, 3) == blocks(3)
        assert (len(storage.reads), len(server.requests)) == (2, 1)
        await all_ended(reader)
    assert counted(metrics, 'tierfs_checksum_failures_total{source="cold"} 1.0')


async def test_blocks_before_a_flipped_bit_are_checked_again_when_they_are_read_again(
    bench: Bench, storage: RangedStorage, metrics: Metrics, nursery: trio.Nursery
) -> None:
    answer, body = good(storage, 1, 3)
    wrong = body[:-1] + bytes([body[-1] ^ 1])
    await serve(nursery, storage, (REQUEST, answer, wrong))
    async with reader_of(bench) as reader:
        await read(reader, bench, 6)
        storage.damages.append(5)  # in the first of the three blocks
        assert await read(reader, bench, 1, 3) == blocks(1, 3)
        await all_ended(reader)
    assert counted(metrics, 'tierfs_checksum_failures_total{source="cold"} 2.0')


async def test_a_thread_checks_blocks_again_too(bench: Bench, storage: RangedStorage) -> None:
    storage.damages.extend([2 * BLOCK, 5])
    async with reader_of(bench) as reader:
        with pytest.raises(DataLoss, match="do not match their checksum"):
            await read(reader, bench, 1, 3)
        assert await read(reader, bench, 1, 3) == blocks(1, 3)
        await all_ended(reader)


async def test_a_reader_that_leaves_does_not_stop_the_fetch(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery
) -> None:
    answer, body = good(storage, 3)
    server = await serve(nursery, storage, (REQUEST, answer, TELL, AWAIT_GO, body, AWAIT_CLOSE))
    async with reader_of(bench) as reader:
        await read(reader, bench, 6)
        async with trio.open_nursery() as inner:
            inner.start_soon(read, reader, bench, 3)
            await server.told.wait()
            inner.cancel_scope.cancel()
        server.go.set()
        assert await read(reader, bench, 3) == blocks(3)
        assert (len(storage.reads), len(server.requests)) == (1, 1)
        await all_ended(reader)


async def test_gets_on_the_loop_are_bounded_and_threads_take_the_rest(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery
) -> None:
    """All of them are asked for in one turn of the loop, in any order."""
    server = await serve(nursery, storage, (REQUEST, AWAIT_GO, REFUSED))
    results: dict[int, bytes] = {}

    async with reader_of(bench, urgent_streams=1) as reader:
        await read(reader, bench, 6)
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
        await all_ended(reader)
    assert results == {first: blocks(first) for first in (5, 3, 1)}
    assert (len(server.requests), len(storage.reads)) == (1, 4)


async def test_a_fetch_that_is_put_again_is_not_withdrawn_to_make_room(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery
) -> None:
    """Memory for four blocks; the two threads there are hang, and the third waits for one of them."""
    server = await serve(nursery, storage, (REQUEST, REFUSED))
    url, results = storage.url, {}

    async def one(reader: Reader, first: int) -> None:
        results[first] = await read(reader, bench, first)

    async with reader_of(bench, budget_bytes=4 * BLOCK, streams=1, urgent_streams=1) as reader:
        await read(reader, bench, 7)
        storage.gate.clear()
        storage.url = None
        async with trio.open_nursery() as inner:
            for first in (5, 3):
                inner.start_soon(one, reader, first)
            for _ in range(3):
                await trio.to_thread.run_sync(storage.entered.acquire)
            storage.url = url
            inner.start_soon(one, reader, 1)
            while not server.requests:
                await trio.lowlevel.checkpoint()
            await server.ended[0].wait()
            await wait_all_tasks_blocked()
            storage.url = None
            inner.start_soon(one, reader, 6)
            inner.start_soon(one, reader, 2)
            await wait_all_tasks_blocked()
            storage.gate.set()
        await all_ended(reader)
    assert results == {first: blocks(first) for first in (5, 3, 1, 6, 2)}


async def test_the_reader_is_closed_while_a_get_runs(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery
) -> None:
    answer, _ = good(storage, 3)
    server = await serve(nursery, storage, (REQUEST, answer, TELL, AWAIT_CLOSE))
    async with trio.open_nursery() as outer, reader_of(bench) as reader:
        await read(reader, bench, 6)
        outer.start_soon(read, reader, bench, 3)
        await server.told.wait()
        outer.cancel_scope.cancel()
    await server.closed[0].wait()
    await all_ended(reader)


async def test_who_still_waits_when_the_reader_is_closed_is_told(
    bench: Bench, storage: RangedStorage, nursery: trio.Nursery
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
    async with reader_of(bench, cache) as reader:
        await read(reader, bench, 6)
        await all_ended(reader)
        reader.fetcher._hedges.delay_s = 2 * PATIENCE_S  # nobody looks again by himself
        with cache._writing:  # the disk hangs
            assert await read(reader, bench, 3) == blocks(3)
            assert reader.fetcher.unstored_bytes == BLOCK
        await all_ended(reader)
        assert await read(reader, bench, 3) == blocks(3)
        await all_ended(reader)
    assert (len(storage.reads), len(server.requests)) == (1, 1)
