"""The number of streams that a link takes, on a clock that tests move."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.doubles.manual_clock import ManualClock
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import MIB, LocationId
from tierfs.engine.chunkstore.link import LEAST_STREAMS, Link, LinkFigures, Links, Slots
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage

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


def test_an_answer_tells_a_far_link_and_a_late_answer_among_others_does_not(link: Link, clock: ManualClock) -> None:
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
    for storage in (ResilientStorage(SlowStorage(clock), metrics=NullMetrics(), clock=clock) for _ in range(2)):
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
