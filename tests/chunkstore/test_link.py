"""The number of streams that a link takes, on a clock that tests move, and what limits a link that was measured."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

import pytest

from tierfs.chunkstore.link import LEAST_STREAMS, Link, LinkFigures, Links, Slots
from tierfs.chunkstore.link_limit import LinkLimit, LinkMeasurement, LinkRates, described, limit_of
from tierfs.chunkstore.link_probe import ReadRange, measure_link, pieces
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource
from tierfs.chunkstore.wrappers import InstrumentedStorage
from tierfs.clock import ManualClock
from tierfs.errors import NotFound
from tierfs.metrics import MetricName, Metrics, NullMetrics
from tierfs.types import MIB, LocationId

PATIENCE_S = 20.0
MS = 0.001
MB = 1e6
STEP_BYTES = 256 * 1024
UNMEASURED = LinkFigures(None, None, LEAST_STREAMS)


def download(link: Link, clock: ManualClock, first_byte_s: float, bytes_per_s: float, length_bytes: int = MIB) -> None:
    """Have a link see one download, whose first step arrives with its first byte."""
    with link.begin() as timer:
        received = timer.watching(None)
        clock.advance(first_byte_s)
        received(STEP_BYTES)
        clock.advance((length_bytes - STEP_BYTES) / bytes_per_s)
        received(length_bytes)
        timer.received(length_bytes)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def link(clock: ManualClock) -> Link:
    return Link(clock)


@pytest.mark.parametrize(
    ("first_byte_s", "bytes_per_s", "streams"),
    [
        (1 * MS, 400 * MB, LEAST_STREAMS),
        (7 * MS, 150 * MB, LEAST_STREAMS),
        (1 * MS, 50 * MB, LEAST_STREAMS),
        (15 * MS, 90 * MB, 18),
        (15 * MS, 400 * MB, 8),
        (40 * MS, 40 * MB, 42),
        (150 * MS, 20 * MB, 103),
    ],
)
def test_streams_are_those_that_fill_the_link(
    link: Link, clock: ManualClock, first_byte_s: float, bytes_per_s: float, streams: int
) -> None:
    download(link, clock, first_byte_s, bytes_per_s)
    assert link.figures.first_byte_s == pytest.approx(first_byte_s)
    assert link.figures.connection_bytes_per_s == pytest.approx(bytes_per_s)
    assert link.streams == streams


def test_one_answer_tells_a_far_link_and_a_late_one_among_others_does_not(link: Link, clock: ManualClock) -> None:
    assert link.figures == UNMEASURED
    link.answered(16 * MS)
    assert link.streams > LEAST_STREAMS
    near = Link(clock)
    for seconds in (2 * MS, 90 * MS, 3 * MS):
        near.answered(seconds)
    assert near.figures == LinkFigures(2 * MS, None, LEAST_STREAMS)
    download(near, clock, 15 * MS, 1 * MB, length_bytes=STEP_BYTES + 1)
    assert near.figures.connection_bytes_per_s is None, "short transfers say nothing about the rate"


def test_a_way_that_became_longer_is_believed_in_time(link: Link, clock: ManualClock) -> None:
    link.answered(2 * MS)
    for _ in range(60):
        clock.advance(1.1)
        link.answered(20 * MS)
    assert link.first_byte_s == 20 * MS
    assert link.streams > LEAST_STREAMS


def test_connections_that_share_a_full_link_do_not_ask_for_more(link: Link, clock: ManualClock) -> None:
    """Beside many others a transfer is slow because of them: more streams would make it slower."""
    download(link, clock, 15 * MS, 90 * MB)
    begun = [link.begin() for _ in range(LEAST_STREAMS)]
    for one in begun:
        one.__enter__()
    for _ in range(20):
        download(link, clock, 15 * MS, 10 * MB)
    assert link.streams == 18
    for one in begun:
        one.__exit__(None, None, None)
    for _ in range(20):
        download(link, clock, 15 * MS, 45 * MB)
    assert link.streams == 31


@pytest.mark.parametrize(
    ("first_byte_s", "sent_s", "streams"),
    [(15 * MS, 8 * MIB / (90 * MB), 18), (3 * MS, 0.5, LEAST_STREAMS)],
    ids=["far", "near with a slow disk"],
)
def test_uploads_measure_too(clock: ManualClock, first_byte_s: float, sent_s: float, streams: int) -> None:
    link = Link(clock)
    with link.begin() as timer:
        clock.advance(first_byte_s)
        timer.answered()
    with link.begin() as timer:
        clock.advance(first_byte_s + sent_s)
        timer.sent(8 * MIB)
    assert link.streams == streams


@pytest.mark.parametrize(("setting", "streams"), [(32, 32), (8, 8)])
def test_links_follow_the_storages_there_are_up_to_a_setting(clock: ManualClock, setting: int, streams: int) -> None:
    """A storage that is made anew, as after a reload of the settings, brings a link of its own."""
    links = Links(most_streams=setting)
    links.add(LocationId(2), MemoryStorage())
    assert links.get(LocationId(2)) is None, "near"
    for storage in (InstrumentedStorage(SlowStorage(clock), NullMetrics(), clock=clock) for _ in range(2)):
        links.add(LocationId(1), storage)
        assert links.get(LocationId(1)) is storage.link
        assert links.figures == UNMEASURED
        storage.read_into("object", 0, memoryview(bytearray(4 * MIB)))
        assert links.figures == LinkFigures(pytest.approx(40 * MS), pytest.approx(40 * MB), streams)
        assert links.streams == streams


def test_a_disk_gets_the_least_however_late_it_answers(clock: ManualClock) -> None:
    link = Link(clock, most_streams=LEAST_STREAMS)
    download(link, clock, 40 * MS, 40 * MB)
    assert link.figures == LinkFigures(pytest.approx(40 * MS), pytest.approx(40 * MB), LEAST_STREAMS)


class SlowStorage(MemoryStorage):
    """Answers after 40 ms and delivers 40 MB/s."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._manual = clock

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        progress = more["progress"]
        self._manual.advance(40 * MS)
        progress(STEP_BYTES)
        self._manual.advance((len(buffer) - STEP_BYTES) / (40 * MB))
        progress(len(buffer))


