"""The reader over what truncate, concat, unseal and consolidate leave: pieces off the grid, and open handles."""

from __future__ import annotations

import random

import pytest

from tests.reading.readers import DATA, make_cold, read_all, reader_of
from tests.stores import TestStore
from tierfs.checksum import crc32c
from tierfs.clock import ManualClock
from tierfs.config import OffloadSettings
from tierfs.errors import DataLoss, Fenced
from tierfs.metadata import policies
from tierfs.reading.handle import ReadHandle
from tierfs.segments import stat
from tierfs.types import CRC_BLOCK_BYTES, ROOT_DIRECTORY, ReadPriority, Tier

HEAD = 77
CUT = 423_457
"""Inside the second chunk and the first object, off every grid."""

END = 1_000_003


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
    make_cold(store, data=DATA[:END])
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


GRACE_S = OffloadSettings().grace_s
PIECES, PIECE_BYTES = 6, 150_001
PIECED = DATA[: PIECES * PIECE_BYTES]


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, settings)


def cold_pieces(store: TestStore, *, evict: bool) -> None:
    for number in range(PIECES):
        store.append("s", PIECED[number * PIECE_BYTES : (number + 1) * PIECE_BYTES])
        store.offload("s")
    if evict:
        store.evict("s")


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("evict", [True, False])
@pytest.mark.parametrize("delete", [True, False])
async def test_an_open_handle_reads_on_while_its_objects_are_replaced(
    store: TestStore, sealed: bool, evict: bool, delete: bool
) -> None:
    """Sealed segments keep the layout they were opened with, until it names what is gone."""
    assert isinstance(store.clock, ManualClock)
    set_policy(store, chunk_bytes="1000000", object_bytes="3000000", read_priority="offloaded-first")
    cold_pieces(store, evict=evict)
    if sealed:
        store.engine.seal("s")
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        for offset in (3 * PIECE_BYTES + 70_000, 70_000):  # one block each: nothing is read ahead
            assert bytes(await handle.read(offset, 10)) == PIECED[offset:][:10]
        assert store.consolidate().objects_after == 1
        reader._checksums._runs.clear()  # as if others had pushed them out
        if delete:
            store.clock.advance(GRACE_S + 1)
            store.settle()
            assert len(list(store.cold.list("segments/"))) == 1
        for offset in (4 * PIECE_BYTES - 10_000, PIECE_BYTES - 10_000, 0, 5 * PIECE_BYTES - 7, PIECE_BYTES):
            assert bytes(await handle.read(offset, PIECE_BYTES)) == PIECED[offset : offset + PIECE_BYTES]
        assert bytes(await handle.read(0, len(PIECED))) == PIECED
        handle.close()


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
