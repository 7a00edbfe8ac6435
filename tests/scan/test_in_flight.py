"""The requests of a task follow the links to its storages; their buffers are bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.doubles.gathering import FAR_S, Gathering
from tests.mount.conftest import append
from tests.scan.scanning import planned, store_of
from tests.scan.test_scrubbing import reports
from tierfs.app import store as app
from tierfs.chunkstore.link import RANGE_BYTES, Link
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.wrappers import InstrumentedStorage
from tierfs.metrics import NullMetrics
from tierfs.scan.extents import Place, PlaceConnections
from tierfs.scan.fetching import ScanFetcher
from tierfs.scan.in_flight import (
    AROUND_BYTES,
    FIRST_STEP_BYTES,
    LOCAL_STEP_BYTES,
    MOST_AHEAD,
    NEAR_AHEAD,
    NEAR_STEP_BYTES,
    REQUEST_BYTES,
    Buffers,
    InFlight,
)
from tierfs.scan.planning import Reach, Sizes
from tierfs.scan.selection import Selection
from tierfs.types import MIB, LocationId, Tier

DATA = random.Random(6).randbytes((MOST_AHEAD + 6) * RANGE_BYTES)
NEAR_S = 0.002
HERE = LocationId(1)


def linked(first_byte_s: float) -> InstrumentedStorage:
    """A storage whose link has answered once."""
    link = Link()
    link.answered(first_byte_s)
    return InstrumentedStorage(MemoryStorage(), NullMetrics(), link=link)


def now(in_flight: InFlight) -> tuple[int, int, int]:
    """Requests ahead, bytes of a cold one, and threads of a new task."""
    return in_flight.ahead, in_flight.step_bytes(Tier.COLD), in_flight.threads


def test_what_is_in_flight_near_and_far() -> None:
    in_flight = InFlight()
    assert now(in_flight) == (NEAR_AHEAD, FIRST_STEP_BYTES, MOST_AHEAD)
    in_flight.follow(HERE, linked(NEAR_S))
    assert now(in_flight) == (NEAR_AHEAD, NEAR_STEP_BYTES, NEAR_AHEAD)
    in_flight.follow(HERE, linked(FAR_S))
    assert now(in_flight) == (MOST_AHEAD, RANGE_BYTES, MOST_AHEAD)
    assert in_flight.step_bytes(Tier.LOCAL) == LOCAL_STEP_BYTES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    """A cold segment, a little longer than what is ever in flight."""
    with store_of(tmp_path / "store", chunk_bytes=128 * MIB, object_bytes=128 * MIB) as opened:
        append(opened, "s", DATA, seal=True)
        verbs.offload(opened)
        verbs.evict(opened, "s", force=True)
        yield opened


@pytest.fixture
def storages(monkeypatch: pytest.MonkeyPatch) -> list[Gathering]:
    """Those that scans connect to, one each; their link is far."""
    found: list[Gathering] = []
    connect = PlaceConnections.storage

    def gathering(self: PlaceConnections, place: Place, location_id: LocationId) -> Gathering:
        if not found:
            found.append(Gathering(connect(self, place, location_id), MOST_AHEAD, held_from=1))
        self.in_flight(place).follow(location_id, found[0])
        return found[0]

    monkeypatch.setattr(PlaceConnections, "storage", gathering)
    return found


def test_a_task_fills_a_far_link(store: app.Store, storages: list[Gathering]) -> None:
    place, (partition,) = planned(store, Selection(), Sizes(max_partition_bytes=len(DATA)), Reach(0, 0))
    with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
        assert fetcher.read(0, partition.parts[0].extents) == DATA
    assert storages[0].most == MOST_AHEAD


def test_a_scrub_fills_a_far_link(store: app.Store, storages: list[Gathering]) -> None:
    found = reports(store, partition_bytes=2 * len(DATA))
    assert [(report.cold_bytes, report.faults) for report in found if report.cold_bytes] == [(len(DATA), ())]
    assert storages[0].most == MOST_AHEAD


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
