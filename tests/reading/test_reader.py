"""The reader over both tiers and what truncate, concat, unseal and consolidate leave: right bytes, fetched once."""

from __future__ import annotations

import os
import random
from math import inf
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.doubles.manual_clock import ManualClock
from tests.doubles.page_cache import both_local_paths
from tests.doubles.scripted_storage import Read, ScriptedStorage
from tests.reading.readers import DATA, check, make_cold, read_all, reader_of, reading
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss, Fenced, NotFound, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ROOT_DIRECTORY, Ack, ReadPriority, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import chains, checksums, policies
from tierfs.reading.fetch.span_cache import KEEP_PASSED_BYTES
from tierfs.reading.handle import ReadHandle
from tierfs.reading.pack_ahead import MOST_PACKS
from tierfs.reading.readahead import MOST_SPANS_AHEAD

TINY = 600
KEPT = KEEP_PASSED_BYTES // CRC_BLOCK_BYTES + 1


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
    async with reading(store) as (reader, handle):
        for offset in (2_900_000, 100, 1_500_000):
            await handle.read(offset, 100)  # jumps until the session gives up
        while reader.fetcher.busy:
            await reader.spans.wait_room()
        storage.reads.clear()
        for _ in range(20):
            await check(handle, chosen.randrange(len(DATA) - 4096), 4096)
    assert all(read.length_bytes <= 2 * CRC_BLOCK_BYTES for read in cold_reads(storage))


async def test_blocks_read_whole_at_random_use_the_same_memory_again(tmp_path: Path) -> None:
    block_bytes, data = 2 * CRC_BLOCK_BYTES, bytes(2 * KEEP_PASSED_BYTES)
    policy = {"chunk_bytes": str(4 * MIB), "object_bytes": str(4 * MIB)}
    with open_test_store(tmp_path / "store", policy=policy, cold=MemoryStorage()) as store:
        make_cold(store, data=data)
        starts = list(range(block_bytes, len(data), block_bytes))  # at 0 it would read ahead
        random.Random(5).shuffle(starts)
        async with reading(store) as (reader, handle):
            for start in starts:
                assert len(await handle.read(start, block_bytes)) == block_bytes
                assert reader.spans.pool.used_bytes <= KEEP_PASSED_BYTES + block_bytes


async def test_many_tiny_objects_take_little_memory(store: TestStore) -> None:
    """Each has a buffer however small it is; a segment of appends that the bucket acknowledged has thousands."""
    writer = store.engine.open_writer("s", ack=Ack.COLD)
    for number in range(TINY):
        writer.append(b"%09d\n" % number)
    store.engine.close_writer(writer)
    store.evict()
    data = b"".join(b"%09d\n" % number for number in range(TINY))
    async with reading(store) as (reader, handle):
        for start in range(0, len(data), 10):
            await check(handle, start, 10, data)
            await wait_all_tasks_blocked()  # a transfer ends on the loop
            buffers = reader.spans.pool.used_bytes // CRC_BLOCK_BYTES
            assert buffers <= MOST_SPANS_AHEAD + MOST_PACKS + KEPT < TINY


