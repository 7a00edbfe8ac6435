"""Distributed writes and the loss of the disk: a batch comes back as a whole or not at all, and once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.background.batch_writes import APPLICATION, Driver, committed, contents, uploads
from tests.recovery.recovering import recovered
from tests.recovery.test_recover import checkpoint, copy_of
from tests.stores import TestStore, open_test_store
from tierfs.background import publish
from tierfs.background.journal_names import JOURNAL_PREFIX
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.metadata.batch_records import BatchState

BATCH = {f"out/{number}": b"%d" % number * 10 for number in range(5)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def prefixes(cold: MemoryStorage) -> Iterator[MemoryStorage]:
    """The bucket as it was after each entry of its journal, all uploads being there."""
    slots = [one.name for one in cold.list(JOURNAL_PREFIX)]
    for count in range(1, len(slots) + 1):
        copy = copy_of(cold)
        for name in slots[count:]:
            copy.delete(name)
        yield copy


def test_a_batch_comes_back(store: TestStore, tmp_path: Path) -> None:
    Driver(store).write(BATCH)
    store.work().settle()
    with recovered(tmp_path / "new", store.cold) as found:
        assert contents(found.store) == BATCH
        assert committed(found.store) == [(APPLICATION, "1", BatchState.COMMITTED)]
        assert Driver(found.store).write(BATCH).repeated


def test_a_checkpoint_holds_batches(store: TestStore, tmp_path: Path) -> None:
    Driver(store).write(BATCH)
    checkpoint(store)
    with recovered(tmp_path / "new", store.cold) as found:
        assert found.checkpoint_slot > 0
        assert Driver(found.store).write(BATCH).repeated
        assert contents(found.store) == BATCH


@pytest.mark.parametrize("changes", [1, 4])
def test_a_journal_that_ends_inside_a_batch_holds_nothing_of_it(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    monkeypatch.setattr(publish, "_ENTRY_CHANGES", changes)
    driver = Driver(store)
    driver.write({"before": b"0123456789"})
    driver.write(BATCH, version=2)
    store.work().settle()
    seen = []
    for number, cold in enumerate(prefixes(store.cold)):  # type: ignore[arg-type]
        with recovered(tmp_path / f"new{number}", cold) as found:
            seen.append(frozenset(contents(found.store)))
            assert {state for _, _, state in committed(found.store)} <= {BatchState.COMMITTED}
            again = Driver(found.store)
            again.write({"before": b"0123456789"})
            again.write(BATCH, version=2)
            assert contents(found.store) == {"before": b"0123456789", **BATCH}
    assert len(seen) > 3
    assert set(seen) <= {frozenset(), frozenset({"before"}), frozenset({"before", *BATCH})}
    assert len(set(seen)) == 3


def test_objects_of_a_batch_that_was_taken_away_are_collected(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "_ENTRY_CHANGES", 4)
    Driver(store).write(BATCH)
    store.work().settle()
    slots = [one.name for one in store.cold.list(JOURNAL_PREFIX)]
    store.cold.delete(slots[-1])
    with recovered(tmp_path / "new", store.cold) as found:
        found.store.clock.advance(24 * 3600)  # type: ignore[attr-defined]
        found.store.cold_work().collect_all(grace_s=0)
        found.store.clock.advance(24 * 3600)  # type: ignore[attr-defined]
        found.store.cold_work().collect_all(grace_s=0)
        assert uploads(found.store) == set()
