"""GrowingFiles: what the kernel is told of a file that grows under its readers. Without a mount."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyfuse3
import pytest
import trio

from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import Fenced
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.mount import operations
from tierfs.mount.growth import GrowingFiles
from tierfs.mount.inodes import InodeEntry, Inodes
from tierfs.mount.options import parse_options
from tierfs.mount.tree import Tree

TIMEOUT_S = 300.0
WAIT_S = 20.0


class Kernel:
    """Takes invalidations; holds those of pages until it may go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.may_go_on = threading.Event()
        self.asked = threading.Event()
        self.attributes = self.pages = 0
        self.error: OSError | None = None
        patch.setattr(pyfuse3, "invalidate_inode", self._inode)

    def _inode(self, _: int, *, attr_only: bool) -> None:
        if attr_only:
            self.attributes += 1
            return
        self.pages += 1
        self.asked.set()
        assert self.may_go_on.wait(WAIT_S)
        if self.error is not None:
            raise self.error


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


class Grown:
    """One segment that a kernel knows and has open, and what tells the kernel of it."""

    def __init__(self, store: TestStore, nursery: trio.Nursery) -> None:
        self.store = store
        inodes = Inodes()
        self.tree = Tree(inodes, parse_options(""), TIMEOUT_S)
        self.growing = GrowingFiles(store.metadata, self.tree)
        self.growing.nursery = nursery
        segment = store.segment("s")
        self.inode = segment.inode
        with store.metadata.read() as txn:
            shown = self.tree.attributes_of_inode
            self.known: InodeEntry = inodes.remember(segment.inode, *_entry(segment.id))
            shown(txn, self.inode)
        self.open()

    def open(self) -> bool:
        with self.store.metadata.read() as txn:
            size = self.known.opened(self.tree.segment(txn, self.known.id)[0])
        return self.known.opened_paged(size)

    def close(self) -> None:
        self.known.open_handles -= 1
        self.known.paged_handles -= 1

    def size(self) -> int:
        with self.store.metadata.read() as txn:
            return self.tree.attributes_of_inode(txn, self.inode).st_size


def _entry(segment_id: int) -> tuple[EntryKind, int]:
    return EntryKind.SEGMENT, segment_id


