"""A second GET for one that is slow: when it is sent, who answers, and where the memory goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.fetch.chaos import CheckedPool
from tests.reading.readers import make_cold, reader_of
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.link import LEAST_STREAMS, Links
from tierfs.errors import NotFound, PermissionDenied, Unavailable
from tierfs.reading.fetch.fetcher import HedgePolicy
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import Reader
from tierfs.types import CRC_BLOCK_BYTES, MIB

BLOCK = CRC_BLOCK_BYTES
DATA = bytes(range(251)) * (4 * MIB // 251)
UNKNOWN_S = 1.0
FLOOR_S = 0.05


def noted(*first_bytes_s: float) -> HedgePolicy:
    policy = HedgePolicy(Links(LEAST_STREAMS))
    for first_byte_s in first_bytes_s:
        policy.note(first_byte_s)
    return policy


def test_the_delay_is_long_until_enough_is_known() -> None:
    assert noted(*[0.1] * 31).delay_s == UNKNOWN_S
    assert noted(*[0.1] * 32).delay_s == 0.1


def test_the_delay_is_what_nearly_all_gets_take() -> None:
    policy = noted(*[0.1] * 508, *[0.7] * 3, 5.0)
    assert policy.delay_s == 0.1
    policy = noted(*[0.1] * 500, *[0.7] * 11, 5.0)
    assert policy.delay_s == 0.7


def test_the_delay_follows_the_server() -> None:
    policy = noted(*[0.1] * 512)
    for _ in range(512):
        policy.note(0.3)
    assert policy.delay_s == 0.3
    for _ in range(512):
        policy.note(0.2)
    assert policy.delay_s == 0.2


def test_the_delay_has_a_floor() -> None:
    assert noted(*[0.002] * 64).delay_s == FLOOR_S


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

    @property
    def right(self) -> bool:
        """Whether it was answered with the right bytes."""
        return self.data == DATA[self.offset : self.offset + self.size_bytes]

    async def run(self) -> None:
        """Read, and keep what came of it."""
        try:
            self.data = bytes(await self.handle.read(self.offset, self.size_bytes))
        except (Unavailable, NotFound, PermissionDenied) as exc:
            self.error = exc
        self.ended.set()


class Bench:
    """A reader in use, with a clock that stands still."""

    def __init__(self, store: TestStore, clock: MockClock, nursery: trio.Nursery, reader: Reader) -> None:
        self.clock, self.nursery, self.reader = clock, nursery, reader
        self.pool = reader.spans.pool = CheckedPool(reader.settings.budget_bytes)
        self.handle = reader.open(store.segment("s").id)

    def read(self, offset: int = BLOCK, size_bytes: int = BLOCK) -> Read:
        """Begin to read."""
        read = Read(self.handle, offset, size_bytes)
        self.nursery.start_soon(read.run)
        return read

    async def wait_a_delay(self) -> None:
        """Let the time pass after which a second GET is sent, and everybody do what follows."""
        await wait_all_tasks_blocked()
        self.clock.jump(UNKNOWN_S)
        await wait_all_tasks_blocked()

    async def all_ended(self) -> None:
        """Return when no GET runs."""
        while self.reader.fetcher.busy:
            await self.reader.spans.wait_room()


async def test_a_second_get_answers_when_the_first_hangs(
    store: TestStore, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    first, second = storage.hold_next(2, "read")
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read()
        await first.has_begun()
        await bench.wait_a_delay()
        await second.has_begun()
        assert storage.reads[0] == storage.reads[1]
        assert bench.pool.used_bytes == 2 * BLOCK
        second.go_on()
        await read.ended.wait()
        assert read.right
        first.go_on()
        await bench.all_ended()
        assert bench.pool.used_bytes == BLOCK
        again = bench.read()
        await again.ended.wait()
        assert again.right
        assert len(storage.reads) == 2


async def test_the_first_get_answers_when_it_is_first_after_all(
    store: TestStore, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    first, second = storage.hold_next(2, "read")
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read()
        await first.has_begun()
        await bench.wait_a_delay()
        await second.has_begun()
        first.go_on()
        await read.ended.wait()
        assert read.right
        second.go_on(Unavailable("too late to matter"))
        await bench.all_ended()
        assert bench.pool.used_bytes == BLOCK


@pytest.mark.parametrize("answering", [0, 1])
async def test_one_that_fails_does_not_end_the_read_while_the_other_may_answer(
    store: TestStore, storage: ScriptedStorage, mock_clock: MockClock, answering: int
) -> None:
    gets = storage.hold_next(2, "read")
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read()
        await gets[0].has_begun()
        await bench.wait_a_delay()
        await gets[1].has_begun()
        gets[1 - answering].go_on(Unavailable("broke off"))
        while len(bench.pool.out) == 2:
            await reader.spans.wait_room()
        await wait_all_tasks_blocked()
        assert not read.ended.is_set()
        gets[answering].go_on()
        await read.ended.wait()
        assert read.right


async def test_when_both_fail_the_read_fails(store: TestStore, storage: ScriptedStorage, mock_clock: MockClock) -> None:
    first, second = storage.hold_next(2, "read")
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read()
        await first.has_begun()
        await bench.wait_a_delay()
        await second.has_begun()
        first.go_on(PermissionDenied("not allowed"))
        second.go_on(PermissionDenied("not allowed"))
        await read.ended.wait()
        assert isinstance(read.error, PermissionDenied)
        assert bench.pool.used_bytes == 0
        again = bench.read()
        await again.ended.wait()
        assert again.right


async def test_no_second_get_before_the_delay(
    store: TestStore, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    (first,) = storage.hold_next(1, "read")
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read()
        await first.has_begun()
        await wait_all_tasks_blocked()
        mock_clock.jump(UNKNOWN_S * 0.9)
        await wait_all_tasks_blocked()
        assert reader.spans.transfers == 1
        first.go_on()
        await read.ended.wait()
        assert read.right


async def test_no_memory_no_second_get(store: TestStore, storage: ScriptedStorage, mock_clock: MockClock) -> None:
    (first,) = storage.hold_next(1, "read")
    async with reader_of(store, budget_bytes=BLOCK) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read()
        await first.has_begun()
        for _ in range(5):
            await bench.wait_a_delay()
        assert reader.spans.transfers == 1
        assert reader.fetcher._hedges.allowed, "what was not sent is not counted"
        first.go_on()
        await read.ended.wait()
        assert read.right


async def test_a_tier_that_is_slow_for_all_is_not_asked_twice_for_each(
    store: TestStore, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    count = 6
    gets = storage.hold_next(count + 1, "read")
    async with reader_of(store) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        reads = [bench.read((1 + 2 * number) * BLOCK) for number in range(count)]
        for get in gets[:count]:
            await get.has_begun()
        for _ in range(5):
            await bench.wait_a_delay()
        assert reader.spans.transfers == count + 1, "one hedge is free"
        for get in gets:
            get.go_on()
        for read in reads:
            await read.ended.wait()
            assert read.right
        await bench.all_ended()
        assert bench.pool.used_bytes == count * BLOCK


async def test_a_second_get_needs_no_stream(store: TestStore, storage: ScriptedStorage, mock_clock: MockClock) -> None:
    """The streams may all wait for first ones."""
    first, second = storage.hold_next(2, "read")
    async with reader_of(store, streams=1) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read(BLOCK, 3 * MIB)
        await first.has_begun()
        assert storage.reads[0].length_bytes == 3 * MIB
        await bench.wait_a_delay()
        await second.has_begun()
        second.go_on()
        await read.ended.wait()
        assert read.right
        first.go_on()
        await bench.all_ended()
        assert len(bench.pool.out) == 1


async def test_a_get_that_nobody_waits_for_any_more_has_no_second(
    store: TestStore, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    (first,) = storage.hold_next(1, "read")
    async with reader_of(store, deadline_s=0.5) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        read = bench.read()
        await first.has_begun()
        await wait_all_tasks_blocked()
        mock_clock.jump(0.5)
        await read.ended.wait()
        assert isinstance(read.error, Unavailable)
        await bench.wait_a_delay()
        assert reader.spans.transfers == 1
        first.go_on()
        await bench.all_ended()
        assert bench.pool.used_bytes == BLOCK, "its bytes are kept for whoever comes next"


async def test_a_get_that_has_not_been_sent_has_no_second(
    store: TestStore, storage: ScriptedStorage, mock_clock: MockClock
) -> None:
    """It waits for a stream, not for the server."""
    first, second = storage.hold_next(2, "read")
    async with reader_of(store, streams=1) as reader, trio.open_nursery() as nursery:
        bench = Bench(store, mock_clock, nursery, reader)
        for _ in range(1000):
            reader.fetcher._hedges.note(UNKNOWN_S)
        sent, queued = bench.read(BLOCK, MIB + BLOCK), bench.read(20 * BLOCK, MIB + BLOCK)
        await first.has_begun()
        for _ in range(3):
            await bench.wait_a_delay()
        assert reader.fetcher._hedges.allowed
        assert reader.spans.transfers == 3
        first.go_on()
        second.go_on()
        for read in (sent, queued):
            await read.ended.wait()
            assert read.right
