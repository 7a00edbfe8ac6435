"""A second GET for one that is slow: when it is sent, who answers, and where the memory goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.fetch.chaos import CheckedPool
from tests.reading.readers import make_cold, reading
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import NotFound, PermissionDenied, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.engine.chunkstore.link import LEAST_STREAMS, Links
from tierfs.reading.fetch.hedge import HedgePolicy
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader

BLOCK = CRC_BLOCK_BYTES
DATA = bytes(range(251)) * (4 * MIB // 251)
UNKNOWN_S = 1.0
FLOOR_S = 0.05


def noted(*first_bytes_s: float) -> HedgePolicy:
    policy = HedgePolicy(Links(LEAST_STREAMS))
    for first_byte_s in first_bytes_s:
        policy.note(first_byte_s)
    return policy


@pytest.mark.parametrize(
    ("first_bytes_s", "delay_s"),
    [
        ([0.1] * 31, UNKNOWN_S),
        ([0.1] * 32, 0.1),
        ([0.1] * 508 + [0.7] * 3 + [5.0], 0.1),  # what nearly all GETs take
        ([0.1] * 500 + [0.7] * 11 + [5.0], 0.7),
        ([0.1] * 512 + [0.3] * 512, 0.3),
        ([0.1] * 512 + [0.3] * 512 + [0.2] * 512, 0.2),
        ([0.002] * 64, FLOOR_S),
    ],
)
def test_the_delay_follows_the_server(first_bytes_s: list[float], delay_s: float) -> None:
    assert noted(*first_bytes_s).delay_s == delay_s


def hedges_sent(policy: HedgePolicy) -> int:
    count = 0
    while policy.allowed:
        policy.sent()
        count += 1
    return count


def test_hedges_are_earned() -> None:
    policy = HedgePolicy(Links(LEAST_STREAMS))
    assert hedges_sent(policy) == 1
    for _ in range(19):
        policy.note(0.1)
    assert hedges_sent(policy) == 0
    policy.note(0.1)
    policy.note(0.1)
    assert hedges_sent(policy) == 1
    for _ in range(1000):
        policy.note(0.1)
    assert hedges_sent(policy) == 4, "few at once, however long none was needed"


@pytest.fixture
def store(tmp_path: Path, storage: ScriptedStorage) -> Iterator[TestStore]:
    policy = {"chunk_bytes": str(8 * MIB), "object_bytes": str(8 * MIB), "read_priority": "local-first"}
    with open_test_store(tmp_path / "store", policy=policy, cold=storage) as opened:
        make_cold(opened, data=DATA)
        yield opened


class Read:
    """One read in a task of its own."""

    def __init__(self, handle: ReadHandle, offset: int, size_bytes: int) -> None:
        self.handle, self.offset, self.size_bytes = handle, offset, size_bytes
        self.data: bytes | None = None
        self.error: Exception | None = None
        self.ended = trio.Event()

    async def run(self) -> None:
        """Read, and keep what came of it."""
        try:
            self.data = bytes(await self.handle.read(self.offset, self.size_bytes))
        except (Unavailable, NotFound, PermissionDenied) as exc:
            self.error = exc
        self.ended.set()

    async def right(self) -> None:
        """Return when it was answered with the right bytes."""
        await self.ended.wait()
        assert self.data == DATA[self.offset : self.offset + self.size_bytes]


@dataclass
class Bench:
    """A reader in use, with a clock that stands still."""

    clock: MockClock
    nursery: trio.Nursery
    reader: StoreReader
    handle: ReadHandle
    pool: CheckedPool

    def read(self, offset: int = BLOCK, size_bytes: int = BLOCK) -> Read:
        """Begin to read."""
        read = Read(self.handle, offset, size_bytes)
        self.nursery.start_soon(read.run)
        return read

    async def pass_s(self, seconds: float = UNKNOWN_S) -> None:
        """Let time pass, that after which a second GET is sent, and everybody do what follows."""
        await wait_all_tasks_blocked()
        self.clock.jump(seconds)
        await wait_all_tasks_blocked()

    async def all_ended(self) -> None:
        """Return when no GET runs."""
        while self.reader.fetcher.busy:
            await self.reader.spans.wait_room()

    @property
    def gets(self) -> int:
        """Those that were begun or wait for a stream."""
        return self.reader.spans.transfers


Start = Callable[..., AbstractAsyncContextManager[Bench]]
"""A test that takes it must take the clock, too: pytest-trio looks for it there."""


@pytest.fixture
def start(store: TestStore, mock_clock: MockClock) -> Start:
    @asynccontextmanager
    async def started(**settings: object) -> AsyncIterator[Bench]:
        async with reading(store, **settings) as (reader, handle), trio.open_nursery() as nursery:
            pool = reader.spans.pool = CheckedPool(reader.settings.budget_bytes)
            yield Bench(mock_clock, nursery, reader, handle, pool)

    return started


async def test_a_second_get_answers_when_the_first_hangs(
    start: Start, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    first, second = storage.hold_next(2, "read")
    async with start() as bench:
        read = bench.read()
        await first.has_begun()
        await bench.pass_s(UNKNOWN_S * 0.9)
        assert bench.gets == 1
        await bench.pass_s()
        await second.has_begun()
        assert storage.reads[0] == storage.reads[1]
        assert bench.pool.used_bytes == 2 * BLOCK
        second.go_on()
        await read.right()
        first.go_on()
        await bench.all_ended()
        assert bench.pool.used_bytes == BLOCK
        await bench.read().right()
        assert len(storage.reads) == 2


async def test_when_both_fail_the_read_fails(start: Start, storage: ScriptedStorage, mock_clock: MockClock) -> None:
    first, second = storage.hold_next(2, "read")
    async with start() as bench:
        read = bench.read()
        await first.has_begun()
        await bench.pass_s()
        await second.has_begun()
        first.go_on(PermissionDenied("not allowed"))
        second.go_on(PermissionDenied("not allowed"))
        await read.ended.wait()
        assert isinstance(read.error, PermissionDenied)
        assert bench.pool.used_bytes == 0
        await bench.read().right()


async def test_a_tier_that_is_slow_for_all_is_not_asked_twice_for_each(
    start: Start, storage: ScriptedStorage, mock_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is blocked")
    count = 6
    gets = storage.hold_next(2 * count, "read")  # none is over before it is counted
    async with start() as bench:
        reads = [bench.read((1 + 2 * number) * BLOCK) for number in range(count)]
        for get in gets[:count]:
            await get.has_begun()
        for _ in range(5):
            await bench.pass_s()
        assert bench.gets == count + 1, "one hedge is free"
        for get in gets:
            get.go_on()
        for read in reads:
            await read.right()
        await bench.all_ended()
        assert bench.pool.used_bytes == count * BLOCK


async def test_a_get_that_nobody_waits_for_any_more_has_no_second(
    start: Start, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    (first,) = storage.hold_next(1, "read")
    async with start(deadline_s=0.5) as bench:
        read = bench.read()
        await first.has_begun()
        await bench.pass_s(0.5)
        await read.ended.wait()
        assert isinstance(read.error, Unavailable)
        await bench.pass_s()
        assert bench.gets == 1
        first.go_on()
        await bench.all_ended()
        assert bench.pool.used_bytes == BLOCK, "its bytes are kept for whoever comes next"


async def test_a_get_that_has_not_been_sent_has_no_second(
    start: Start, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    """It waits for a stream, not for the server."""
    first, second = storage.hold_next(2, "read")
    async with start(streams=1) as bench:
        for _ in range(1000):
            bench.reader.fetcher._hedges.note(UNKNOWN_S)
        sent, queued = bench.read(BLOCK, MIB + BLOCK), bench.read(20 * BLOCK, MIB + BLOCK)
        await first.has_begun()
        for _ in range(3):
            await bench.pass_s()
        assert bench.reader.fetcher._hedges.allowed
        assert bench.gets == 3
        first.go_on()
        second.go_on()
        for read in (sent, queued):
            await read.right()
