"""Entries of a ledger: runs are found by entry id, and end where the next one begins."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stores import TestStore
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ByteRange, SegmentId
from tierfs.engine.metadata import entries, tables
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.tables import ENTRIES

LEDGER, NEXT = SegmentId(7), SegmentId(8)


def append(store: TestStore, start: int, *lengths: int, ledger: SegmentId = LEDGER) -> int:
    with store.metadata.write() as txn:
        return entries.append(txn, ledger, start, lengths)


def placed(store: TestStore, start: int = 0, end: int = 1 << 40) -> list[tuple[int, int, int]]:
    with store.metadata.read() as txn:
        return [(one.entry_id, one.range.start, one.range.end) for one in entries.placed(txn, LEDGER, start, end)]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40), max_size=12), at=st.integers(0, 99)
)
def test_whatever_the_batches_an_entry_is_where_the_ones_before_it_end(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, batches: list[list[int]], at: int
) -> None:
    """And removing those of one ledger leaves those of the next."""
    monkeypatch.setattr(entries, "MAX_RUN_ENTRIES", 16)
    with store.metadata.write() as txn:
        entries.remove(txn, LEDGER)
        entries.remove(txn, NEXT)
    append(store, 0, 9, ledger=NEXT)
    lengths: list[int] = []
    for batch in batches:
        assert append(store, sum(lengths), *batch) == len(lengths)
        lengths += batch
    expected = [(number, sum(lengths[:number]), sum(lengths[: number + 1])) for number in range(len(lengths))]
    assert placed(store) == expected
    assert placed(store, at, at + 20) == expected[at : at + 20]
    with store.metadata.write() as txn:
        assert [entries.count(txn, one) for one in (LEDGER, NEXT, SegmentId(9))] == [len(lengths), 1, 0]
        entries.remove(txn, LEDGER)
        assert list(entries.runs(txn, LEDGER)) == []
        assert next(entries.placed(txn, NEXT, 0, 1)).range == ByteRange(0, 9)


def test_a_run_without_entries_is_refused(store: TestStore) -> None:
    with pytest.raises(DataLoss, match="is empty or too long"), store.metadata.write() as txn:
        txn.put(ENTRIES, tables.pair(LEDGER, 0), EntryRun())
