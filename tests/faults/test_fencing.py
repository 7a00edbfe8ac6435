"""Two owners of one bucket: one wins; the other is fenced before it changes or deletes anything (invariant 7)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.storages import opened
from tests.doubles.scripted_storage import ScriptedStorage
from tests.faults.two_owners import bucket, copy_metadata, new_owner, opened_copy
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import Fenced, Unavailable
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.names import checkpoint_slot, slot_name
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import frames, policies
from tierfs.upkeep.holder.local_only import LocalOnly, local_only

HDFS = pytest.param("webhdfs", marks=pytest.mark.hdfs)
KINDS = ["memory", "directory", "place-local", "gcs", "versity", HDFS, pytest.param("rgw", marks=pytest.mark.s3)]
HOUR_S = 3600


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Iterator[ChunkStorage]:
    with opened(getattr(request, "param", "memory"), request) as found:
        yield found


@pytest.fixture
def store(tmp_path: Path, storage: ChunkStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "first", cold=storage) as first:
        yield first


def remove(store: TestStore, name: str) -> None:
    store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms())


def set_policy(store: TestStore) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, "", put_settings={"chunk_bytes": "16"})


VERBS: dict[str, Callable[[TestStore], object]] = {
    "append": lambda store: store.append("s", b"more"),
    "create": lambda store: store.append("new", b"bytes"),
    "seal": lambda store: store.engine.seal("s"),
    "rm": lambda store: remove(store, "s"),
    "policy": set_policy,
    "offload": lambda store: store.offload(),
    "evict": lambda store: store.evict(),
    "gc --delete": lambda store: store.collect(),
    "publish": lambda store: store.cold_work().publish(),
    "checkpoint": lambda store: store.cold_work().checkpointer.checkpoint(),
}


@pytest.mark.parametrize("storage", KINDS, indirect=True)
def test_of_two_owners_one_wins_and_the_other_changes_nothing_in_the_bucket(store: TestStore, tmp_path: Path) -> None:
    store.append("s", b"abcdefgh")
    store.append("gone", b"12345678")
    store.offload()
    remove(store, "gone")
    store.cold_work().publish()  # its object is garbage that is due, and both stores know of it
    with new_owner(store, tmp_path / "second") as second:
        second.append("s", b"ijkl")
        second.offload()
        before = bucket(store.cold)
        for verb in ("gc --delete", "offload", "evict", "checkpoint"):
            with pytest.raises(Fenced, match="since epoch 2"):
                VERBS[verb](store)
            assert bucket(store.cold) == before
        assert second.read("s", Tier.COLD) == b"abcdefghijkl"
        second.settle()
        assert len([name for name in bucket(store.cold) if name.startswith("segments/gone/")]) == 0


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_of_a_store_that_knows_it_is_fenced_changes_anything(
    store: TestStore, tmp_path: Path, verb: str
) -> None:
    store.append("s", b"abcdef")
    store.offload()
    with new_owner(store, tmp_path / "second"):
        with pytest.raises(Fenced):
            store.cold_work().publisher.require_ownership()
        files, objects = sorted((store.path / "chunks").rglob("*")), bucket(store.cold)
        with pytest.raises(Fenced, match="since epoch 2; this store is read-only") as caught:
            VERBS[verb](store)
        assert "tierfs status" in (caught.value.remedy or "")
        assert (sorted((store.path / "chunks").rglob("*")), bucket(store.cold)) == (files, objects)
    assert store.read("s") == b"abcdef"


def test_a_running_writer_learns_of_the_new_owner_at_its_next_commit(store: TestStore, tmp_path: Path) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"abcd")
    store.cold_work().publish()
    with new_owner(store, tmp_path / "second"):
        writer.append(b"ef")  # nothing told this host yet: acknowledged, and listed below
        with pytest.raises(Fenced):
            store.cold_work().publisher.require_ownership()
        with pytest.raises(Fenced, match="since epoch 2"):
            writer.append(b"gh")
        store.engine.close_writer(writer)
    assert store.read("s") == b"abcdef"
    with store.metadata.read() as txn:
        assert list(local_only(txn)) == [LocalOnly("s", 0, 6)]


def test_a_cold_object_is_deleted_only_after_a_listing_that_shows_no_other_owner(tmp_path: Path) -> None:
    flaky = ScriptedStorage(MemoryStorage())
    with open_test_store(tmp_path / "first", cold=flaky) as store:
        store.append("s", b"abcdefgh")
        store.offload()
        remove(store, "s")
        store.cold_work().publish()
        flaky.fail("list", Unavailable("the server does not answer"))
        assert store.cold_work().collect().failed == 1  # nothing is certain: put off, not deleted
        assert flaky.calls["delete"] == 0
        store.clock.advance(HOUR_S)  # type: ignore[attr-defined]
        listings = flaky.calls["list"]
        assert store.cold_work().collect().deleted == 1
        assert flaky.calls["list"] == listings + 1


@pytest.mark.parametrize("storage", KINDS, indirect=True)
def test_a_zombie_that_creates_a_deleted_slot_is_fenced_and_its_entry_is_void(
    storage: ChunkStorage, tmp_path: Path
) -> None:
    stalling = ScriptedStorage(storage)
    put = stalling.hold("put", of=slot_name(500))
    with open_test_store(tmp_path / "first", cold=stalling) as zombie:
        with zombie.metadata.write() as txn:
            txn.update_store(journal=replace(txn.store.journal, next_slot=499))
        zombie.append("s", b"abcdefgh")
        zombie.offload()
        zombie.append("late", b"x")
        failed: list[BaseException] = []
        thread = threading.Thread(target=lambda: failed.append(_error_of(zombie.cold_work().publish)))
        with opened_copy(zombie, tmp_path / "copy") as copied:
            copied.cold = storage
            thread.start()
            put.wait_begun()
            with new_owner(copied, tmp_path / "second") as owner:
                _checkpoint_after_an_append(owner, "a")
                _checkpoint_after_an_append(owner, "b")
                assert slot_name(500) not in bucket(storage)
                before = bucket(storage)
                put.go_on()
                thread.join(30)
                assert isinstance(failed[0], Fenced)
                void = {name: data for name, data in bucket(storage).items() if name not in before}
                assert list(void) == [slot_name(500)]
                assert frames.parse_entry(void[slot_name(500)], "void").store_epoch == 1
                newest = max(slot for name in before if (slot := checkpoint_slot(name)) is not None)
                assert newest > 500  # where readers start
                _checkpoint_after_an_append(owner, "c")
                assert slot_name(500) not in bucket(storage)
                assert owner.read("s", Tier.COLD) == b"abcdefgh"
        with pytest.raises(Fenced):
            zombie.append("s", b"x")


def _checkpoint_after_an_append(owner: TestStore, name: str) -> None:
    owner.append(name, b"abcd")
    owner.cold_work().checkpointer.checkpoint()


def _error_of(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except BaseException as exc:
        return exc
    return AssertionError("it did not fail")


@pytest.mark.parametrize("deleted_slots", [False, True])
def test_an_old_backup_over_a_newer_bucket_is_refused_and_recover_named(
    store: TestStore, tmp_path: Path, deleted_slots: bool
) -> None:
    store.append("s", b"abcd")
    store.offload()
    copy_metadata(store.path / "metadata", tmp_path / "backup" / "metadata")
    shutil.copytree(store.path / "chunks", tmp_path / "backup" / "chunks", copy_function=shutil.copy)
    for name in "abc":
        store.append(name, b"later")
        store.offload()
        if deleted_slots:
            store.cold_work().checkpointer.checkpoint()
    before = bucket(store.cold)
    backup = replace_path(store, tmp_path / "backup")
    with opened_copy(backup, tmp_path / "restored") as restored:
        restored.append("new", b"x")
        with pytest.raises(Fenced, match="old backup") as caught:
            Publisher(restored.metadata, restored.cold).publish()
        assert "recover" in (caught.value.remedy or "")
        with pytest.raises(Fenced, match="old backup"):
            restored.append("s", b"y")
    after = bucket(store.cold)
    assert {name: data for name, data in after.items() if name in before} == before
    assert len(after) - len(before) <= int(deleted_slots)  # a void slot below the checkpoint
    store.append("s", b"y")
    store.offload()


def replace_path(store: TestStore, path: Path) -> TestStore:
    """The same store as its files lay in `path`."""
    return replace(store, path=path)


def test_an_old_backup_with_nothing_to_publish_is_noticed_before_it_deletes(store: TestStore, tmp_path: Path) -> None:
    store.append("s", b"abcd")
    store.offload()
    with opened_copy(store, tmp_path / "restored") as restored:
        store.append("s", b"efgh")
        store.offload()
        with pytest.raises(Fenced, match="old backup"):
            restored.evict()
        assert restored.read("s", Tier.LOCAL) == b"abcd"
