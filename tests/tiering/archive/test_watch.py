"""Objects that policies move: when they fall due, and what else a pass finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.doubles.manual_clock import ManualClock
from tests.reality.reference import reference
from tests.tiering.archive.archiving import SMALL, ArchivedStore
from tierfs.app.store import Store, open_store
from tierfs.base.system.clock import SystemClock
from tierfs.engine.metadata import directories, policies, tables
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.tiering.archive import watch as archive_watch
from tierfs.tiering.archive.watch import ArchiveWatch

DAY_S = 86_400


@pytest.fixture
def made(tmp_path: Path, moto_bucket: Bucket) -> ArchivedStore:
    made = ArchivedStore.new(tmp_path / "store", moto_bucket)
    made.run("-q", "config", "a", "archive_after=30d", "archive_class=STANDARD_IA")
    made.fill({"a/s": reference(0, SMALL), "b/s": reference(1, SMALL)})
    made.fill({"a/alone": reference(2, SMALL)})
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def store(made: ArchivedStore, clock: ManualClock) -> Iterator[Store]:
    with open_store(made.path, clock) as store:
        yield store


def due(store: Store, watch: ArchiveWatch) -> list[str]:
    """Return the segments whose objects a whole pass finds, and move these."""
    paths = []
    work = store.cold_work()
    while True:
        for action in watch.next(8, lambda _: True):
            paths.append(action.path)
            work.archive_one(action)
        if not watch.more:
            return sorted(paths)


def test_an_object_moves_once_it_has_been_cold_for_so_long(store: Store, clock: ManualClock) -> None:
    """The pack of two directories, of which one has no such policy, stays."""
    watch = ArchiveWatch(store.metadata, store.cold_work().cold.location_id)
    assert due(store, watch) == []
    clock.advance(29 * DAY_S)
    assert due(store, watch) == []
    clock.advance(2 * DAY_S)
    assert due(store, watch) == ["a/alone"]
    clock.advance(31 * DAY_S)
    assert due(store, watch) == []


def test_another_policy_begins_a_pass_at_once(made: ArchivedStore, store: Store, clock: ManualClock) -> None:
    watch = ArchiveWatch(store.metadata, store.cold_work().cold.location_id)
    assert due(store, watch) == []
    made.run("config", "/", "archive_after=1h", "archive_class=STANDARD_IA")
    made.run("config", "a", "archive_after=1h")
    clock.advance(2 * 3600)
    assert due(store, watch) == ["a/alone", "b/s"]


def test_without_a_policy_there_is_no_pass(made: ArchivedStore, store: Store, clock: ManualClock) -> None:
    made.run("config", "a", "archive_after=", "archive_class=")
    watch = ArchiveWatch(store.metadata, store.cold_work().cold.location_id)
    clock.advance(100 * DAY_S)
    assert due(store, watch) == []
    with store.metadata.read() as txn:
        segment_id = directories.segment_by_name(txn, "a/s").id
    assert not watch.is_known(segment_id)


def test_a_place_without_classes_ends_the_passes_with_one_warning(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture, expected_warnings: list[str]
) -> None:
    """As in a store whose policies are older than the refusal; with another place the passes go on."""
    watch = ArchiveWatch(store.metadata, store.cold_work().cold.location_id)
    with store.metadata.read() as txn:
        place = policies.location(txn, store.cold_work().cold.location_id)
    clock.advance(31 * DAY_S)
    for url, found in (("file:/nas", []), ("file:/nas", []), (place.url, ["a/alone"])):
        with store.metadata.write() as txn:
            txn.put(LOCATIONS, tables.u32(place.id), replace(place, url=url))
        assert due(store, watch) == found
    expected_warnings.append("have no effect: file:/nas has no storage classes")
    assert [each.levelname for each in caplog.records if each.name == archive_watch.__name__] == ["WARNING"]