async def test_the_size_grows_after_the_pages(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("s", b"abc")
    kernel = Kernel(monkeypatch)
    async with trio.open_nursery() as nursery:
        file = Grown(store, nursery)
        store.append("s", b"def")
        assert file.size() == 3
        file.growing.changed(file.inode)
        await trio.to_thread.run_sync(kernel.asked.wait)
        assert file.size() == 3
        kernel.may_go_on.set()
        await file.growing.finish(file.inode, file.known, 6)
        assert (file.size(), file.known.pages_kept) == (6, True)
    assert (kernel.pages, kernel.attributes) == (1, 1)


async def test_a_size_is_shown_only_once_the_kernel_dropped_the_pages(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("s", b"abc")
    kernel = Kernel(monkeypatch)
    kernel.may_go_on.set()
    async with trio.open_nursery() as nursery:
        file = Grown(store, nursery)
        store.append("s", b"def")
        await file.growing.finish(file.inode, file.known, 6)
        assert (file.size(), kernel.pages) == (6, 1)


async def test_a_file_opened_anew_while_it_grew_shows_no_smaller_size(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last reader closed it, it grew again, and the next open has the kernel drop the pages."""
    store.append("s", b"abc")
    kernel = Kernel(monkeypatch)
    async with trio.open_nursery() as nursery:
        file = Grown(store, nursery)
        store.append("s", b"def")
        file.growing.changed(file.inode)
        await trio.to_thread.run_sync(kernel.asked.wait)
        file.close()
        store.append("s", b"ghi")
        assert file.open() is False
        kernel.may_go_on.set()
        while file.known.growing is not None:
            assert file.size() == 9
            await file.known.growing.wait()
        assert (file.size(), file.known.pages_kept) == (9, False)


async def test_a_file_that_grows_without_a_pause_is_waited_for_once(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("s", b"abc")
    kernel = Kernel(monkeypatch)
    kernel.may_go_on.set()
    async with trio.open_nursery() as nursery:
        file = Grown(store, nursery)

        async def grow() -> None:
            while True:
                store.append("s", b"x")
                await trio.sleep(0.01)

        nursery.start_soon(grow)
        with trio.fail_after(WAIT_S):
            for _ in range(5):
                await trio.sleep(0.02)
                await file.growing.finish(file.inode, file.known, store.segment("s").length)
        nursery.cancel_scope.cancel()
    assert kernel.attributes >= 5


@pytest.mark.parametrize(("number", "size"), [(errno.ENOENT, 6), (errno.ENOTCONN, 6), (errno.EIO, 3)])
async def test_pages_that_stay_keep_the_size_and_nobody_waiting(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, number: int, size: int, expected_warnings: list[str]
) -> None:
    """An inode or a mount that is gone has no pages."""
    expected_warnings.append("the kernel does not drop pages")
    store.append("s", b"abc")
    kernel = Kernel(monkeypatch)
    kernel.may_go_on.set()
    kernel.error = OSError(number, "no")
    async with trio.open_nursery() as nursery:
        file = Grown(store, nursery)
        store.append("s", b"def")
        with trio.fail_after(WAIT_S):
            await file.growing.finish(file.inode, file.known, 6)
        assert (file.size(), file.known.pages_end) == (size, size)
        assert file.known.growing is None


class Reading:
    """Reads a segment whose head was dropped."""

    def __init__(self, start_offset: int, data: bytes) -> None:
        self.segment = pb.SegmentRecord(start_offset=start_offset, length=start_offset + len(data))
        self._data = data

    async def read(self, offset: int, size_bytes: int) -> bytes:
        at = offset - self.segment.start_offset
        return self._data[at : at + size_bytes]


@pytest.mark.parametrize(("start", "size", "read"), [(10, 6, b"kept+n"), (12, 100, b"pt+new"), (13, 2, b"t+")])
async def test_a_page_in_which_a_head_was_dropped_begins_with_what_was_kept(start: int, size: int, read: bytes) -> None:
    known = InodeEntry(EntryKind.SEGMENT, 1, start_offset=10)
    known.note_tail(10, b"kept")
    reading: Any = Reading(14, b"+new")
    assert await operations._after_tail(known, reading, start, size) == read


@pytest.mark.parametrize("start", [9, 0])
async def test_what_was_not_kept_of_a_dropped_head_is_gone(start: int) -> None:
    known = InodeEntry(EntryKind.SEGMENT, 1, start_offset=10)
    known.note_tail(10, b"kept")
    reading: Any = Reading(14, b"+new")
    with pytest.raises(Fenced):
        await operations._after_tail(known, reading, start, 100)


async def test_a_dropped_head_s_page_is_kept_for_those_who_come_later() -> None:
    """Others have read on meanwhile, and the file ends in another page."""
    known = InodeEntry(EntryKind.SEGMENT, 1, start_offset=10)
    known.note_tail(10, b"kept")
    reading: Any = Reading(14, b"+new")
    for _ in range(2):
        assert await operations._after_tail(known, reading, 10, 100) == b"kept+new"
        assert await operations._after_tail(known, reading, 13, 100) == b"t+new"
        known.note_tail(5000, bytes(5000))
    with pytest.raises(Fenced):
        await operations._after_tail(known, reading, 9, 100)
    with pytest.raises(Fenced):
        await operations._after_tail(known, Reading(13, b"?"), 10, 100)  # type: ignore[arg-type]


def test_a_kept_page_gives_only_what_it_has() -> None:
    known = InodeEntry(EntryKind.SEGMENT, 1, start_offset=100)
    known.note_tail(4000, bytes(range(200)) + b"end!")  # of the segment; the file's second page begins at 4196
    assert (known.tail, known.tail_end) == (bytes(range(196, 200)) + b"end!", 4204)
    assert known.tail_between(4196, 4204) == known.tail
    assert known.tail_between(4200, 4201) == b"e"
    for start, end in ((4195, 4200), (4200, 4205), (4200, 4200), (0, 4)):
        assert known.tail_between(start, end) is None
    known.note_tail(4100, b"older")
    assert known.tail_end == 4204
