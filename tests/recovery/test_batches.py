"""Distributed writes and the loss of the disk: a batch comes back as a whole or not at all, and once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest

from tests.holder.holding import set_policy
from tests.recovery.recovering import recovered
from tests.recovery.test_follow import follower, following
from tests.recovery.test_from_objects import rebuilt
from tests.recovery.test_recover import checkpoint, copy_of, damage
from tests.stores import TestStore, open_test_store
from tests.tiering.batch_writes import APPLICATION, Driver, committed, contents, upload, uploads
from tierfs.backup import store as dump
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.errors import Fenced
from tierfs.journal import publish
from tierfs.journal.names import JOURNAL_PREFIX
from tierfs.metadata import batches
from tierfs.metadata.ledger_and_batch_records import BatchState
from tierfs.metadata.store import MetadataStore
from tierfs.segments import batch_commit

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
    store.settle()
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
    store.settle()
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
    store.settle()
    slots = [one.name for one in store.cold.list(JOURNAL_PREFIX)]
    store.cold.delete(slots[-1])
    with recovered(tmp_path / "new", store.cold) as found:
        found.store.clock.advance(24 * 3600)  # type: ignore[attr-defined]
        found.store.cold_work().collect_all(grace_s=0)
        found.store.clock.advance(24 * 3600)  # type: ignore[attr-defined]
        found.store.cold_work().collect_all(grace_s=0)
        assert uploads(found.store) == set()


def without_journal(store: TestStore) -> MemoryStorage:
    cold = copy_of(store.cold)
    for one in list(cold.list(JOURNAL_PREFIX)):
        cold.delete(one.name)
    return cold


def test_manifests_tell_batches_when_the_journal_is_lost_too(store: TestStore, tmp_path: Path) -> None:
    driver = Driver(store)
    driver.write({"out/a": b"0123456789", "out/b": b"xyz"})
    driver.write({"out/c": b"later"}, version=2)
    ids = {name: store.segment(name).id for name in contents(store)}
    late = upload(store, driver.begin(), 0, "out/d", b"never committed")
    with rebuilt(tmp_path / "new", without_journal(store)) as found:
        assert contents(found.store) == {"out/a": b"0123456789", "out/b": b"xyz", "out/c": b"later"}
        assert {name: found.store.segment(name).id for name in ids} == ids
        assert found.left == {one.name: "no commit that is known names it" for one in late.objects}
        assert Driver(found.store).write({"out/e": b"again"}, version=2).repeated
        assert not Driver(found.store).write({"out/e": b"new"}, version=3).repeated


def test_of_two_manifests_of_one_version_one_counts(
    store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes committed the version at once; the garbage of the one that was late is still there."""
    driver = Driver(store)
    first, second = driver.begin(), driver.begin()
    monkeypatch.setattr(batch_commit.batches, "is_committed", lambda *_: False)
    uploaded = driver.upload(first, {"out/a": b"0123456789"})
    driver.commit(first, uploaded)
    store.clock.advance(1)  # type: ignore[attr-defined]
    other = driver.upload(second, {"out/b": b"abcdefghij"})
    driver.commit(second, other)
    for lost, expected in (([], "out/a"), ([uploaded[0].objects[0].name], "out/b")):
        cold = without_journal(store)
        for name in lost:
            cold.delete(name)
        with rebuilt(tmp_path / expected.replace("/", "-"), cold) as found:
            assert set(contents(found.store)) == {expected}
            assert set(found.left.values()) == {"version 1 was written by another job too"}


def test_what_was_consolidated_joins_what_was_not(store: TestStore, tmp_path: Path) -> None:
    Driver(store).write({"out/a": b"0123456789" * 4, "out/b": b"xyz"})
    set_policy(store, object_bytes="1000")
    store.consolidate()
    store.settle()
    store.clock.advance(24 * 3600)  # type: ignore[attr-defined]
    store.settle()
    assert not any(name.startswith("00000000") for name in uploads(store)), "one object below segments/ by now"
    with rebuilt(tmp_path / "new", without_journal(store)) as found:
        assert contents(found.store) == {"out/a": b"0123456789" * 4, "out/b": b"xyz"}


def test_a_damaged_manifest_leaves_its_objects_aside(store: TestStore, tmp_path: Path) -> None:
    Driver(store).write({"out/a": b"0123456789"})
    Driver(store).write({"out/b": b"xyz"}, version=2)
    cold = without_journal(store)
    manifest = next(one.name for one in cold.list("uploads/") if "/manifest-" in one.name)
    damage(cold, manifest)
    with rebuilt(tmp_path / "new", cold) as found:
        assert len(contents(found.store)) == 1
        assert "its checksum differs" in found.left.pop(manifest)
        assert set(found.left.values()) == {"no commit that is known names it"}


def test_a_replica_knows_batches_and_writes_none(store: TestStore, tmp_path: Path) -> None:
    Driver(store).write(BATCH)
    store.settle()
    with following(store, tmp_path / "replica") as copy:
        assert (contents(copy), committed(copy)) == (BATCH, committed(store))
        Driver(store).write({"out/later": b"1"}, version=2)
        store.settle()
        follower(copy).refresh()
        assert (contents(copy), committed(copy)) == ({**BATCH, "out/later": b"1"}, committed(store))
        with pytest.raises(Fenced, match="replica"):
            Driver(copy).begin()


def test_a_dump_holds_batches(store: TestStore, tmp_path: Path) -> None:
    Driver(store).write(BATCH)
    file = BytesIO()
    with store.metadata.read() as txn:
        dump.write(txn, file, store.clock.now_ms())
    file.seek(0)
    dump.load(tmp_path / "loaded", store.clock, (part for part, _ in dump.read(file, "dump")), [])
    with closing(MetadataStore(tmp_path / "loaded", store.clock)) as loaded, loaded.read() as txn:
        assert batches.is_committed(txn, APPLICATION, 1)