def test_slots_follow_their_bound() -> None:
    slots, most, inside = Slots(), [1], threading.Semaphore(0)
    leave = threading.Event()

    def work() -> None:
        with slots.one_of(lambda: most[0]):
            inside.release()
            assert leave.wait(PATIENCE_S)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert inside.acquire(timeout=PATIENCE_S)
    assert not inside.acquire(timeout=0.05)
    most[0] = 4
    with slots.one_of(lambda: 4):  # the next end wakes those that wait
        pass
    assert all(inside.acquire(timeout=PATIENCE_S) for _ in range(3))
    leave.set()
    for thread in threads:
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (4, [("a", 0, 4), ("a", 4, 4), ("b", 1, 4), ("a", 0, 4)]),
        (6, [("a", 0, 6), ("a", 0, 6), ("a", 0, 6), ("a", 0, 6)]),
        (99, [("a", 0, 10), ("a", 0, 10), ("a", 0, 10), ("a", 0, 10)]),
    ],
)
def test_pieces_of_one_length_come_round(length: int, expected: list[tuple[str, int, int]]) -> None:
    ranges = [ReadRange("a", 0, 10), ReadRange("b", 1, 5), ReadRange("c", 0, 3)]
    assert list(islice(pieces(ranges, length), 4)) == [ReadRange(*one) for one in expected]


