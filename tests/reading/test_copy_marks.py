"""A copy that fails a reader leaves a trace: its chunk is suspect, once, whatever else the reader is served from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsck.looking import flip_cold, flip_local
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.config import ReadSettings
from tierfs.errors import DataLoss
from tierfs.metadata import chains
from tierfs.metrics import NullMetrics
from tierfs.reading.reader import Reader
from tierfs.types import MIB, ChunkState, ReadPriority, Tier

DATA = random.Random(3).randbytes(3 * MIB)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": str(MIB), "object_bytes": str(MIB)}) as opened:
        opened.append("s", DATA, seal=True)
        opened.offload()
        yield opened


def states(store: TestStore, tier: Tier) -> list[ChunkState]:
    with store.metadata.read() as txn:
        return [chunk.state for chunk in chains.chunks(txn, store.segment("s").id, tier)]


async def read(store: TestStore, offset: int, priority: ReadPriority) -> bytes | None:
    """One read by a reader of its own, as of a process that ends then; None for EIO."""
    settings = ReadSettings()
    async with Reader(store.metadata, store.files, lambda _: store.cold, settings, NullMetrics()) as reader:
        handle = reader.open(store.segment("s").id, priority=priority)
        try:
            return bytes(await handle.read(offset, 100))
        except DataLoss:
            return None
        finally:
            handle.close()


async def test_a_missing_object_becomes_suspect(store: TestStore) -> None:
    assert isinstance(store.cold, MemoryStorage)
    with store.metadata.read() as txn:
        second = list(chains.chunks(txn, store.segment("s").id, Tier.COLD))[1]
        name = chains.object_of(txn, second).name
    store.cold.delete(name)
    assert await read(store, MIB + 5, ReadPriority.OFFLOADED_ONLY) is None
    good, suspect = ChunkState.GOOD, ChunkState.SUSPECT
    assert states(store, Tier.COLD) == [good, suspect, good]
    before = store.metadata.last_transaction_id()
    assert await read(store, MIB + 5, ReadPriority.OFFLOADED_ONLY) is None
    assert store.metadata.last_transaction_id() == before, "it is suspect already: no commit for each read"


async def test_a_damaged_copy_becomes_suspect_though_the_other_tier_served_the_read(
    store: TestStore, expected_warnings: list[str]
) -> None:
    expected_warnings += ["is read from the local tier instead", "is read from the cold tier instead"]
    flip_cold(store, "s", 5)
    flip_local(store, "s", 2 * MIB + 5)
    assert await read(store, 0, ReadPriority.OFFLOADED_FIRST) == DATA[:100]
    assert await read(store, 2 * MIB, ReadPriority.LOCAL_FIRST) == DATA[2 * MIB : 2 * MIB + 100]
    good, suspect = ChunkState.GOOD, ChunkState.SUSPECT
    assert states(store, Tier.COLD) == [suspect, good, good]
    assert states(store, Tier.LOCAL) == [good, good, suspect]
