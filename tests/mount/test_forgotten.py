"""ForgottenInodes: each entry by its inode, whatever its number, and none that is gone. Without a mount."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.stores import TestStore, open_test_store
from tierfs.base.words.types import ROOT_DIRECTORY, ROOT_INODE, EntryKind
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.segments import trash
from tierfs.mount.forgotten import ForgottenInodes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def inode_of(store: TestStore, name: str) -> int:
    with store.metadata.read() as txn:
        return directories.inode_of(txn, directories.must_find(txn, name))


def id_of(store: TestStore, name: str) -> int:
    with store.metadata.read() as txn:
        return directories.must_find(txn, name).id


def find(inodes: ForgottenInodes, inode: int) -> Entry | None:
    return trio.run(inodes.find, inode)


def renewed(store: TestStore, name: str) -> int:
    """The new inode of a sealed segment that is opened again."""
    store.engine.unseal(name)
    store.append(name, seal=True)
    return inode_of(store, name)


def test_every_inode_of_now_is_one_entry_and_no_other_number_is(store: TestStore) -> None:
    names = [f"d{number % 3}/s{number}" for number in range(30)]
    for name in names:
        store.append(name, b"x", seal=True)
    for name in names[::2]:
        renewed(store, name)
    inodes = ForgottenInodes(store.metadata)
    with store.metadata.read() as txn:
        next_id = txn.store.next_id
    wanted = {inode_of(store, name): Entry("", EntryKind.SEGMENT, id_of(store, name)) for name in names}
    wanted |= {inode_of(store, f"d{at}"): Entry("", EntryKind.DIRECTORY, id_of(store, f"d{at}")) for at in range(3)}
    wanted[ROOT_INODE] = Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY)
    assert {at: entry for at in range(next_id + 3) if (entry := find(inodes, at)) is not None} == wanted


def test_the_rows_are_read_once_until_greater_numbers_are_given(
    monkeypatch: pytest.MonkeyPatch, store: TestStore
) -> None:
    reads: list[int] = []
    read = ForgottenInodes._read_rows
    monkeypatch.setattr(ForgottenInodes, "_read_rows", lambda inodes: reads.append(1) or read(inodes))
    store.append("s", b"x", seal=True)
    first = inode_of(store, "s")
    second = renewed(store, "s")
    inodes = ForgottenInodes(store.metadata)
    assert find(inodes, id_of(store, "s") + 1) is None, "the inode that follows its id is an older file's"
    for _ in range(3):
        assert find(inodes, first) is None
        assert find(inodes, second) == Entry("", EntryKind.SEGMENT, id_of(store, "s"))
    assert len(reads) == 1
    third = renewed(store, "s")
    assert find(inodes, third) == Entry("", EntryKind.SEGMENT, id_of(store, "s"))
    assert find(inodes, second) is None
    assert len(reads) == 2


def test_a_replica_s_numbers_are_its_owner_s(store: TestStore) -> None:
    store.append("s", b"x", seal=True)
    with store.metadata.write() as txn:
        txn.update_store(replica=True, next_id=1 << 20)
    inodes = ForgottenInodes(store.metadata)
    assert find(inodes, 5000) is None
    with store.metadata.write_replayed() as txn:
        txn.update_store(replica=False, next_id=5000)
    second = renewed(store, "s")
    with store.metadata.write() as txn:
        txn.update_store(replica=True, next_id=1 << 20)
    assert find(inodes, second) == Entry("", EntryKind.SEGMENT, id_of(store, "s"))


@pytest.mark.parametrize("name", ["s", "d"])
def test_what_was_removed_is_not_there_until_it_is_restored(store: TestStore, name: str) -> None:
    for segment in ("s", "d/s"):
        store.append(segment, b"x", seal=True)
    held = {each: inode_of(store, each) for each in ("s", "d", "d/s")}
    gone = [inode for each, inode in held.items() if each.startswith(name)]
    inodes = ForgottenInodes(store.metadata)
    store.engine.delete(name, recursive=True, cold_due_ms=0, to_trash=True)
    assert [find(inodes, inode) for inode in gone] == [None] * len(gone)
    trash.restore(store.metadata, name)
    assert None not in [find(inodes, inode) for inode in gone]
    store.engine.delete(name, recursive=True, cold_due_ms=0)
    assert [find(inodes, inode) for inode in gone] == [None] * len(gone)
