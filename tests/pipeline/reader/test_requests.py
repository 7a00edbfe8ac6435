"""The requests of a task: bounded, they wait for a server that answered, and meet another etag of an object once."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.gathering import FAR_S, Gathering
from tests.doubles.manual_clock import ManualClock
from tests.pipeline.reader.reading import connecting, fill, read_whole, scan_lines, store_of
from tests.pipeline.reader.test_scrubbing import reports
from tierfs.app import store as app
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.types import MIB, LocationId, ObjectId, ReadPriority, SegmentId, Tier
from tierfs.engine.chunkstore.link import RANGE_BYTES, Link
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage, EtagDiffers
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import OBJECTS as OBJECTS_TABLE
from tierfs.pipeline.reader import task_patience
from tierfs.pipeline.reader.buffers import REQUEST_BYTES, Buffers
from tierfs.pipeline.reader.fetching import ScanFetcher, ScannedLedger, ScanSource
from tierfs.pipeline.reader.in_flight import (
    AROUND_BYTES,
    FIRST_STEP_BYTES,
    LOCAL_STEP_BYTES,
    MOST_AHEAD,
    NEAR_AHEAD,
    NEAR_STEP_BYTES,
    InFlight,
)
from tierfs.pipeline.reader.line_format import LineFormat
from tierfs.pipeline.reader.task_patience import DEADLINE_S, TaskPatience

NEAR_S = 0.002
HERE = LocationId(1)
AWAY = Unavailable("cannot reach http://server")
ALWAYS = 10**6
PATIENCE_S = 60.0


@cache
def some_bytes() -> bytes:
    return random.Random(6).randbytes((MOST_AHEAD + 6) * RANGE_BYTES)


@cache
def some_lines() -> bytes:
    return b"".join(map(b"%07d\n".__mod__, range(MIB // 2)))


Way = Callable[[app.Store], None]


def linked(first_byte_s: float) -> ResilientStorage:
    """A storage whose link has answered once."""
    link = Link()
    link.answered(first_byte_s)
    return ResilientStorage(MemoryStorage(), metrics=NullMetrics(), link=link)


def now(flying: InFlight) -> tuple[int, int, int]:
    """Requests ahead, bytes of a cold one, and threads of a new task."""
    return flying.ahead, flying.step_bytes(Tier.COLD), flying.threads


def test_what_is_in_flight_near_and_far() -> None:
    flying = InFlight()
    assert now(flying) == (NEAR_AHEAD, FIRST_STEP_BYTES, MOST_AHEAD)
    flying.follow(HERE, linked(NEAR_S))
    assert now(flying) == (NEAR_AHEAD, NEAR_STEP_BYTES, NEAR_AHEAD)
    flying.follow(HERE, linked(FAR_S))
    assert now(flying) == (MOST_AHEAD, RANGE_BYTES, MOST_AHEAD)
    assert flying.step_bytes(Tier.LOCAL) == LOCAL_STEP_BYTES


class ComesAndGoes(Wrapped):
    """Answers some reads, then fails some, the first when one was answered, and answers from then on."""

    def __init__(self, inner: ChunkStorage, answered: int, failed: int) -> None:
        super().__init__(inner)
        self.link = Link()
        self.reads = 0
        self._answered = answered
        self._failed = failed
        self._lock = threading.Lock()
        self._known = threading.Event()

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        with self._lock:
            self.reads += 1
            number = self.reads
        if self._answered < number <= self._answered + self._failed:
            assert not self._answered or self._known.wait(PATIENCE_S)
            raise AWAY
        super().read_into(name, offset, buffer, **more)
        self.link.answered(0.002)
        self._known.set()


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[app.Store]:
    """A cold segment, a little longer than what is ever in flight."""
    name = f"store-{request.node.name}"  # connections of a process outlive the test, and know a store by its path
    with store_of(tmp_path / name, chunk_bytes=128 * MIB, object_bytes=128 * MIB) as opened:
        fill(opened, some_bytes(), cold_bytes=len(some_bytes()), seal=True)
        yield opened


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]) -> None:
    """Pauses are short, and told."""
    monkeypatch.setattr(task_patience, "_LONGEST_PAUSE_S", 0.01)
    expected_warnings.append("waiting up to .* s for a tier that does not respond: cannot reach http://server")


def scan(store: app.Store) -> None:
    assert read_whole(store, len(some_bytes())) == some_bytes()


def scrub(store: app.Store) -> None:
    read = [(report.cold_bytes, report.faults) for report in reports(store, partition_bytes=2 * len(some_bytes()))]
    assert (len(some_bytes()), ()) in read


ways = pytest.mark.parametrize("way", [scan, scrub])


@ways
def test_a_task_fills_a_far_link(store: app.Store, monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
    storages = connecting(monkeypatch, lambda inner: Gathering(inner, MOST_AHEAD, held_from=1))
    way(store)
    assert storages[0].most == MOST_AHEAD


@ways
@pytest.mark.usefixtures("waits")
def test_a_task_waits_for_a_server_that_answered(store: app.Store, monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
    storages = connecting(monkeypatch, lambda inner: ComesAndGoes(inner, 1, 40))
    way(store)
    assert storages[0].reads > 41


def test_a_task_fails_at_once_for_a_server_that_never_answered(
    store: app.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskPatience, "pause", lambda *_: pytest.fail("it waits"))
    connecting(monkeypatch, lambda inner: ComesAndGoes(inner, 0, ALWAYS))
    with pytest.raises(Unavailable, match="cannot reach"):
        scan(store)


@pytest.mark.usefixtures("waits")
def test_pauses_end_at_the_deadline_of_their_outage() -> None:
    clock = ManualClock()
    patience = TaskPatience(clock)
    assert patience.pause(AWAY)
    clock.advance(DEADLINE_S)
    assert not patience.pause(AWAY)
    patience.answered()
    assert patience.pause(AWAY)
    patience.end()
    assert not patience.pause(AWAY)


def test_an_answer_of_another_thread_while_one_begins_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = TaskPatience(ManualClock())
    monkeypatch.setattr(task_patience.log, "warning", lambda *_: patience.answered())
    assert patience.pause(AWAY)


def test_buffers_are_used_again_and_bounded() -> None:
    buffers = Buffers()
    taken = [buffers.take(RANGE_BYTES) for _ in range(3)]
    assert {len(one) for one in taken} == {RANGE_BYTES + AROUND_BYTES}
    buffers.give(taken[0])
    assert buffers.take(1) is taken[0]
    assert len(buffers.take(RANGE_BYTES + AROUND_BYTES + 1)) == REQUEST_BYTES
    assert len(buffers.take(REQUEST_BYTES + 1)) == REQUEST_BYTES + 1
    for _ in range(20):
        buffers.give(bytearray(REQUEST_BYTES))
        buffers.give(bytearray(RANGE_BYTES + AROUND_BYTES))
    assert buffers.kept_bytes <= 8 * REQUEST_BYTES
    buffers.give(bytearray(100))
    assert len(buffers.take(100)) == RANGE_BYTES + AROUND_BYTES


OBJECTS = 4


class Counting(Wrapped):
    """Counts reads, and those that are refused for their etag."""

    reads = refused = 0

    def read_into(self, *some: Any, **more: Any) -> None:
        Counting.reads += 1
        try:
            super().read_into(*some, **more)
        except EtagDiffers:
            Counting.refused += 1
            raise


@pytest.fixture
def spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[app.Store]:
    """A cold segment in four objects, each read by several requests."""
    shared = Place.shared

    def counted(place: Place, *some: Any, **more: Any) -> ChunkStorage:
        return Counting(shared(place, *some, **more))

    monkeypatch.setattr(Place, "shared", counted)
    name = f"store-{request.node.name}"  # connections of a process outlive the test, and know a store by its path
    with store_of(tmp_path / name, chunk_bytes=MIB, object_bytes=MIB) as opened:
        fill(opened, some_lines(), cold_bytes=len(some_lines()), seal=True)
        yield opened


def copy(store: app.Store) -> None:
    """Give each object another etag, as a copy does."""
    for path in (store.path / "cold").rglob("chunk-*"):
        os.utime(path, ns=(1, random.randrange(10**18)))


def counted(scan: Any) -> tuple[int, int]:
    Counting.reads = Counting.refused = 0
    scan()
    return Counting.reads, Counting.refused


def whole(store: app.Store) -> None:
    rows = [row for part in scan_lines(store, LineFormat(), split_bytes=2 * len(some_lines())) for row in part]
    assert b"".join(line + b"\n" for _, _, line in rows) == some_lines()


def scrubbed(store: app.Store) -> None:
    assert not any(report.faults for report in reports(store, "s"))


@pytest.mark.parametrize("way", [whole, scrubbed])
def test_etags_of_a_copied_place_are_met_once_and_adopted(spread: app.Store, way: Any) -> None:
    usual, none = counted(lambda: way(spread))
    assert none == 0
    copy(spread)
    first, refused = counted(lambda: way(spread))
    assert OBJECTS <= refused <= usual, "requests in flight together each meet it"
    assert first == usual + refused
    assert counted(lambda: way(spread)) == (usual, 0)


def test_a_wrong_copy_adopts_nothing(spread: app.Store) -> None:
    (path, *_) = sorted((spread.path / "cold").rglob("chunk-*"))
    with spread.metadata.read() as txn:
        name = str(path.relative_to(spread.path / "cold"))
        (before,) = {record.etag for _, record in txn.scan(OBJECTS_TABLE) if record.name == name}
    copy(spread)
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[5] ^= 1
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(DataLoss, match="does not match its checksums"):
            whole(spread)
    with spread.metadata.read() as txn:
        etags = {record.name: record.etag for _, record in txn.scan(OBJECTS_TABLE) if record.tier is Tier.COLD}
    assert etags[name] == before


def test_a_payload_is_found_in_each_part_of_a_ledger_that_a_task_has() -> None:
    """A ledger that is planned in two parts is two sources, each with the rows of its own entries."""
    runs = [EntryRun(first_entry_id=at, payload_start=100 * at, lengths=(100,), stored_offset=1) for at in range(2)]
    fetcher = object.__new__(ScanFetcher)
    fetcher._sources = [
        ScanSource(SegmentId(7), "s", ReadPriority.LOCAL_FIRST, ScannedLedger(SegmentId(7), (run,))) for run in runs
    ]
    record = ObjectRecord(id=ObjectId(1), tier=Tier.COLD, name="o", length=200, segment_id=SegmentId(7))
    assert [fetcher._run(record, offset) for offset in (99, 100, 200)] == [*runs, None]
