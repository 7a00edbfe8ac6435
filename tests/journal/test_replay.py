"""A replay of the journal gives the owner's view of the bucket, wherever the journal is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.journal.replaying import apply_all, check_store, empty_copy, entries_of, view
from tests.stores import TestStore, open_test_store
from tierfs.errors import DataLoss
from tierfs.journal import replay_rows
from tierfs.metadata import chains, tables
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import OBJECTS
from tierfs.metadata.transaction import WriteTransaction
from tierfs.types import Tier


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def test_a_replayed_journal_is_the_owners_view(store: TestStore, tmp_path: Path) -> None:
    store.append("a/s", b"abcdefgh" * 3, seal=True)
    store.append("a/b/t", b"x" * 10)
    store.append("gone/u", b"y" * 9)
    store.offload()
    store.engine.delete("gone", recursive=True, cold_due_ms=store.clock.now_ms() + 1000)
    store.settle()
    with empty_copy(tmp_path / "copy", store.metadata.store_id) as copy:
        apply_all(copy, entries_of(store.cold))
        with copy.read() as txn, store.metadata.read() as original:
            check_store(txn)
            assert view(txn) == view(original)


def unlinked_by_a_verb(txn: WriteTransaction, segment: SegmentRecord) -> None:
    removed = list(chains.chunks(txn, segment.id, Tier.COLD))
    chains.remove(txn, segment, Tier.COLD, removed, due_ms=0, after_sequence=0)


def unlinked_by_a_replay(txn: WriteTransaction, segment: SegmentRecord) -> None:
    replay_rows.unlink(txn, segment, [0])


def removed_by_a_replay(txn: WriteTransaction, segment: SegmentRecord) -> None:
    replay_rows.unlink_all(txn, segment)


@pytest.mark.parametrize("unlink", [unlinked_by_a_verb, unlinked_by_a_replay, removed_by_a_replay])
@pytest.mark.parametrize("references", [0, 1, 2])
def test_an_object_goes_with_its_last_reference_and_never_by_a_wrong_count(
    store: TestStore, unlink: Callable[[WriteTransaction, SegmentRecord], None], references: int
) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload()
    (placed,) = store.layout("s").cold
    key = tables.u64(placed.object.id)
    with store.metadata.write() as txn:
        txn.put(OBJECTS, key, replace(placed.object, references=references))
    expected = pytest.raises(DataLoss, match="without references") if references == 0 else nullcontext()
    with expected, store.metadata.write() as txn:
        unlink(txn, store.segment("s"))
    with store.metadata.read() as txn:
        left = txn.get(OBJECTS, key)
    assert (None if left is None else left.references) == {0: 0, 1: None, 2: 1}[references]
