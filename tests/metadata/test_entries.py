"""Entries of a ledger: runs are found by entry id, and end where the next one begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stores import TestStore, open_test_store
from tierfs.errors import DataLoss
from tierfs.metadata import entries, tables
from tierfs.metadata.ledger_and_batch_records import MAX_RUN_ENTRIES, EntryRun
from tierfs.metadata.tables import ENTRIES
from tierfs.types import ByteRange, SegmentId

LEDGER, NEXT = SegmentId(7), SegmentId(8)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def append(store: TestStore, start: int, *lengths: int, ledger: SegmentId = LEDGER) -> int:
    with store.metadata.write() as txn:
        return entries.append(txn, ledger, start, lengths)


def placed(store: TestStore, start: int = 0, end: int = 1 << 40) -> list[tuple[int, int, int]]:
    with store.metadata.read() as txn:
        return [(one.entry_id, one.range.start, one.range.end) for one in entries.placed(txn, LEDGER, start, end)]


def test_entries_are_numbered_and_lie_one_behind_the_other(store: TestStore) -> None:
    assert append(store, 0, 3, 0, 5) == 0
    assert append(store, 8, 2) == 3
    append(store, 0, 9, ledger=NEXT)
    assert placed(store) == [(0, 0, 3), (1, 3, 3), (2, 3, 8), (3, 8, 10)]
    assert placed(store, 1, 3) == [(1, 3, 3), (2, 3, 8)]
    assert placed(store, 4) == placed(store, 2, 2) == []
    with store.metadata.read() as txn:
        assert [entries.count(txn, one) for one in (LEDGER, NEXT, SegmentId(9), SegmentId(6))] == [4, 1, 0, 0]


def test_a_run_is_full_and_the_next_one_goes_on(store: TestStore) -> None:
    append(store, 0, *[1] * (MAX_RUN_ENTRIES - 1))
    append(store, MAX_RUN_ENTRIES - 1, *[2] * (MAX_RUN_ENTRIES + 2))
    with store.metadata.read() as txn:
        runs = list(entries.runs(txn, LEDGER))
    assert [(run.first_entry_id, len(run.lengths)) for run in runs] == [
        (0, MAX_RUN_ENTRIES),
        (MAX_RUN_ENTRIES, MAX_RUN_ENTRIES),
        (2 * MAX_RUN_ENTRIES, 1),
    ]
    assert runs[1].payload_start == runs[0].payload_end == MAX_RUN_ENTRIES + 1
    assert placed(store, MAX_RUN_ENTRIES - 1, MAX_RUN_ENTRIES + 1) == [
        (MAX_RUN_ENTRIES - 1, MAX_RUN_ENTRIES - 1, MAX_RUN_ENTRIES + 1),
        (MAX_RUN_ENTRIES, MAX_RUN_ENTRIES + 1, MAX_RUN_ENTRIES + 3),
    ]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40), max_size=12), at=st.integers(0, 99)
)
def test_whatever_the_batches_an_entry_is_where_the_ones_before_it_end(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, batches: list[list[int]], at: int
) -> None:
    monkeypatch.setattr(entries, "MAX_RUN_ENTRIES", 16)
    with store.metadata.write() as txn:
        entries.remove(txn, LEDGER)
    lengths: list[int] = []
    for batch in batches:
        assert append(store, sum(lengths), *batch) == len(lengths)
        lengths += batch
    expected = [(number, sum(lengths[:number]), sum(lengths[: number + 1])) for number in range(len(lengths))]
    assert placed(store) == expected
    assert placed(store, at, at + 20) == expected[at : at + 20]


def test_removing_one_ledgers_entries_leaves_the_next_ones(store: TestStore) -> None:
    append(store, 0, 1)
    append(store, 0, 2, ledger=NEXT)
    with store.metadata.write() as txn:
        entries.remove(txn, LEDGER)
        assert list(entries.runs(txn, LEDGER)) == []
        assert next(entries.placed(txn, NEXT, 0, 1)).range == ByteRange(0, 2)


def test_a_run_without_entries_is_refused(store: TestStore) -> None:
    with pytest.raises(DataLoss, match="is empty or too long"), store.metadata.write() as txn:
        txn.put(ENTRIES, tables.pair(LEDGER, 0), EntryRun())
