"""Reading packs: file after file comes from memory, a single one costs its own blocks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.readers import reader_of
from tests.stores import TestStore, open_test_store
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.reading.reader import StoreReader

FILES = 800
FILE_BYTES = 10_000
PACKING = {"chunk_bytes": "16777216", "object_bytes": "16777216", "read_priority": "local-first"}


@pytest.fixture(params=["off", "zstd"])
def store(tmp_path: Path, storage: ScriptedStorage, request: pytest.FixtureRequest) -> Iterator[TestStore]:
    """8 MB of small files in one pack, cold; written in no order."""
    policy = PACKING | {"compression": request.param}
    with open_test_store(tmp_path / "store", policy=policy, cold=storage) as opened:
        names = [f"d{number // 300}/f{number:04d}" for number in range(FILES)]
        shuffled = random.Random(1).sample(names, FILES)
        with closing(opened.engine.bulk_creator()) as creator:
            creator.create([WholeSegment(name, content(name)) for name in shuffled], seal=True)
        opened.offload()
        opened.evict()
        assert len(list(storage.list("packs/"))) == 1
        storage.reads.clear()
        yield opened


def content(name: str) -> bytes:
    return random.Random(name).randbytes(FILE_BYTES // 4) * 4


async def read_file(reader: StoreReader, store: TestStore, name: str) -> None:
    handle = reader.open(store.segment(name).id)
    assert bytes(await handle.read(0, CRC_BLOCK_BYTES)) == content(name)
    handle.close()


async def test_file_after_file_is_read_in_few_requests_and_a_single_one_costs_its_own_blocks(
    store: TestStore, storage: ScriptedStorage
) -> None:
    names = [f"d{number // 300}/f{number:04d}" for number in range(FILES)]
    async with reader_of(store, budget_bytes=64 * MIB) as reader:
        for name in random.Random(2).sample(names[1:], 20):
            await read_file(reader, store, name)
    assert sum(read.length_bytes for read in storage.reads) <= 20 * 2 * CRC_BLOCK_BYTES
    storage.reads.clear()
    async with reader_of(store, budget_bytes=16 * MIB) as reader:
        for name in names:
            await read_file(reader, store, name)
    assert len(storage.reads) < 30
    assert sum(read.length_bytes for read in storage.reads) < 1.2 * FILES * FILE_BYTES
    async with reader_of(store, budget_bytes=2 * MIB) as reader:  # it ends through a small budget, too
        for name in names[::4]:
            await read_file(reader, store, name)
