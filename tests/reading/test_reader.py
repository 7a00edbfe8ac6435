"""The reader over both tiers: right bytes or an error, fetched once, within its budget."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import OnReceived
from tierfs.config import ReadSettings
from tierfs.errors import DataLoss, Fenced, NotFound, TierfsError, Unavailable
from tierfs.metadata import chains, checksums
from tierfs.metrics import NullMetrics
from tierfs.reading.fetch.span_cache import KEEP_PASSED_BYTES
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import Reader
from tierfs.types import CRC_BLOCK_BYTES, MIB, ReadPriority, Tier

POLICY = {"chunk_bytes": "300000", "object_bytes": "700000", "read_priority": "local-first"}
DATA = random.Random(9).randbytes(3_000_007)


class WatchedStorage(MemoryStorage):
    """Counts reads of cold chunks, and can fail, damage or stall them."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int, int]] = []
        self.error: TierfsError | None = None
        self.damage = 0
        self.gate: threading.Event | None = None

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        if name.startswith("segments/"):
            self.reads.append((name, offset, len(buffer)))
            if self.gate is not None:
                self.gate.wait()
            if self.error is not None:
                raise self.error
        damaged, self.damage = self.damage > 0, max(0, self.damage - 1)
        if not damaged:
            super().read_into(name, offset, buffer, if_match=if_match, progress=progress)
            return
        super().read_into(name, offset, buffer, if_match=if_match)
        buffer[len(buffer) // 2] ^= 1
        if progress is not None:
            progress(len(buffer))


@pytest.fixture
def storage() -> WatchedStorage:
    return WatchedStorage()


@pytest.fixture
def store(tmp_path: Path, storage: WatchedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY, cold=storage) as opened:
        yield opened


def reader_of(store: TestStore, **settings: object) -> Reader:
    return Reader(store.metadata, store.files, lambda _: store.cold, ReadSettings(**settings), NullMetrics())  # type: ignore[arg-type]


async def read_all(handle: ReadHandle, length: int, step: int = 131_072) -> bytes:
    out = bytearray()
    while len(out) < length:
        data = bytes(await handle.read(len(out), step))
        assert data
        out += data
    return bytes(out)


def make_cold(store: TestStore, name: str = "s", data: bytes = DATA) -> None:
    store.append(name, data, seal=True)
    store.offload(name)
    store.evict(name)


@pytest.mark.parametrize("priority", list(ReadPriority))
@pytest.mark.parametrize("local", ["ok", "damaged", "absent"])
@pytest.mark.parametrize("cold", ["ok", "failing", "absent"])
async def test_priorities(
    store: TestStore,
    storage: WatchedStorage,
    priority: ReadPriority,
    local: str,
    cold: str,
    expected_warnings: list[str],
) -> None:
    expected_warnings += ["is read from the", "waits for a tier that does not answer"]
    store.append("s", DATA[:1000], seal=True)
    if cold != "absent" or local == "absent":
        store.offload("s")
    if cold == "failing":
        storage.error = Unavailable("down")
    if local == "absent":
        store.evict("s")
        if cold == "absent":
            storage.error = NotFound("gone")
    if local == "damaged":
        (path,) = store.files.root.glob("*/*")
        path.chmod(0o600)
        path.write_bytes(b"x" * 1000)
    good = {Tier.LOCAL: local == "ok", Tier.COLD: cold == "ok"}
    storage.reads.clear()
    async with reader_of(store, deadline_s=0.2 if cold == "failing" else 30) as reader:
        handle = reader.open(store.segment("s").id, priority=priority)
        if any(good[tier] for tier in priority.tiers):
            assert bytes(await handle.read(0, 5000)) == DATA[:1000]
            assert handle.served_from == next(tier for tier in priority.tiers if good[tier])
        else:
            with pytest.raises((DataLoss, Unavailable, NotFound)):
                await handle.read(0, 5000)
        handle.close()
    if Tier.COLD not in priority.tiers:
        assert storage.reads == []


async def test_bytes_are_fetched_once_however_many_read(store: TestStore, storage: WatchedStorage) -> None:
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
    assert sum(size for _, _, size in storage.reads) == len(DATA)


async def test_random_reads_fetch_only_their_blocks(store: TestStore, storage: WatchedStorage) -> None:
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
    assert all(size <= 2 * CRC_BLOCK_BYTES for _, _, size in storage.reads)


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


async def test_a_flipped_bit_is_fetched_again(store: TestStore, storage: WatchedStorage) -> None:
    make_cold(store)
    storage.damage = 1
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert await read_all(handle, len(DATA)) == DATA
        handle.close()


async def test_a_damaged_object_is_data_loss_and_no_byte_of_it_is_returned(
    store: TestStore, storage: WatchedStorage
) -> None:
    make_cold(store, data=DATA[:200_000])
    storage.damage = 1000
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        with pytest.raises(DataLoss, match="do not match their checksum"):
            await handle.read(0, 200_000)
        storage.damage = 0
        assert bytes(await handle.read(0, 200_000)) == DATA[:200_000]
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
    store: TestStore, storage: WatchedStorage, autojump_clock: MockClock
) -> None:
    make_cold(store)
    storage.gate = threading.Event()
    try:
        async with reader_of(store, deadline_s=30.0) as reader:
            handle = reader.open(store.segment("s").id)
            started = trio.current_time()
            with pytest.raises(Unavailable, match="no answer within 30 s"):
                await handle.read(0, 1000)
            assert trio.current_time() - started == pytest.approx(30)
            handle.close()
    finally:
        storage.gate.set()


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