@pytest.mark.parametrize(("length_bytes", "most_streams"), [(40 * MIB, 4), (MIB, 4), (9 * MIB, 1), (40 * MIB, 64)])
def test_no_more_is_read_than_allowed(length_bytes: int, most_streams: int) -> None:
    memory = MemoryStorage()
    memory.put("k", BufferSource(bytes(length_bytes)))
    metrics = Metrics()
    storage = InstrumentedStorage(memory, metrics)
    found = measure_link(storage, [ReadRange("k", 0, length_bytes)], most_streams=most_streams, most_bytes=32 * MIB)
    assert sum(metrics.values(MetricName.STORAGE_BYTES).values()) == found.read_bytes <= 32 * MIB
    assert found.rates is not None
    assert 1 <= found.rates.streams <= most_streams


def test_objects_that_are_too_small_tell_the_first_byte_only_and_one_that_is_gone_nothing() -> None:
    storage = MemoryStorage()
    with pytest.raises(NotFound):
        measure_link(storage, [ReadRange("k", 0, 4 * MIB)], most_streams=4, most_bytes=32 * MIB)
    storage.put("k", BufferSource(bytes(1000)))
    found = measure_link(storage, [ReadRange("k", 0, 1000)], most_streams=4, most_bytes=32 * MIB)
    assert (found.rates, found.limit, found.read_bytes) == (None, None, 6000)
    assert found.first_byte_s > 0


def rates(
    alone: float, together: float, streams: int = 18, takes: int = 18, own: float = 0.0, busy: float = 0.0
) -> LinkRates:
    """Return rates in MB/s, measured by ranges of 4 MiB."""
    return LinkRates(alone * MB, together * MB, 4 * MIB, streams, takes, own, busy)


@pytest.mark.parametrize(
    ("first_byte_s", "found", "limit"),
    [
        # 15 ms and 90 MB/s carry 68 MB/s in a stream: 1225 in 18 of them, 272 in 4
        (15 * MS, rates(90, 1200), LinkLimit.CONNECTION),
        (15 * MS, rates(90, 950), LinkLimit.CONNECTION),
        (15 * MS, rates(90, 260, streams=4), LinkLimit.STREAMS_SETTING),
        (15 * MS, rates(90, 260, streams=4, own=1.0, busy=1.0), LinkLimit.STREAMS_SETTING),
        (15 * MS, rates(90, 600, own=1.1, busy=0.97), LinkLimit.PROCESSOR),
        (15 * MS, rates(90, 600, own=1.0, busy=0.3), LinkLimit.INTERPRETER),
        (15 * MS, rates(90, 600, own=0.5, busy=0.5), LinkLimit.COLD_TIER),
        (0.001, rates(600, 700, streams=4, takes=4, own=1.2, busy=0.6), LinkLimit.INTERPRETER),
        (0.001, rates(110, 112, streams=4, takes=4), LinkLimit.COLD_TIER),
        (0.0, rates(2000, 7900, streams=4, takes=4), LinkLimit.CONNECTION),
    ],
)
def test_the_limit_of_a_link(first_byte_s: float, found: LinkRates, limit: LinkLimit) -> None:
    assert limit_of(first_byte_s, found) is limit


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (rates(90, 1200), "90 MB/s by one connection, 1,200 MB/s by 18 (32.0 MiB read); limit: each connection"),
        (rates(90, 1200), "limit: each connection (90 MB/s x 18 streams)"),
        (rates(90, 260, streams=4), "limit: read.streams = 4, the link takes 18"),
        (rates(90, 600, busy=1), "limit: this machine's processor, all of whose cores are busy"),
        (rates(90, 600, own=1), "limit: this machine's processor: Python code runs on one core"),
        (rates(90, 600), "limit: the cold tier or the network"),
        (None, "first byte 15.0 ms; no object is large enough to measure more (32.0 MiB read)"),
    ],
)
def test_a_line_for_people(found: LinkRates | None, text: str) -> None:
    line = described(LinkMeasurement(15 * MS, 32 * MIB, found))
    assert line.startswith("first byte 15.0 ms")
    assert text in line
