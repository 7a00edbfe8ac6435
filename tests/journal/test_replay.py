"""A replay of the journal gives the owner's view of the bucket, wherever the journal is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.replaying import apply_all, check_store, empty_copy, entries_of, view
from tests.stores import TestStore, open_test_store


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