async def test_an_open_handle_reads_on_through_offload_evict_and_growth(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    chosen = random.Random(6)
    async with reader_of(store) as reader:
        written = 0
        handle: ReadHandle | None = None
        while written < len(DATA):
            part = DATA[written : written + chosen.choice([1, 777, 50_000, 131_072, 400_000])]
            writer.append(part)
            written += len(part)
            if chosen.random() < 0.3:
                store.offload("s")
            if chosen.random() < 0.3:
                store.evict("s")
            handle = handle or reader.open(store.segment("s").id)
            for _ in range(3):
                offset, size = chosen.randrange(written), chosen.randrange(1, 500_000)
                assert bytes(await handle.read(offset, size)) == DATA[offset : min(written, offset + size)]
            assert handle.segment.length == written
            assert bytes(await handle.read(written, 10)) == b""
        assert handle is not None
        handle.close()


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


async def test_a_cut_chunk_file_is_data_loss(store: TestStore) -> None:
    store.append("s", DATA[:200_000], seal=True)
    (path,) = store.files.root.glob("*/*")
    path.chmod(0o600)
    os.truncate(path, 150_000)
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert bytes(await handle.read(0, 1000)) == DATA[:1000]
        with pytest.raises(DataLoss):
            await handle.read(140_000, 50_000)
        handle.close()


async def test_descriptors_are_bounded(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    async with reader_of(store, open_files=2) as reader:
        handle = reader.open(store.segment("s").id)
        assert await read_all(handle, len(DATA)) == DATA
        assert len(reader.local._open) <= 2
        handle.close()


async def test_evicted_files_are_closed(store: TestStore, autojump_clock: MockClock) -> None:
    """A deleted file takes its room on the disk for as long as somebody has it open."""
    store.append("s", DATA, seal=True)

    def deleted() -> int:
        links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return sum(str(store.path) in link and link.endswith("(deleted)") for link in links)

    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        nursery.start_soon(reader.local.let_go)
        handle = reader.open(store.segment("s").id)
        assert await read_all(handle, len(DATA)) == DATA
        store.offload()
        store.evict()
        assert deleted()
        await trio.sleep(2)
        assert not deleted()
        assert await read_all(handle, len(DATA)) == DATA
        handle.close()
        nursery.cancel_scope.cancel()
