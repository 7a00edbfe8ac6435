"""Committed versions of an application: rows for a day, then a watermark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tierfs.clock import ManualClock
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.journal import replay
from tierfs.metadata import batches, changes
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.ledger_and_batch_records import BatchRecord, BatchState
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import BATCHES

A_DAY_S = 24 * 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MetadataStore]:
    opened = MetadataStore.create(tmp_path / "metadata", clock)
    yield opened
    opened.close()


def commit(store: MetadataStore, version: int, application: str = "app", job: str = "a" * 32) -> None:
    with store.write() as txn:
        record = BatchRecord(application=application, batch=str(version), segment_ids=(1, 2), job=job)
        batches.begin(txn, record)
        batches.commit(txn, record)


def rows(store: MetadataStore) -> list[tuple[str, int, BatchState]]:
    with store.read() as txn:
        return [(row.application, row.number, row.state) for _, row in txn.scan(BATCHES)]


def known(store: MetadataStore, *versions: int, application: str = "app") -> list[bool]:
    with store.read() as txn:
        return [batches.is_committed(txn, application, version) for version in versions]


def replayed(store: MetadataStore, path: Path) -> list[tuple[str, int, BatchState]]:
    """Return the rows that a replay of a store's journal makes in another store."""
    other = MetadataStore.create(path, ManualClock())
    with store.read() as view, other.write() as txn:
        for _, data in changes.outbox(view, 0):
            replay.apply(txn, pb.Change.FromString(data))
    replayed_rows = rows(other)
    other.close()
    return replayed_rows


def test_each_version_of_each_application_is_its_own(store: MetadataStore) -> None:
    commit(store, 3)
    assert known(store, 0, 2, 3, 4) == [False, False, True, False]
    assert known(store, 3, application="other") == [False]
    commit(store, 2)
    assert known(store, 2, 3) == [True, True], "an older version within a day"


def test_old_rows_make_way_for_a_watermark(store: MetadataStore, clock: ManualClock, tmp_path: Path) -> None:
    for version in range(5):
        commit(store, version)
    clock.advance(A_DAY_S)
    commit(store, 9)
    assert rows(store) == [("app", 4, BatchState.WATERMARK), ("app", 9, BatchState.COMMITTED)]
    assert known(store, 0, 3, 4, 5, 9, 10) == [True, True, True, False, True, False]
    assert replayed(store, tmp_path / "other") == rows(store)


def test_a_stream_of_years_keeps_a_day_of_rows(store: MetadataStore, clock: ManualClock) -> None:
    for version in range(300):
        commit(store, version)
        clock.advance(3600)
    assert len(rows(store)) <= 26
    assert known(store, *range(300)) == [True] * 300
    assert known(store, 300) == [False]


def test_a_rest_of_many_old_rows_goes_with_the_next_commits(store: MetadataStore, clock: ManualClock) -> None:
    for version in range(250):
        commit(store, version)
    clock.advance(A_DAY_S)
    for version in range(250, 254):
        commit(store, version)
    assert rows(store) == [
        ("app", 249, BatchState.WATERMARK),
        *(("app", version, BatchState.COMMITTED) for version in range(250, 254)),
    ]


def test_the_newest_version_is_never_forgotten(store: MetadataStore, clock: ManualClock) -> None:
    commit(store, 7)
    clock.advance(400 * A_DAY_S)
    commit(store, 1, application="other")
    assert known(store, 6, 7) == [False, True]


def test_rows_of_writes_without_an_application_go_after_a_day(
    store: MetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    chosen = random.Random(1)
    commit(store, 0)
    for _ in range(200):
        job = f"{chosen.getrandbits(128):032x}"
        commit(store, 0, batches.of_job(job), job)
        clock.advance(4 * 3600)
    assert 6 <= len(rows(store)) < 20
    assert ("app", 0, BatchState.COMMITTED) in rows(store)
    assert replayed(store, tmp_path / "other") == rows(store)


def test_rows_of_other_applications_are_left_alone(store: MetadataStore, clock: ManualClock) -> None:
    for application in ("a", "b", "c"):
        commit(store, 1, application)
    clock.advance(A_DAY_S)
    commit(store, 2, "b")
    assert sorted(rows(store)) == [
        ("a", 1, BatchState.COMMITTED),
        ("b", 1, BatchState.WATERMARK),
        ("b", 2, BatchState.COMMITTED),
        ("c", 1, BatchState.COMMITTED),
    ]


def test_a_batch_that_only_began_is_not_committed(store: MetadataStore, tmp_path: Path) -> None:
    with store.write() as txn:
        batches.begin(txn, BatchRecord(application="app", batch="1", segment_ids=(5, 6)))
    assert rows(store) == []
    assert replayed(store, tmp_path / "other") == [("app", 1, BatchState.BEGUN)]


@pytest.mark.parametrize(("application", "version"), [("", 1), ("a\n", 1), ("a" * 1025, 1), ("a", -1), ("a", 2**63)])
def test_impossible_batches_are_refused(application: str, version: int) -> None:
    with pytest.raises(InvalidRequest, match="txn"):
        batches.check(application, version)


@pytest.mark.parametrize(
    "message",
    [
        pb.BatchRecord(version=1, application="", batch="1"),
        pb.BatchRecord(version=1, application="a", batch="-1"),
        pb.BatchRecord(version=1, application="a", batch="9" * 30),
        pb.BatchRecord(version=1, application="a", batch="\u0663"),
        pb.BatchRecord(version=1, application="a", batch="1", state=9),
        pb.BatchRecord(version=2, application="a", batch="1"),
    ],
)
def test_a_hostile_journal_is_refused(store: MetadataStore, message: pb.BatchRecord) -> None:
    with pytest.raises(DataLoss), store.write() as txn:
        batches.replay(txn, message)