async def test_what_is_wrong_ahead_fails_only_who_comes_there(store: TestStore) -> None:
    make_cold(store)
    with store.metadata.write() as txn:
        last = list(chains.chunks(txn, store.segment("s").id, Tier.COLD))[-1]
        checksums.delete(txn, last.object_id)
    async with reading(store) as (_, handle):
        good = last.start_offset
        assert await read_all(handle, good, step=good // 10) == DATA[:good]
        with pytest.raises(DataLoss, match="has no checksum"):
            await handle.read(good, 100)


async def test_a_stalled_tier_ends_at_the_deadline(
    store: TestStore, storage: ScriptedStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is blocked")
    make_cold(store)
    held = storage.hold_next(8, "read")
    async with reading(store, deadline_s=30.0) as (_, handle):
        started = trio.current_time()
        with pytest.raises(Unavailable, match="no answer within 30 s from memory:"):
            await handle.read(0, 1000)
        assert trio.current_time() - started == pytest.approx(30)
        for one in held:
            one.go_on()


async def test_a_deleted_segment_is_stale(store: TestStore) -> None:
    store.append("s", DATA[:1000])
    async with reading(store) as (reader, handle):
        store.engine.delete("s", recursive=False, cold_due_ms=0)
        with pytest.raises(Fenced, match="deleted"):
            await handle.read(0, 10)
        with pytest.raises(NotFound):
            reader.open(handle.segment.id)


@both_local_paths
async def test_evicted_files_are_closed(store: TestStore, mock_clock: MockClock) -> None:
    """A deleted file takes its room on the disk for as long as somebody has it open."""
    store.append("s", DATA, seal=True)

    def deleted() -> int:
        links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return sum(str(store.path) in link and link.endswith("(deleted)") for link in links)

    async with reading(store) as (reader, handle):
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


HEAD = 77
CUT = 423_457
"""Inside the second chunk and the first object, off every grid."""

END = 1_000_003


def concatenate(store: TestStore) -> bytes:
    """Segment `t`: 77 bytes, and a source whose head was cut off."""
    store.append("t", DATA[:HEAD])
    store.append("s", DATA[:END], seal=True)
    store.offload("s")
    store.engine.truncate("s", CUT, cold_due_ms=0)
    store.engine.concat("t", "s")
    return DATA[:HEAD] + DATA[CUT:END]


@pytest.mark.parametrize("tier", list(Tier))
async def test_pieces_of_objects_off_the_grid(store: TestStore, tier: Tier) -> None:
    expected = concatenate(store)
    store.offload("t")
    if tier is Tier.COLD:
        store.evict("t")
    priority = ReadPriority.OFFLOADED_ONLY if tier is Tier.COLD else ReadPriority.LOCAL_ONLY
    placed = store.layout("t").chunks(tier)
    assert any(one.chunk.object_offset % CRC_BLOCK_BYTES for one in placed)
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("t").id, priority=priority)
        assert await read_all(handle, len(expected), 50_021) == expected
        chosen = random.Random(50_021)
        for _ in range(50):
            await check(handle, chosen.randrange(len(expected)), chosen.randrange(1, 200_000), expected)
        handle.close()


async def test_open_handles_through_a_truncation(store: TestStore) -> None:
    make_cold(store, data=DATA[:END])
    async with reading(store) as (reader, handle):
        await check(handle, 0, 1000)
        store.engine.truncate("s", 800_000, cold_due_ms=0)
        store.settle()
        await check(handle, 800_000, 1000)
        assert bytes(await handle.read(END - 10, 100)) == DATA[END - 10 : END]
        for offset in range(0, 800_000, 50_000):
            assert await right_or_stale(handle, offset, DATA[offset : offset + 1000])
        fresh = reader.open(store.segment("s").id)
        with pytest.raises(Fenced, match="starts at 800000 now"):
            await fresh.read(690_000, 1000)
        fresh.close()


async def right_or_stale(handle: ReadHandle, offset: int, expected: bytes) -> bool:
    """Return whether a read gives the expected bytes, from memory or open files, or raises Fenced."""
    try:
        return bytes(await handle.read(offset, 1000)) == expected
    except Fenced:
        return True


async def test_open_handles_through_a_concat(store: TestStore) -> None:
    store.append("t", DATA[:HEAD])
    store.append("s", DATA[HEAD:END], seal=True)
    async with reader_of(store) as reader:
        target, source = (reader.open(store.segment(name).id) for name in ("t", "s"))
        assert bytes(await source.read(0, 1000)) == DATA[HEAD : HEAD + 1000]
        assert bytes(await target.read(0, 1000)) == DATA[:HEAD]
        store.engine.concat("t", "s")
        store.offload()
        store.evict()
        assert await read_all(target, END) == DATA[:END]
        for offset in range(0, END - HEAD, 50_000):
            expected = DATA[HEAD + offset : min(END, HEAD + offset + 1000)]
            assert await right_or_stale(source, offset, expected)
        source.close()
        target.close()


async def test_an_open_handle_through_an_unseal_ends_where_it_ended(store: TestStore) -> None:
    store.append("s", DATA[:1000], seal=True)
    async with reading(store) as (reader, handle):
        assert bytes(await handle.read(0, 5000)) == DATA[:1000]
        store.engine.unseal("s")
        store.append("s", DATA[1000:2000])
        assert bytes(await handle.read(0, 5000)) == DATA[:1000]
        fresh = reader.open(store.segment("s").id)
        assert bytes(await fresh.read(0, 5000)) == DATA[:2000]
        fresh.close()


GRACE_S = OffloadSettings().grace_s
PIECES, PIECE_BYTES = 6, 150_001
PIECED = DATA[: PIECES * PIECE_BYTES]


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, settings)


@pytest.mark.parametrize("sealed", [True, False])
async def test_an_open_handle_reads_on_while_its_objects_are_replaced(store: TestStore, sealed: bool) -> None:
    """Sealed segments keep the layout they were opened with, until it names what is gone."""
    assert isinstance(store.clock, ManualClock)
    set_policy(store, chunk_bytes="1000000", object_bytes="3000000", read_priority="offloaded-first")
    for number in range(PIECES):
        store.append("s", PIECED[number * PIECE_BYTES : (number + 1) * PIECE_BYTES])
        store.offload("s")
    store.evict("s")
    if sealed:
        store.engine.seal("s")
    async with reading(store) as (reader, handle):
        for offset in (3 * PIECE_BYTES + 70_000, 70_000):  # one block each: nothing is read ahead
            assert bytes(await handle.read(offset, 10)) == PIECED[offset:][:10]
        assert store.consolidate().objects_after == 1
        reader._checksums._runs.clear()  # as if others had pushed them out
        store.clock.advance(GRACE_S + 1)
        store.settle()
        assert len(list(store.cold.list("segments/"))) == 1
        for offset in (4 * PIECE_BYTES - 10_000, PIECE_BYTES - 10_000, 0, 5 * PIECE_BYTES - 7, PIECE_BYTES):
            await check(handle, offset, PIECE_BYTES, PIECED)
        assert bytes(await handle.read(0, len(PIECED))) == PIECED


@pytest.mark.parametrize("priority", ["local-first", "offloaded-first"])
async def test_an_open_handle_reads_on_through_growth_offload_evict_and_consolidate(
    store: TestStore, priority: str
) -> None:
    assert isinstance(store.clock, ManualClock)
    set_policy(store, chunk_bytes="300000", object_bytes="1400000", read_priority=priority)
    writer, chosen, written = store.engine.open_writer("s"), random.Random(priority), 0
    async with reader_of(store) as reader:
        handle: ReadHandle | None = None
        while written < 2_000_000:
            part = DATA[written : written + chosen.choice([1, 777, 50_000, 131_072, 400_000])]
            writer.append(part)
            written += len(part)
            for verb in (store.offload, store.evict, store.consolidate):
                if chosen.random() < 0.3:
                    verb("s")
            store.clock.advance(chosen.choice([0, 1, GRACE_S + 1]))
            handle = handle or reader.open(store.segment("s").id)
            for _ in range(3):
                offset, size = chosen.randrange(written), chosen.randrange(1, 500_000)
                assert bytes(await handle.read(offset, size)) == DATA[offset : min(written, offset + size)]
            assert handle.segment.length == written
            assert bytes(await handle.read(written, 10)) == b""
        assert handle is not None
        handle.close()
