"""The reader over what truncate, concat and unseal leave: pieces of objects off the grid, and open handles."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reading.test_reader import DATA, POLICY, WatchedStorage, read_all, reader_of
from tests.stores import TestStore, open_test_store
from tierfs.checksum import crc32c
from tierfs.errors import DataLoss, Fenced
from tierfs.reading.handle import ReadHandle
from tierfs.segments import stat
from tierfs.types import CRC_BLOCK_BYTES, ReadPriority, Tier

HEAD = 77
CUT = 423_457
"""Inside the second chunk and the first object, off every grid."""

END = 1_000_003


@pytest.fixture
def storage() -> WatchedStorage:
    return WatchedStorage()


@pytest.fixture
def store(tmp_path: Path, storage: WatchedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY, cold=storage) as opened:
        yield opened


def concatenate(store: TestStore, *, offload: bool) -> bytes:
    """Segment `t`: 77 bytes, and a source whose head was cut off."""
    store.append("t", DATA[:HEAD])
    store.append("s", DATA[:END], seal=True)
    if offload:
        store.offload("s")
    store.engine.truncate("s", CUT, cold_due_ms=0)
    store.engine.concat("t", "s")
    return DATA[:HEAD] + DATA[CUT:END]


@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("step", [1 << 20, 131_072, 50_021])
async def test_pieces_of_objects_off_the_grid(store: TestStore, tier: Tier, step: int) -> None:
    expected = concatenate(store, offload=True)
    store.offload("t")
    if tier is Tier.COLD:
        store.evict("t")
    priority = ReadPriority.OFFLOADED_ONLY if tier is Tier.COLD else ReadPriority.LOCAL_ONLY
    placed = store.layout("t").chunks(tier)
    assert any(one.chunk.object_offset % CRC_BLOCK_BYTES for one in placed)
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("t").id, priority=priority)
        assert await read_all(handle, len(expected), step) == expected
        chosen = random.Random(step)
        for _ in range(50):
            offset, size = chosen.randrange(len(expected)), chosen.randrange(1, 200_000)
            assert bytes(await handle.read(offset, size)) == expected[offset : offset + size]
        handle.close()


async def test_a_piece_of_a_chunk_file_becomes_an_object_of_its_own(store: TestStore) -> None:
    expected = concatenate(store, offload=False)
    store.offload("t")
    store.evict("t")
    assert {one.chunk.object_offset for one in store.layout("t").cold} == {0}
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("t").id, priority=ReadPriority.OFFLOADED_ONLY)
        assert await read_all(handle, len(expected)) == expected
        handle.close()
    with store.metadata.read() as txn:
        assert stat.stat(txn, "t").crc32c == crc32c(expected)


async def test_damage_beside_a_piece_but_in_its_block_is_found(store: TestStore) -> None:
    """The block cannot be checked any more, so its bytes are not served."""
    concatenate(store, offload=False)
    piece = next(one for one in store.layout("t").local if one.chunk.object_offset)
    at = piece.chunk.object_offset - piece.chunk.object_offset % CRC_BLOCK_BYTES
    path = store.files.root / piece.object.name
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("t").id, priority=ReadPriority.LOCAL_ONLY)
        with pytest.raises(DataLoss):
            await handle.read(piece.chunk.start_offset, 100)
        handle.close()
    with pytest.raises(DataLoss):
        store.offload("t")
    at = piece.chunk.start_offset
    assert not any(one.range.start <= at < one.range.end for one in store.layout("t").cold)


async def test_open_handles_through_a_truncation(store: TestStore) -> None:
    store.append("s", DATA[:END], seal=True)
    store.offload("s")
    store.evict("s")
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert bytes(await handle.read(0, 1000)) == DATA[:1000]
        store.engine.truncate("s", 800_000, cold_due_ms=0)
        store.settle()
        assert bytes(await handle.read(800_000, 1000)) == DATA[800_000:801_000]
        assert bytes(await handle.read(END - 10, 100)) == DATA[END - 10 : END]
        for offset in range(0, 800_000, 50_000):
            assert await right_or_stale(handle, offset, DATA[offset : offset + 1000])
        handle.close()
        fresh = reader.open(store.segment("s").id)
        with pytest.raises(Fenced, match="begins at 800000 now"):
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
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        assert bytes(await handle.read(0, 5000)) == DATA[:1000]
        store.engine.unseal("s")
        store.append("s", DATA[1000:2000])
        assert bytes(await handle.read(0, 5000)) == DATA[:1000]
        fresh = reader.open(store.segment("s").id)
        assert bytes(await fresh.read(0, 5000)) == DATA[:2000]
        handle.close()
        fresh.close()
