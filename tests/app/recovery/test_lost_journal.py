"""An owner that comes back after a recovery from objects: it is fenced, and nobody follows it (invariant 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.app.recovery.recovering import lose_journal, recovered
from tests.app.recovery.test_follow import cold_bytes, follower, following, shown
from tests.app.recovery.test_from_objects import rebuilt
from tests.conformance.storages import opened
from tests.faults.two_owners import bucket as objects
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import DataLoss, Fenced, Unavailable
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX, checkpoint_name, checkpoint_slot, entry_slot, slot_name
from tierfs.engine.metadata import epoch_numbers, policies
from tierfs.upkeep.check.journal import JournalCheck

KINDS = ["memory", "directory", pytest.param("rgw", marks=pytest.mark.s3)]


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Iterator[ChunkStorage]:
    with opened(getattr(request, "param", "memory"), request) as found:
        yield found


@pytest.fixture
def old(tmp_path: Path, storage: ChunkStorage) -> Iterator[TestStore]:
    """An owner with more slots behind it than a recovery from its objects needs."""
    with open_test_store(tmp_path / "old", cold=storage) as store:
        for name in "ab":
            store.append(name, b"abcdefgh")
            store.offload()
        for number in range(1, 9):
            with store.metadata.write() as txn:
                policies.change(txn, "", put_settings={"chunk_age": str(number)})
            store.cold_work().publish()
        yield store


def ask(store: TestStore) -> None:
    store.cold_work().publisher.require_ownership()


def publish(store: TestStore) -> None:
    store.append("late", b"x")
    store.cold_work().publish()


def remove(store: TestStore, name: str) -> None:
    store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms())


RETURNS: dict[str, Callable[[TestStore], object]] = {
    "publish": publish,
    "ownership": ask,
    "offload": lambda store: (store.append("a", b"late"), store.offload()),
    "evict": lambda store: store.evict(),
    "checkpoint": lambda store: store.cold_work().checkpointer.checkpoint(),
    "gc --delete": lambda store: (remove(store, "a"), store.collect()),
}


@pytest.mark.parametrize("storage", KINDS, indirect=True)
def test_an_owner_that_comes_back_is_fenced_and_fences_nobody(
    old: TestStore, storage: ChunkStorage, tmp_path: Path
) -> None:
    lose_journal(storage)
    with rebuilt(tmp_path / "new", storage) as new:
        with new.store.metadata.read() as txn:
            slots = [slot for item in storage.list(JOURNAL_PREFIX) if (slot := entry_slot(item.name)) is not None]
            assert min(slots) == epoch_numbers.first_of(txn.store.store_epoch), "where no older owner can come"
        segments = {name: data for name, data in objects(storage).items() if name.startswith("segments/")}
        with pytest.raises(Fenced, match="another store owns the bucket"):
            RETURNS["gc --delete"](old)
        assert {name: data for name, data in objects(storage).items() if name in segments} == segments
        new.store.append("a", b"ijkl")
        new.store.offload()
        new.store.cold_work().checkpointer.checkpoint()
        assert new.store.read("a", Tier.COLD) == b"abcdefghijkl"
        assert JournalCheck(new.store.metadata, storage).run() == []
    with recovered(tmp_path / "again", storage) as again:
        assert again.warnings == ()
        assert again.store.read("a") == b"abcdefghijkl"


def test_entries_and_checkpoints_that_are_left_are_void(old: TestStore, storage: ChunkStorage, tmp_path: Path) -> None:
    """The journal was whole, and --from-objects was told to ignore it; then its owner goes on for one entry."""
    old.cold_work().checkpointer.checkpoint()
    with rebuilt(tmp_path / "new", storage) as new:
        with pytest.raises(Fenced):
            publish(old)
        new.store.append("a", b"ijkl")
        new.store.offload()
        with recovered(tmp_path / "again", storage) as again:
            assert again.store.read("a") == b"abcdefghijkl"
            with again.store.metadata.read() as txn:
                assert txn.store.next_id > epoch_numbers.first_of(txn.store.store_epoch - 1)


def test_replicas_follow_a_recovery_from_objects_by_themselves(
    old: TestStore, storage: ChunkStorage, tmp_path: Path
) -> None:
    with following(old, tmp_path / "replica") as replica:
        lose_journal(storage)
        assert follower(replica).refresh().entries == 0
        with rebuilt(tmp_path / "new", storage) as new:
            with pytest.raises(Fenced):
                publish(old)  # stands right behind what the replica has
            assert follower(replica).refresh().started_over
            assert shown(replica) == cold_bytes(new.store)
            new.store.append("a", b"ijkl")
            new.store.append("of the new one", b"x")
            new.store.offload()
            assert follower(replica).refresh().entries > 0
            assert shown(replica) == cold_bytes(new.store)
            assert follower(replica).refresh().entries == 0


def test_replicas_wait_for_the_checkpoint_of_a_recovery_from_objects(
    old: TestStore, storage: ChunkStorage, tmp_path: Path
) -> None:
    with following(old, tmp_path / "replica") as replica, rebuilt(tmp_path / "new", storage) as new:
        before = shown(replica)
        [manifest] = [item.name for item in storage.list(JOURNAL_PREFIX) if checkpoint_slot(item.name) is not None]
        buffer = bytearray(storage.stat(manifest).length_bytes)
        storage.read_into(manifest, 0, memoryview(buffer))
        storage.delete(manifest)  # as before it was written
        with pytest.raises(Unavailable, match="being recovered from its objects"):
            follower(replica).refresh()
        assert shown(replica) == before
        storage.put(manifest, BufferSource(bytes(buffer)))
        assert follower(replica).refresh().started_over
        assert shown(replica) == cold_bytes(new.store)


def test_an_owner_without_objects_is_not_forgotten_with_its_journal(
    old: TestStore, storage: ChunkStorage, tmp_path: Path
) -> None:
    """More owners by `recover` than a recovery from objects skips, none of which made an object."""
    with ExitStack() as stack:
        owners = [old]
        for number in range(20):
            owners.append(stack.enter_context(recovered(tmp_path / str(number), storage)).store)
        lose_journal(storage)
        new = stack.enter_context(rebuilt(tmp_path / "new", storage)).store
        assert epoch_of(new) > max(map(epoch_of, owners))
        with pytest.raises(Fenced, match="another store owns the bucket"):
            publish(owners[-1])


def test_a_recovery_does_not_repeat_an_epoch_that_its_journal_no_longer_names(
    old: TestStore, storage: ChunkStorage, tmp_path: Path
) -> None:
    before = {item.name for item in storage.list(JOURNAL_PREFIX)}
    with recovered(tmp_path / "first", storage) as first:
        for item in list(storage.list(JOURNAL_PREFIX)):
            if item.name not in before:
                storage.delete(item.name)
        with recovered(tmp_path / "second", storage) as second:
            assert epoch_of(second.store) > epoch_of(first.store)


def epoch_of(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return txn.store.store_epoch


def test_the_remains_of_a_journal_are_not_replayed(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store") as store:
        for name in ("s", "t", "u"):
            store.append(name, b"abcdefgh", seal=True)
            store.offload()
        store.cold.delete(slot_name(2))
        with rebuilt(tmp_path / "new", store.cold) as found:
            assert set(found.rebuilt) == {"s", "t", "u"}
        with recovered(tmp_path / "again", store.cold) as again:
            assert again.warnings == ()
            assert again.store.read("t") == b"abcdefgh"
        # Killed before its checkpoint it would be half a journal, which must not be taken for a whole one.
        for item in list(store.cold.list(checkpoint_name(0)[:-20])):
            store.cold.delete(item.name)
        with pytest.raises(DataLoss) as refused, recovered(tmp_path / "half", store.cold):
            pass
        assert "--from-objects" in (refused.value.remedy or "")
