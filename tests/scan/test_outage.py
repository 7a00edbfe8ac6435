"""The cold tier goes away while a task reads: the task waits for it, but not for one that never answered."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import append
from tests.scan.scanning import planned, store_of
from tests.scan.test_scrubbing import reports
from tierfs.app import store as app
from tierfs.chunkstore.link import Link
from tierfs.chunkstore.protocol import ChunkStorage, OnReceived
from tierfs.chunkstore.wrappers import Wrapped
from tierfs.clock import ManualClock
from tierfs.errors import Unavailable
from tierfs.scan import in_flight
from tierfs.scan.extents import Place, PlaceConnections
from tierfs.scan.fetching import ScanFetcher
from tierfs.scan.in_flight import DEADLINE_S, TaskPatience
from tierfs.scan.planning import Reach, Sizes
from tierfs.scan.selection import Selection
from tierfs.types import MIB, LocationId

DATA = random.Random(8).randbytes(12 * MIB)
AWAY = Unavailable("cannot reach http://server")
ALWAYS = 10**6
PATIENCE_S = 60.0


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

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        with self._lock:
            self.reads += 1
            number = self.reads
        if self._answered < number <= self._answered + self._failed:
            assert not self._answered or self._known.wait(PATIENCE_S)
            raise AWAY
        super().read_into(name, offset, buffer, if_match=if_match, progress=progress)
        self.link.answered(0.002)
        self._known.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]) -> None:
    """Pauses are short, and told."""
    monkeypatch.setattr(in_flight, "_LONGEST_PAUSE_S", 0.01)
    expected_warnings.append("waiting up to .* s for a tier that does not answer: cannot reach http://server")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store", chunk_bytes=16 * MIB, object_bytes=16 * MIB) as opened:
        append(opened, "s", DATA, seal=True)
        verbs.offload(opened)
        verbs.evict(opened, "s", force=True)
        yield opened


def connect_to(monkeypatch: pytest.MonkeyPatch, *, answered: int, failed: int) -> list[ComesAndGoes]:
    """Have scans connect to a cold tier that comes and goes; the list gets it."""
    found: list[ComesAndGoes] = []
    connect = PlaceConnections.storage

    def storage(self: PlaceConnections, place: Place, location_id: LocationId) -> ComesAndGoes:
        if not found:
            found.append(ComesAndGoes(connect(self, place, location_id), answered, failed))
        self.in_flight(place).follow(location_id, found[0])
        return found[0]

    monkeypatch.setattr(PlaceConnections, "storage", storage)
    return found


def read(store: app.Store) -> bytes:
    place, (partition,) = planned(store, Selection(), Sizes(max_partition_bytes=2 * len(DATA)), Reach(0, 0))
    with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
        return fetcher.read(0, partition.parts[0].extents)


def test_a_task_waits_for_a_server_that_answered(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    storages = connect_to(monkeypatch, answered=1, failed=40)
    assert read(store) == DATA
    assert storages[0].reads > 41


def test_a_scrub_waits_for_a_server_that_answered(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to(monkeypatch, answered=1, failed=40)
    found = [(report.cold_bytes, report.faults) for report in reports(store, partition_bytes=2 * len(DATA))]
    assert (len(DATA), ()) in found


def test_a_task_fails_at_once_for_a_server_that_never_answered(
    store: app.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskPatience, "pause", lambda *_: pytest.fail("it waits"))
    connect_to(monkeypatch, answered=0, failed=ALWAYS)
    with pytest.raises(Unavailable, match="cannot reach"):
        read(store)


def test_a_task_waits_no_longer_than_its_deadline(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "DEADLINE_S", 0.2)
    storages = connect_to(monkeypatch, answered=1, failed=ALWAYS)
    with pytest.raises(Unavailable, match="cannot reach"):
        read(store)
    assert storages[0].reads > 10, "it tried again"


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
