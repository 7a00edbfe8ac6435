"""The reader over both tiers: right bytes or an error, fetched once, within its budget."""

from __future__ import annotations

import os
import random
from math import inf
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.doubles.page_cache import both_local_paths
from tests.doubles.scripted_storage import Read, ScriptedStorage
from tests.reading.readers import DATA, make_cold, read_all, reader_of
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.errors import DataLoss, Fenced, NotFound, Unavailable
from tierfs.metadata import chains, checksums
from tierfs.reading.fetch.span_cache import KEEP_PASSED_BYTES
from tierfs.reading.handle import ReadHandle
from tierfs.types import CRC_BLOCK_BYTES, MIB, Tier

pytestmark = both_local_paths


def cold_reads(storage: ScriptedStorage) -> list[Read]:
    """The reads of chunks, without those of the journal."""
    return [read for read in storage.reads if read.name.startswith("segments/")]


async def test_bytes_are_fetched_once_however_many_read(store: TestStore, storage: ScriptedStorage) -> None:
    make_cold(store)
    async with reader_of(store) as reader:
        results: list[bytes] = []
        # Open before any reads: bytes that all who had the file open have passed need not be kept for a later one.
        handles = [reader.open(store.segment("s").id) for _ in range(5)]

        async def read(handle: ReadHandle) -> None:
            results.append(await read_all(handle, len(DATA)))

        async with trio.open_nursery() as nursery:
            for handle in handles:
                nursery.start_soon(read, handle)
        for handle in handles:
            handle.close()
    assert results == [DATA] * 5
    assert sum(read.length_bytes for read in cold_reads(storage)) == len(DATA)


async def test_random_reads_fetch_only_their_blocks(store: TestStore, storage: ScriptedStorage) -> None:
    make_cold(store)
    chosen = random.Random(4)
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        for offset in (2_900_000, 100, 1_500_000):
            await handle.read(offset, 100)  # jumps until the session gives up
        while reader.fetcher.busy:
            await reader.spans.wait_room()
        storage.reads.clear()
        for _ in range(20):
            offset = chosen.randrange(len(DATA) - 4096)
            assert bytes(await handle.read(offset, 4096)) == DATA[offset : offset + 4096]
        handle.close()
    assert all(read.length_bytes <= 2 * CRC_BLOCK_BYTES for read in cold_reads(storage))


async def test_blocks_read_whole_at_random_use_the_same_memory_again(tmp_path: Path) -> None:
    block_bytes, data = 2 * CRC_BLOCK_BYTES, bytes(2 * KEEP_PASSED_BYTES)
    policy = {"chunk_bytes": str(4 * MIB), "object_bytes": str(4 * MIB)}
    with open_test_store(tmp_path / "store", policy=policy, cold=MemoryStorage()) as store:
        make_cold(store, data=data)
        starts = list(range(block_bytes, len(data), block_bytes))  # at 0 it would read ahead
        random.Random(5).shuffle(starts)
        async with reader_of(store) as reader:
            handle = reader.open(store.segment("s").id)
            for start in starts:
                assert len(await handle.read(start, block_bytes)) == block_bytes
                assert reader.spans.pool.used_bytes <= KEEP_PASSED_BYTES + block_bytes
            handle.close()


async def test_what_is_wrong_ahead_fails_only_who_comes_there(store: TestStore) -> None:
    make_cold(store)
    with store.metadata.write() as txn:
        last = list(chains.chunks(txn, store.segment("s").id, Tier.COLD))[-1]
        checksums.delete(txn, last.object_id)
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        good = last.start_offset
        assert await read_all(handle, good, step=good // 10) == DATA[:good]
        with pytest.raises(DataLoss, match="has no checksum"):
            await handle.read(good, 100)
        handle.close()


async def test_a_stalled_tier_ends_at_the_deadline(
    store: TestStore, storage: ScriptedStorage, autojump_clock: MockClock
) -> None:
    make_cold(store)
    held = storage.hold_next(8, "read")
    async with reader_of(store, deadline_s=30.0) as reader:
        handle = reader.open(store.segment("s").id)
        started = trio.current_time()
        with pytest.raises(Unavailable, match="no answer within 30 s"):
            await handle.read(0, 1000)
        assert trio.current_time() - started == pytest.approx(30)
        handle.close()
        for one in held:
            one.go_on()


async def test_memory_stays_within_the_budget(store: TestStore) -> None:
    for number in range(12):
        make_cold(store, f"s{number}")
    budget = 8 * MIB
    async with reader_of(store, budget_bytes=budget) as reader:

        async def one(number: int) -> None:
            handle = reader.open(store.segment(f"s{number}").id)
            assert await read_all(handle, len(DATA)) == DATA
            assert reader.spans.pool.used_bytes <= budget
            handle.close()

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(one, number)


async def test_a_deleted_segment_is_stale(store: TestStore) -> None:
    store.append("s", DATA[:1000])
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        store.engine.delete("s", recursive=False, cold_due_ms=0)
        with pytest.raises(Fenced, match="deleted"):
            await handle.read(0, 10)
        with pytest.raises(NotFound):
            reader.open(handle.segment.id)
        handle.close()


async def test_descriptors_are_bounded(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    async with reader_of(store, open_files=2) as reader:
        handle = reader.open(store.segment("s").id)
        assert await read_all(handle, len(DATA)) == DATA
        assert len(reader.local._open) <= 2
        handle.close()


async def test_evicted_files_are_closed(store: TestStore, mock_clock: MockClock) -> None:
    """A deleted file takes its room on the disk for as long as somebody has it open."""
    store.append("s", DATA, seal=True)

    def deleted() -> int:
        links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return sum(str(store.path) in link and link.endswith("(deleted)") for link in links)

    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert await read_all(handle, len(DATA)) == DATA
        store.offload()
        store.evict()
        assert deleted()
        mock_clock.autojump_threshold = 0  # not beside a read: it would jump while a thread is at work
        with trio.move_on_after(2):
            await reader.local.let_go()
        mock_clock.autojump_threshold = inf
        assert not deleted()
        assert await read_all(handle, len(DATA)) == DATA
        handle.close()
