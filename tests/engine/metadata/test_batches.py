"""Committed versions of an application: ranges, whatever their order and age."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest
from tierfs.engine.journal import replay
from tierfs.engine.metadata import batches, changes
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.batch_records import BatchRecord, BatchState
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import BATCHES

A_DAY_S = 24 * 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MetadataStore]:
    opened = MetadataStore.create(tmp_path / "metadata", clock)
    yield opened
    opened.close()


def commit(
    store: MetadataStore, version: int, application: str = "app", job: str = "a" * 32, *, published: bool = True
) -> None:
    with store.write() as txn:
        record = BatchRecord(application=application, batch=str(version), segment_ids=(1, 2), job=job)
        batches.begin(txn, record)
        batches.commit(txn, record)
    if published:
        with store.write() as txn:
            journal = replace(txn.store.journal, published_sequence=txn.store.next_outbox - 1)
            txn.update_store(journal=journal)


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


def test_versions_that_are_neighbours_become_one_range(store: MetadataStore, tmp_path: Path) -> None:
    for version in range(5):
        commit(store, version)
    commit(store, 9)
    assert rows(store) == [("app", 4, BatchState.RANGE), ("app", 9, BatchState.COMMITTED)]
    commit(store, 7)
    commit(store, 8)
    commit(store, 20)
    assert rows(store) == [
        ("app", 4, BatchState.RANGE),
        ("app", 9, BatchState.RANGE),
        ("app", 20, BatchState.COMMITTED),
    ]
    assert known(store, *range(11), 19, 20, 21) == [
        *[v in (0, 1, 2, 3, 4, 7, 8, 9) for v in range(11)],
        False,
        True,
        False,
    ]
    assert replayed(store, tmp_path / "other") == rows(store)


def test_a_failed_day_is_written_by_its_repeat_at_any_age(store: MetadataStore, clock: ManualClock) -> None:
    days = [20310130, 20310131, 20310201, 20310202, 20310204]
    for day in days:
        commit(store, day)
        clock.advance(A_DAY_S)
    clock.advance(400 * A_DAY_S)
    commit(store, 20320310)
    assert known(store, *days, 20310129, 20310203) == [True] * 5 + [False] * 2
    commit(store, 20310203)
    assert known(store, *days, 20310129, 20310203) == [True] * 5 + [False, True]


def test_any_order_of_commits_gives_the_same_versions(store: MetadataStore, tmp_path: Path) -> None:
    chosen = random.Random(7)
    wanted = chosen.sample(range(400), 300)
    for number, version in enumerate(wanted):
        commit(store, version, published=number % 3 > 0)
    assert known(store, *range(400)) == [version in wanted for version in range(400)]
    with store.read() as txn:
        found = batches.versions(txn, "app", 10**9)
        before = batches.versions(txn, "app", txn.store.journal.published_sequence)
    assert [v for first, last in found.ranges for v in range(first, last + 1)] == sorted(wanted)
    assert sum(last - first + 1 for first, last in before.ranges) == 300, "the last one was published"
    assert replayed(store, tmp_path / "other") == rows(store)
    with store.write() as txn:
        batches.restore(txn, "restored", batches.Versions.union([before, found]))
    assert known(store, *range(400), application="restored") == [version in wanted for version in range(400)]


def test_a_commit_that_no_journal_names_yet_keeps_its_row(store: MetadataStore) -> None:
    commit(store, 1, published=False)
    commit(store, 2, published=False)
    assert rows(store) == [("app", 1, BatchState.COMMITTED), ("app", 2, BatchState.COMMITTED)]
    commit(store, 3)
    commit(store, 4)
    assert rows(store) == [("app", 3, BatchState.RANGE), ("app", 4, BatchState.COMMITTED)]


@pytest.mark.parametrize("limit", [1, 4, 5])
def test_versions_below_the_lowest_that_is_known_are_refused(
    store: MetadataStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(batches, "MAX_RANGES", limit)
    monkeypatch.setattr(batches, "_FORGOTTEN_AT_ONCE", 2)
    for version in range(0, 20, 2):
        commit(store, version)
    found = rows(store)
    assert len(found) <= limit + 2
    assert found[0][2] is BatchState.WATERMARK
    for version in range(found[0][1] + 1):
        with pytest.raises(Conflict, match=f"version {version} of app is too old to determine .* up to {found[0][1]}"):
            known(store, version)
    assert known(store, 17, 18, 19) == [False, True, False]
    assert replayed(store, tmp_path / "other") == found
    with store.read() as txn:
        told = batches.versions(txn, "app", 10**9)
    with store.write() as txn:
        batches.restore(txn, "restored", told)
    with pytest.raises(Conflict):
        known(store, found[0][1], application="restored")
    assert known(store, 17, 18, application="restored") == [False, True]


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
        pb.BatchRecord(version=1, application="a", batch="1", state=4, first=2),
        pb.BatchRecord(version=1, application="a", batch="1", sequence=2**63),
        pb.BatchRecord(version=1, application="a", batch="1", job="../../x"),
        pb.BatchRecord(version=2, application="a", batch="1"),
    ],
)
def test_a_hostile_journal_is_refused(store: MetadataStore, message: pb.BatchRecord) -> None:
    with pytest.raises(DataLoss), store.write() as txn:
        batches.replay(txn, message)


@pytest.mark.parametrize("state", [state for state in BatchState if state is not BatchState.DROPPED])
def test_a_batch_is_committed_once_its_end_is_known(store: MetadataStore, state: BatchState) -> None:
    """A replica, and a recovery that is not complete, have the begin alone."""
    with store.write() as txn:
        record = BatchRecord(application="app", batch="3", segment_ids=(1,), job="a" * 32, state=state)
        txn.put(BATCHES, batches.key("app", 3), replace(record, first=3 if state is BatchState.RANGE else 0))
    if state is BatchState.WATERMARK:
        with pytest.raises(Conflict):
            known(store, 3)
    else:
        assert known(store, 3) == [state in (BatchState.COMMITTED, BatchState.RANGE)]


def test_what_one_marker_has_forgotten_is_unknown_whatever_others_tell() -> None:
    told = [batches.Versions(((3, 3),), 5), batches.Versions(((7, 9),), 0)]
    assert batches.Versions.union(told) == batches.Versions(((3, 3), (7, 9)), 5)
