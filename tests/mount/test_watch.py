"""ChangeWatcher: what it passes to the kernel when passing fails. Without a mount."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyfuse3
import pytest

from tests.stores import TestStore, open_test_store
from tierfs.base.words.types import ROOT_INODE, EntryKind
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import TOUCHES
from tierfs.mount.growth import GrowingFiles
from tierfs.mount.inodes import InodeEntry, Inodes
from tierfs.mount.options import parse_options
from tierfs.mount.tree import Tree
from tierfs.mount.watch import ChangeWatcher

TIMEOUT_S = 300.0


class EveryInode(Inodes):
    """A kernel that knows every inode."""

    def get(self, inode: int) -> InodeEntry:
        return InodeEntry(EntryKind.SEGMENT, inode)

    def numbers(self) -> list[int]:
        return [1, 2, 3]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


class Kernel:
    """Takes invalidations; refuses the one with this number, counted from 1."""

    def __init__(self, patch: pytest.MonkeyPatch, refuses: int) -> None:
        self.refuses = refuses
        self.entries: list[str] = []
        self.inodes: list[int] = []
        self.asked = 0
        patch.setattr(pyfuse3, "invalidate_entry_async", self._entry)
        patch.setattr(pyfuse3, "invalidate_inode", self._inode)

    def _ask(self) -> None:
        self.asked += 1
        if self.asked == self.refuses:
            raise RuntimeError("not now")

    def _entry(self, _: int, name: bytes, *, ignore_enoent: bool) -> None:
        self._ask()
        self.entries.append(name.decode())

    def _inode(self, inode: int, *, attr_only: bool) -> None:
        self._ask()
        self.inodes.append(inode)


def watcher_of(store: TestStore) -> ChangeWatcher:
    tree = Tree(EveryInode(), parse_options(""), TIMEOUT_S)
    return ChangeWatcher(store.metadata, tree.inodes, GrowingFiles(store.metadata, tree))


@pytest.mark.parametrize("refuses", [1, 2, 3])
async def test_changes_that_could_not_be_passed_on_are_passed_on_later(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, refuses: int
) -> None:
    watcher = watcher_of(store)
    kernel = Kernel(monkeypatch, refuses)
    store.append("a", b"x")
    store.append("b", b"x")
    with pytest.raises(RuntimeError):
        await watcher.poll()
    await watcher.poll()
    assert {"a", "b"} <= set(kernel.entries)
    assert ROOT_INODE in kernel.inodes
    asked = kernel.asked
    await watcher.poll()
    assert kernel.asked == asked


async def test_everything_is_forgotten_later_if_it_could_not_be_now(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watcher_of(store)
    kernel = Kernel(monkeypatch, refuses=2)
    store.append("a", b"x")
    with store.metadata.write() as txn:
        for key, _ in list(txn.scan_raw(TOUCHES.name)):
            txn.delete(TOUCHES.name, key)
    with pytest.raises(RuntimeError):
        await watcher.poll()
    await watcher.poll()
    assert kernel.inodes == [1, 1, 2, 3]


async def test_a_damaged_change_could_have_been_any_and_the_next_ones_pass(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watcher_of(store)
    kernel = Kernel(monkeypatch, refuses=0)
    store.append("a", b"x")
    with store.metadata.write() as txn:
        txn.put_raw(TOUCHES.name, tables.u64(txn.store.next_change - 1), b"\xff garbage")
    await watcher.poll()
    assert {1, 2, 3} <= set(kernel.inodes)
    store.append("b", b"x")
    await watcher.poll()
    assert "b" in kernel.entries
