"""Memory of spans: who may take it from whom, and that nobody waits for room that was there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.readers import check, make_cold, reader_of, reading
from tests.stores import TestStore, open_test_store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId, ObjectId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import checksums
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.fetch import buffers
from tierfs.reading.fetch.buffers import BufferPool
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.fetch.span import Span, Transfer
from tierfs.reading.fetch.span_cache import KEEP_PASSED_BYTES, SpanCache

BLOCK = CRC_BLOCK_BYTES
HOLDER = ObjectRecord(id=ObjectId(1), tier=Tier.COLD, location_id=LocationId(1), name="o", length=1024 * MIB, etag="e")
DATA = bytes(range(256)) * (8 * MIB // 256)


@pytest.fixture
def store(tmp_path: Path, storage: ScriptedStorage) -> Iterator[TestStore]:
    policy = {"chunk_bytes": str(8 * MIB), "object_bytes": str(8 * MIB), "read_priority": "local-first"}
    with open_test_store(tmp_path / "store", policy=policy, cold=storage) as opened:
        yield opened


def grid(start: int, length: int) -> Grid:
    """Checksums of that many zeros."""
    blocks = length // BLOCK
    return Grid(ByteRange(start, start + length), checksums.pack([crc32c(bytes(BLOCK))]) * blocks)


def added(spans: SpanCache, start: int, length: int, *, waited_for: bool = False) -> Span | None:
    return spans.add(HOLDER, grid(start, length), waited_for=waited_for)


def complete(spans: SpanCache, start: int, length: int) -> Span:
    """A span whose bytes, zeros, were fetched."""
    span = added(spans, start, length)
    assert span is not None
    transfer = span.transfers[0]
    assert transfer.own()
    transfer.arrived(length)
    spans.ended(transfer, None)
    return span


def there(spans: SpanCache, *starts: int) -> list[bool]:
    return [spans.find(HOLDER.id, start) is not None for start in starts]


def test_read_ahead_that_has_not_begun_makes_way_and_what_is_waited_for_does_not() -> None:
    spans = SpanCache(BufferPool(2 * BLOCK))
    near, _ = added(spans, 0, BLOCK), added(spans, BLOCK, BLOCK)
    assert near is not None
    assert added(spans, 2 * BLOCK, BLOCK) is None, "read-ahead takes nothing from read-ahead"
    wanted = added(spans, 2 * BLOCK, BLOCK, waited_for=True)
    assert wanted is not None
    assert there(spans, 0, BLOCK, 2 * BLOCK) == [True, False, True], "the last one went"
    near.urgent = wanted.urgent = True
    assert added(spans, 3 * BLOCK, BLOCK, waited_for=True) is None
    assert spans.pool.used_bytes == 2 * BLOCK


def test_passed_spans_go_first_and_beyond_their_limit_at_once() -> None:
    spans = SpanCache(BufferPool(4 * KEEP_PASSED_BYTES))
    complete(spans, 0, BLOCK)
    passed, more = complete(spans, 32 * MIB, KEEP_PASSED_BYTES), complete(spans, 128 * MIB, BLOCK)
    spans.passed(passed)
    spans.passed(more)
    assert added(spans, 129 * MIB, BLOCK) is not None
    assert there(spans, 0, 32 * MIB, 128 * MIB) == [True, False, True]
    stored = added(spans, 256 * MIB, KEEP_PASSED_BYTES + BLOCK)
    assert stored is not None
    spans.passed(stored)  # read to its end while the disk cache still stores it: it cannot go, and drags no other along
    assert added(spans, 512 * MIB, BLOCK) is not None
    assert there(spans, 0) == [True]


def read_ahead(spans: SpanCache, start: int, length: int) -> Span:
    """A span that was fetched for a reader who is still to come."""
    span = complete(spans, start, length)
    span.ahead = True
    return span


def test_read_ahead_that_nobody_read_yet_makes_way_only_for_a_reader_who_waits() -> None:
    spans = SpanCache(BufferPool(2 * BLOCK))
    read_ahead(spans, 0, BLOCK)
    complete(spans, BLOCK, BLOCK)
    assert added(spans, 2 * BLOCK, BLOCK) is not None, "what was read makes way, although it is newer"
    assert there(spans, 0, BLOCK) == [True, False]
    assert added(spans, 3 * BLOCK, BLOCK) is None
    wanted = added(spans, 3 * BLOCK, BLOCK, waited_for=True)
    assert wanted is not None
    wanted.urgent = True
    assert there(spans, 0, 2 * BLOCK) == [True, False], "what was not fetched yet goes first"
    assert added(spans, 4 * BLOCK, BLOCK, waited_for=True) is not None
    assert there(spans, 0) == [False]


@pytest.mark.parametrize("closed", [False, True])
def test_read_ahead_whose_reader_went_elsewhere_makes_way_at_last(closed: bool) -> None:
    spans = SpanCache(BufferPool(2 * BLOCK))
    if closed:
        complete(spans, BLOCK, BLOCK)
        spans.abandon(read_ahead(spans, 0, BLOCK))
        assert added(spans, 2 * BLOCK, BLOCK) is not None
        assert there(spans, 0, BLOCK) == [False, True], "it goes first"
        return
    read_ahead(spans, 0, BLOCK)
    for number in range(1, 10):
        assert there(spans, 0)[0] or number > 5
        spans.passed(read_ahead(spans, number * BLOCK, BLOCK))
    assert added(spans, 20 * BLOCK, 2 * BLOCK) is not None
    assert there(spans, 0) == [False]


def test_a_failed_fetch_leaves_what_it_delivered() -> None:
    spans = SpanCache(BufferPool(4 * BLOCK))
    span = added(spans, 0, 3 * BLOCK)
    assert span is not None
    (transfer,) = span.transfers
    assert transfer.own()
    transfer.arrived(2 * BLOCK)
    spans.ended(transfer, Unavailable("broke off"))
    assert spans.find(HOLDER.id, 2 * BLOCK - 1) is span
    assert span.has(ByteRange(0, 2 * BLOCK))
    assert spans.find(HOLDER.id, 2 * BLOCK) is None
    assert spans.pool.used_bytes == 4 * BLOCK
    spans.drop(span)
    assert spans.pool.used_bytes == 0


async def test_a_read_of_more_than_the_memory_is_answered_piece_by_piece(store: TestStore) -> None:
    make_cold(store, data=DATA)
    async with reading(store, budget_bytes=MIB, deadline_s=60.0) as (_, handle):
        await check(handle, 1000, 3 * MIB, DATA)


async def test_room_that_a_reader_leaves_is_found_by_one_who_waits_for_it(store: TestStore) -> None:
    make_cold(store, data=DATA)
    async with reader_of(store, budget_bytes=BLOCK, deadline_s=60.0) as reader:

        async def one(offset: int) -> None:
            handle = reader.open(store.segment("s").id)
            await check(handle, offset, BLOCK, DATA)
            handle.close()

        for _ in range(20):  # the loop runs tasks that wake together in random order
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(one, (7 - number) * BLOCK)


def arrive(transfer: Transfer, data: bytes) -> None:
    transfer.view[: len(data)] = data
    transfer.arrived(len(data))


async def test_a_second_try_is_checked_from_where_it_begins(store: TestStore) -> None:
    """The first one's good blocks in front of its bad one were delivered; the second one begins at the bad one."""
    make_cold(store, data=DATA)
    damaged = chain([3 * BLOCK], repeat(0))
    offsets: list[int] = []

    class Damaging(MemoryStorage):
        def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
            offsets.append(offset)
            store.cold.read_into(name, offset, buffer, if_match=more["if_match"])
            buffer[next(damaged)] ^= 1
            more["progress"](len(buffer))

    async with reader_of(store) as reader:
        reader.fetcher._storage_of = lambda _: Damaging()
        handle = reader.open(store.segment("s").id)
        with pytest.raises(DataLoss):
            await handle.read(BLOCK, 4 * BLOCK)
        handle.close()
    assert offsets[:2] == [BLOCK, 4 * BLOCK]


async def test_a_failed_fetch_on_the_loop_does_not_lose_its_place() -> None:
    spans = SpanCache(BufferPool(BLOCK))
    span = added(spans, 0, BLOCK, waited_for=True)
    assert span is not None
    (transfer,) = span.transfers
    assert transfer.own()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(span.wait_for, ByteRange(0, BLOCK))
        await wait_all_tasks_blocked()
        assert added(spans, BLOCK, BLOCK, waited_for=True) is None  # now that a thread is to try
        arrive(transfer, bytes(BLOCK))
        spans.ended(transfer, None)


def test_the_next_small_read_finds_its_memory_ready_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, roomy = BufferPool(2 * BLOCK), BufferPool(64 * MIB)
    assert pool.take(BLOCK) is not None
    pool.prepare(BLOCK)
    monkeypatch.setattr(buffers, "_new", None)
    pool.prepare(BLOCK)  # there is one already
    assert pool.take(BLOCK) is not None
    pool.prepare(BLOCK)  # the budget is used up
    roomy.prepare(8 * MIB)  # takes as long as the server does
