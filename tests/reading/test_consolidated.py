"""Readers with open files while the cold objects under them are replaced and deleted."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reading.test_reader import reader_of
from tests.stores import TestStore, open_test_store
from tierfs.config import OffloadSettings

GRACE_S = OffloadSettings().grace_s
PIECES = 6
PIECE_BYTES = 150_001
DATA = random.Random(11).randbytes(PIECES * PIECE_BYTES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    policy = {"chunk_bytes": "1000000", "object_bytes": "3000000", "read_priority": "offloaded-first"}
    with open_test_store(tmp_path / "store", policy=policy) as opened:
        yield opened


def cold_pieces(store: TestStore, *, evict: bool) -> None:
    for number in range(PIECES):
        store.append("s", DATA[number * PIECE_BYTES : (number + 1) * PIECE_BYTES])
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
    cold_pieces(store, evict=evict)
    if sealed:
        store.engine.seal("s")
    async with reader_of(store) as reader:
        handle = reader.open(store.segment("s").id)
        for offset in (3 * PIECE_BYTES + 70_000, 70_000):  # one block each: nothing is read ahead
            assert bytes(await handle.read(offset, 10)) == DATA[offset:][:10]
        assert store.consolidate().objects_after == 1
        reader._checksums._runs.clear()  # as if others had pushed them out
        if delete:
            store.clock.advance(GRACE_S + 1)
            store.settle()
            assert len(list(store.cold.list("segments/"))) == 1
        for offset in (4 * PIECE_BYTES - 10_000, PIECE_BYTES - 10_000, 0, 5 * PIECE_BYTES - 7, PIECE_BYTES):
            assert bytes(await handle.read(offset, PIECE_BYTES)) == DATA[offset : offset + PIECE_BYTES]
        assert bytes(await handle.read(0, len(DATA))) == DATA
        handle.close()


async def test_random_reads_while_it_is_consolidated_again_and_again(store: TestStore) -> None:
    chosen = random.Random(12)
    data = b""
    async with reader_of(store) as reader:
        handle = None
        for _ in range(30):
            part = os.urandom(chosen.choice([1, 100, 5000, 140_000]))
            data += part
            store.append("s", part)
            store.offload("s")
            if chosen.random() < 0.5:
                store.evict("s")
            if chosen.random() < 0.3:
                store.consolidate()
                store.clock.advance(chosen.choice([1, GRACE_S + 1]))
            handle = handle or reader.open(store.segment("s").id)
            for _ in range(3):
                offset, size = chosen.randrange(len(data)), chosen.randrange(1, 300_000)
                assert bytes(await handle.read(offset, size)) == data[offset : offset + size]
        assert handle is not None
        handle.close()
