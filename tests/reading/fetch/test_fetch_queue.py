"""Threads of fetches: how many at once, who is next, and who never runs. Barriers and events, no sleeping."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId, ObjectId, Tier
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.fetch.buffers import BufferPool
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.fetch.queue import HEDGE, SMALL_BYTES, WANTED_NOW, FetchQueue
from tierfs.reading.fetch.span import Transfer
from tierfs.reading.fetch.span_cache import SpanCache

STREAMS, URGENT_STREAMS = 2, 3
THREADS = STREAMS + URGENT_STREAMS
LARGE_BYTES = 2 * SMALL_BYTES
PATIENCE_S = 20.0
HOLDER = ObjectRecord(id=ObjectId(1), tier=Tier.COLD, location_id=LocationId(1), name="o", length=1024 * MIB, etag="e")


class Threads:
    """A queue whose transfers do what the test says, and a record of which ran."""

    def __init__(self) -> None:
        self.work: Callable[[], None] = lambda: None
        self.begun: queue.Queue[Transfer] = queue.Queue()
        self.ended: queue.Queue[Transfer] = queue.Queue()
        self.threads: set[threading.Thread] = set()
        self.queue = FetchQueue(lambda: STREAMS, URGENT_STREAMS, self._run)
        self._spans = SpanCache(BufferPool(1024 * MIB))
        self._next = 0

    def new(self, length_bytes: int = CRC_BLOCK_BYTES) -> Transfer:
        """A transfer of so many bytes."""
        grid = Grid(ByteRange(self._next, self._next + length_bytes), b"")
        self._next += length_bytes
        span = self._spans.add(HOLDER, grid, waited_for=True)
        assert span is not None
        return span.transfers[0]

    def put(self, priority: int, length_bytes: int = CRC_BLOCK_BYTES) -> Transfer:
        """Queue a new one."""
        transfer = self.new(length_bytes)
        self.queue.put(transfer, priority)
        return transfer

    def fill(self, count: int, priority: int = WANTED_NOW, length_bytes: int = CRC_BLOCK_BYTES) -> set[Transfer]:
        """Queue so many, and wait until all of them run."""
        running = {self.put(priority, length_bytes) for _ in range(count)}
        assert {self.next_begun() for _ in range(count)} == running
        return running

    def next_begun(self) -> Transfer:
        """The next one that began."""
        return self.begun.get(timeout=PATIENCE_S)

    def next_ended(self) -> Transfer:
        """The next one that ended."""
        return self.ended.get(timeout=PATIENCE_S)

    def _run(self, transfer: Transfer) -> None:
        self.threads.add(threading.current_thread())
        self.begun.put(transfer)
        self.work()
        self.ended.put(transfer)


class Gate:
    """Holds up whatever comes to it, and lets it go on one by one."""

    def __init__(self) -> None:
        self._passes = threading.Semaphore(0)

    def __call__(self) -> None:
        assert self._passes.acquire(timeout=PATIENCE_S)

    def open(self, count: int = 1) -> None:
        """Let so many go on."""
        self._passes.release(count)


def wait(barrier: threading.Barrier) -> None:
    """Go on when as many threads are here; raises if they never are."""
    barrier.wait(PATIENCE_S)


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.queue.close()
    for thread in made.threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "close() ends every thread"


@pytest.fixture
def gate(threads: Threads) -> Iterator[Gate]:
    made = threads.work = Gate()
    yield made
    made.open(100)


@pytest.mark.parametrize("times", [1, 3], ids=["new threads", "threads that were idle"])
def test_small_transfers_that_are_waited_for_run_all_at_once_in_as_many_threads_as_allowed(
    threads: Threads, times: int
) -> None:
    barrier = threading.Barrier(THREADS)
    threads.work = lambda: wait(barrier)
    for _ in range(times):
        for _ in range(2 * THREADS):
            threads.put(WANTED_NOW)
        for _ in range(2 * THREADS):
            threads.next_ended()
    assert len(threads.threads) == THREADS


def test_read_ahead_takes_the_streams_and_leaves_the_other_threads(threads: Threads, gate: Gate) -> None:
    ahead = [threads.put(distance * MIB) for distance in range(1, 6)]
    assert {threads.next_begun() for _ in range(STREAMS)} == set(ahead[:STREAMS])
    wanted = [threads.put(WANTED_NOW) for _ in range(URGENT_STREAMS)]
    # They run beside it, and so would more read-ahead, if it were allowed to.
    assert {threads.next_begun() for _ in range(URGENT_STREAMS)} == set(wanted)
    assert threads.begun.empty()
    gate.open(THREADS + 1)  # the last one begins when one of those before it has ended
    assert {threads.next_begun() for _ in range(3)} == set(ahead[STREAMS:])


def test_large_transfers_share_the_streams_whoever_waits(threads: Threads, gate: Gate) -> None:
    threads.fill(STREAMS, MIB, LARGE_BYTES)
    large, small = threads.put(WANTED_NOW, LARGE_BYTES), threads.put(WANTED_NOW, SMALL_BYTES)
    assert threads.next_begun() is small
    assert threads.begun.empty()
    gate.open(2)
    assert threads.next_begun() is large


def test_a_hedge_needs_no_stream(threads: Threads, gate: Gate) -> None:
    threads.fill(STREAMS, WANTED_NOW, LARGE_BYTES)
    hedge = threads.put(HEDGE, LARGE_BYTES)
    assert threads.next_begun() is hedge


def test_what_is_waited_for_overtakes_and_the_nearest_read_ahead_follows(threads: Threads, gate: Gate) -> None:
    threads.fill(STREAMS, MIB)
    far, near, nearer = (threads.put(distance * MIB) for distance in (30, 20, 10))
    wanted = threads.put(WANTED_NOW, LARGE_BYTES)
    order = []
    for _ in range(4):
        gate.open()
        order.append(threads.next_begun())
    assert order == [wanted, nearer, near, far]


def test_a_transfer_that_is_hurried_runs_once_and_at_once(threads: Threads, gate: Gate) -> None:
    threads.fill(STREAMS, MIB)
    first, hurried = threads.put(10 * MIB), threads.put(20 * MIB)
    threads.queue.put(hurried, WANTED_NOW)
    assert threads.next_begun() is hurried
    gate.open(10)
    assert threads.next_begun() is first
    last = threads.put(MIB)
    assert threads.next_begun() is last, "and not the hurried one again"


def test_what_is_handed_over_runs_next_although_it_has_an_owner(threads: Threads, gate: Gate) -> None:
    threads.fill(THREADS)
    mine, waiting = threads.new(), threads.put(MIB)
    assert mine.own()
    threads.queue.hand_over(mine)
    assert not mine.own(), "nobody withdraws it"
    gate.open()
    assert threads.next_begun() is mine
    gate.open(THREADS)
    assert threads.next_begun() is waiting


@pytest.mark.parametrize("priority", [WANTED_NOW, MIB])
def test_what_was_withdrawn_never_runs(threads: Threads, gate: Gate, priority: int) -> None:
    threads.fill(THREADS)
    withdrawn, other = threads.put(priority), threads.put(priority)
    assert withdrawn.own(), "nobody had taken it"
    gate.open(THREADS)
    assert threads.next_begun() is other
    gate.open()
    for _ in range(THREADS + 1):
        assert threads.next_ended() is not withdrawn
    assert threads.begun.empty()


def test_nothing_begins_once_the_queue_is_closed(threads: Threads, gate: Gate) -> None:
    running = threads.fill(THREADS)
    waiting = [threads.put(WANTED_NOW), threads.put(MIB)]
    threads.queue.close()
    late = threads.put(WANTED_NOW)
    gate.open(100)
    assert {threads.next_ended() for _ in range(THREADS)} == running, "what runs is not broken off"
    for thread in threads.threads:
        thread.join(PATIENCE_S)
    assert threads.begun.empty()
    assert not any(transfer.owned for transfer in [*waiting, late])
