"""The one loop that reads and proves: which reads it makes, and which bytes it believes."""

from __future__ import annotations

import os

import pytest

from tests.copied import all_adopted, copy_tier
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.words.types import CRC_BLOCK_BYTES as BLOCK
from tierfs.base.words.types import ByteRange, ObjectId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata.checksums import pack
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.fetch.grid import Grid, cut_grid
from tierfs.reading.verified import OwnSum, VerifiedReader

DATA = os.urandom(3 * BLOCK)
CHUNK = ByteRange(BLOCK // 2, 2 * BLOCK + 5)
"""It shares its first and its last block."""
OWN = OwnSum(CHUNK, crc32c(DATA[CHUNK.start : CHUNK.end]))


def reader_of(data: bytes) -> tuple[VerifiedReader, ScriptedStorage, ObjectRecord]:
    """A reader without metadata, as on an executor, of one object that should have been `DATA`."""
    storage = ScriptedStorage(MemoryStorage())
    stored = storage.put("o", BufferSource(data))
    record = ObjectRecord(id=ObjectId(1), tier=Tier.COLD, name="o", length=len(DATA), etag=stored.etag)
    return VerifiedReader(None, lambda _: storage), storage, record


def grid_around(wanted: ByteRange) -> Grid:
    return cut_grid(0, pack(block_crcs(DATA)), wanted, len(DATA))


def flipped(at: int) -> bytes:
    data = bytearray(DATA)
    data[at] ^= 1
    return bytes(data)


@pytest.mark.parametrize("wanted", [ByteRange(0, 3 * BLOCK), ByteRange(BLOCK - 1, BLOCK + 1), ByteRange(5, 6), CHUNK])
@pytest.mark.parametrize("wrong", [0, 1])
def test_right_bytes_cost_one_read_and_one_more_if_the_transfer_was_wrong(wanted: ByteRange, wrong: int) -> None:
    reader, storage, record = reader_of(DATA)
    storage.damage(0, on=range(1, 1 + wrong))
    own = OWN if wanted == CHUNK else None
    assert reader.read(record, wanted, grid_around(wanted), own) == DATA[wanted.start : wanted.end]
    assert len(storage.reads) == 1 + wrong
    if own is not None:
        assert {read.length_bytes for read in storage.reads} == {CHUNK.length_bytes}, "not the rest of its blocks"


@pytest.mark.parametrize("bad", [CHUNK.start - 1, CHUNK.end])
@pytest.mark.parametrize("wanted", [CHUNK, ByteRange(CHUNK.start, BLOCK + 9), ByteRange(2 * BLOCK, CHUNK.end)])
def test_a_neighbours_bit_is_no_damage(bad: int, wanted: ByteRange) -> None:
    reader, _, record = reader_of(flipped(bad))
    assert reader.read(record, wanted, grid_around(wanted), OWN) == DATA[wanted.start : wanted.end]


@pytest.mark.parametrize("own", [None, OWN])
@pytest.mark.parametrize("bad", [CHUNK.start, CHUNK.end - 1])
def test_a_flipped_bit_in_the_chunk_itself_is_damage(bad: int, own: OwnSum | None) -> None:
    reader, _, record = reader_of(flipped(bad))
    wanted = ByteRange(bad, bad + 1)
    with pytest.raises(BlockDiffers, match="o does not match its checksums between bytes") as raised:
        reader.read(record, wanted, grid_around(wanted), own)
    assert raised.value.block == grid_around(wanted).range


def test_a_bad_block_of_its_own_is_not_saved_by_reading_the_whole() -> None:
    reader, storage, record = reader_of(flipped(BLOCK + 7))
    wanted = ByteRange(BLOCK, BLOCK + 100)
    with pytest.raises(BlockDiffers):
        reader.read(record, wanted, grid_around(wanted), OWN)
    assert [read.length_bytes for read in storage.reads] == [BLOCK, BLOCK]


def test_another_etag_is_met_once_and_adopted_when_bytes_prove_right(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    copy_tier(store.cold)
    reader, (placed,) = VerifiedReader(store.metadata, lambda _: store.cold), store.layout("s").cold
    for _ in range(2):
        assert reader.read(placed.object, placed.range, reader.grid(placed.object, placed.range), None) == DATA
    assert reader.etags.adopt() == 1
    assert all_adopted(store)
