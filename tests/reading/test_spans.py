"""Memory of spans: who may take it from whom, and that nobody waits for room that was there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.reading.test_reader import WatchedStorage, make_cold, read_all, reader_of
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.protocol import Progress
from tierfs.errors import Unavailable
from tierfs.types import CRC_BLOCK_BYTES, MIB

BLOCK = CRC_BLOCK_BYTES
DATA = bytes(range(256)) * (8 * MIB // 256)


@pytest.fixture
def storage() -> WatchedStorage:
    return WatchedStorage()


@pytest.fixture
def store(tmp_path: Path, storage: WatchedStorage) -> Iterator[TestStore]:
    policy = {"chunk_bytes": str(8 * MIB), "object_bytes": str(8 * MIB), "read_priority": "local-first"}
    with open_test_store(tmp_path / "store", policy=policy, cold=storage) as opened:
        yield opened


async def test_room_that_a_reader_leaves_is_found_by_one_who_waits_for_it(store: TestStore) -> None:
    make_cold(store, data=DATA)
    async with reader_of(store, budget_bytes=BLOCK, deadline_s=5.0) as reader:

        async def one(offset: int) -> None:
            handle = reader.open(store.segment("s").id)
            assert bytes(await handle.read(offset, BLOCK)) == DATA[offset : offset + BLOCK]
            handle.close()

        for _ in range(20):  # the loop runs tasks that wake together in random order
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(one, (7 - number) * BLOCK)
