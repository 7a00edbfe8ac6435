"""Deletes too large for one commit: the name goes at once, the rest in steps that any crash may end."""

from __future__ import annotations

import pytest

from tests.engine.journal.replaying import check_store
from tests.stores import TestStore
from tests.upkeep.check.looking import findings
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, InvalidRequest, NotFound
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.tables import CHUNKS, DIRECTORIES, DIRENTS, OBJECTS, POLICIES, SEGMENTS
from tierfs.engine.segments import create, delete, usage
from tierfs.engine.segments.delete import Deletion
from tierfs.engine.segments.writer_locks import WriterLocks

SEGMENTS_BELOW = ["d/a", "d/b/c", "d/b/d", "d/e", "d/f/g/h"]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "BATCH_RECORDS", 4)


def fill(store: TestStore) -> None:
    for name in SEGMENTS_BELOW:
        store.append(name, name.encode() * 6)
    store.append("kept", b"kept")
    store.offload()
    store.append("d/a", b"local")


def unlink_only(store: TestStore, monkeypatch: pytest.MonkeyPatch, path: str) -> Deletion:
    """Kill the process after the first commit."""
    with monkeypatch.context() as patch:
        patch.setattr(delete, "dismantle_removed", lambda *_, **__: None)
        return store.engine.delete(path, recursive=True, cold_due_ms=store.clock.now_ms())


def assert_only_kept(store: TestStore) -> None:
    with store.metadata.read() as txn:
        check_store(txn)
        assert directories.next_queued(txn) is None
        counts = [txn.count(table.name) for table in (SEGMENTS, DIRECTORIES, DIRENTS)]
        assert counts == [1, 1, 1]
        assert {holder.references for _, holder in txn.scan(OBJECTS)} == {1}
    assert store.read("kept") == b"kept"


@pytest.mark.parametrize("batch", [1, 4, 1000])
def test_a_large_directory_goes_in_small_commits(store: TestStore, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    fill(store)
    with store.metadata.write() as txn:
        for path in ("d", "d/b", "d/a"):
            policies.change(txn, path, put_settings={"chunk_bytes": "9"})
    monkeypatch.setattr(delete, "BATCH_RECORDS", batch)
    before = store.metadata.last_transaction_id()
    done = store.engine.delete("d", recursive=True, cold_due_ms=store.clock.now_ms())
    assert (done.segments, done.directories) == (5, 4)
    commits = store.metadata.last_transaction_id() - before
    assert commits == 1 if batch > done.records else commits > done.records / batch
    assert_only_kept(store)
    with store.metadata.read() as txn:
        assert txn.count(POLICIES.name) == 1
    store.clock.advance(10)
    store.settle()
    assert [found.length_bytes for found in store.cold.list("segments/")] == [4]
    assert len(list(store.files.names())) == 1


def test_no_commit_takes_more_than_a_batch(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    store.append("d/long", b"x" * 40, seal=True)
    store.offload()
    unlink_only(store, monkeypatch, "d")

    def rows() -> int:
        with store.metadata.read() as txn:
            return sum(txn.count(table.name) for table in (SEGMENTS, DIRECTORIES, CHUNKS))

    while True:
        before = rows()
        with store.metadata.write() as txn:
            if directories.next_queued(txn) is None:
                break
            delete.RemovalBatch(txn, 0, 4).take_queued()
        assert before - 4 <= rows() < before
        with store.metadata.read() as txn:
            check_store(txn)
        assert findings(store) == []
    assert_only_kept(store)


def test_after_a_crash_the_name_is_gone_and_free_and_the_next_command_goes_on(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    unlink_only(store, monkeypatch, "d")
    store.reopen()
    with store.metadata.read() as txn:
        assert directories.find(txn, "d") is None
        queued = directories.next_queued(txn)
        assert queued is not None
        assert directories.find(txn, queued.name) is None
        assert [entry.name for entry in directories.entries(txn, directories.ROOT_DIRECTORY)] == ["kept"]
        assert [found.name for found in usage.usage(txn, "")] == [""]
    with pytest.raises(NotFound):
        store.engine.delete("d", recursive=True, cold_due_ms=0)
    store.append("d/a", b"new")
    store.settle()
    assert store.read("d/a") == b"new"
    store.engine.delete("d", recursive=True, cold_due_ms=store.clock.now_ms())
    assert_only_kept(store)


def test_a_live_writer_elsewhere_keeps_all_of_a_directory(store: TestStore) -> None:
    fill(store)
    writer = store.engine.open_writer("d/f/g/h")
    writer.append(b"z")
    other = WriterLocks(store.path / "writers")
    before = store.metadata.last_transaction_id()
    with pytest.raises(Conflict, match="is being written by process"):
        delete.delete(store.metadata, other, "d", recursive=True, cold_due_ms=0)
    other.close()
    assert store.metadata.last_transaction_id() == before


def test_nobody_can_make_a_reserved_name(store: TestStore) -> None:
    with pytest.raises(InvalidRequest, match="reserved"):
        store.append(f"{names.REMOVED_PREFIX}7", b"x")
    with pytest.raises(InvalidRequest, match="reserved"):
        store.append(f"{names.REMOVED_PREFIX}7/x", b"x")
    for name in (names.CONTROL_NAME, f"/{names.CONTROL_NAME}", f"{names.CONTROL_NAME}/x"):
        with pytest.raises(InvalidRequest, match="is reserved for the reports of a mount"):
            store.append(name, b"x")
        with (
            pytest.raises(InvalidRequest, match="is reserved for the reports of a mount"),
            store.metadata.write() as txn,
        ):
            create.make_directory(txn, name)
    store.append(f"d/{names.CONTROL_NAME}", b"x")  # only the root's are
    store.append(f"{names.CONTROL_NAME}7", b"x")
    store.append(f"d/{names.REMOVED_PREFIX}7", b"x")
    assert store.read(f"d/{names.REMOVED_PREFIX}7") == b"x"


def test_what_an_older_version_stored_under_a_reserved_name_is_read_and_moved(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(names, "require_unreserved", lambda name: None)
        store.append(f"{names.CONTROL_NAME}/x", b"old", seal=True)
    assert store.read(f"{names.CONTROL_NAME}/x") == b"old"
    with store.metadata.read() as txn:
        assert directories.exists(txn, names.CONTROL_NAME)
    store.append("moved", b"")
    store.engine.concat("moved", f"{names.CONTROL_NAME}/x")
    assert store.read("moved") == b"old"
    store.engine.delete(names.CONTROL_NAME, recursive=True, cold_due_ms=0)


def test_members_of_a_stream_are_linked_past_one_that_is_queued(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, "", put_settings={"seal_bytes": "20"})
    for _ in range(3):
        store.append("s", b"x" * 20)
    store.append("s", b"y")
    second, third = store.segment("s.20"), store.segment("s.40")
    monkeypatch.setattr(delete, "BATCH_RECORDS", 3)
    unlink_only(store, monkeypatch, "s.20")
    assert store.segment("s").successor_id == third.id
    assert store.segment("s.40").predecessor_id == second.predecessor_id
    store.settle()
    store.append("s", b"z")
    assert store.read("s.60")[60:] == b"yz"


def test_a_writer_of_what_is_queued_finds_it_deleted(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("s", b"x" * 50)
    writer = store.engine.open_writer("s")
    unlink_only(store, monkeypatch, "s")
    with pytest.raises(NotFound, match="was deleted"):
        writer.append(b"y")
