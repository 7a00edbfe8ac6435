"""A disk that fails during a commit and takes changes later: the process goes on, unless a commit may hold or not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from fcntl import F_GETFL, fcntl
from pathlib import Path

import pytest

from tests.disks import synced
from tests.mount.waiting import eventually
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import TierfsError, Unavailable
from tierfs.engine.metadata import environment
from tierfs.engine.metadata.environment import close_environment, open_environment
from tierfs.engine.metadata.tables import SEGMENTS

BACK = "the disk accepts changes again"


class Page(Enum):
    """The pages that LMDB writes in a commit, each kind by a descriptor of its own."""

    DATA = "data"
    LAST = "last"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestStore]:
    monkeypatch.setattr(environment, "_LOOK_AGAIN_S", 0)
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abc")
        yield opened


@contextmanager
def failing(store: TestStore, page: Page) -> Iterator[None]:
    """Let LMDB's writes of these pages fail, and every other write of the metadata's directory."""
    path = store.metadata.path
    held = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_open(fd, path / "data.mdb")]
    (fd,) = [fd for fd in held if bool(fcntl(fd, F_GETFL) & os.O_DSYNC) is (page is Page.LAST)]
    kept, reading = os.dup(fd), os.open(path / "data.mdb", os.O_RDONLY)
    os.dup2(reading, fd)
    os.rename(path / "writer", path / "away")
    try:
        yield
    finally:
        os.rename(path / "away", path / "writer")
        os.dup2(kept, fd)
        os.close(kept)
        os.close(reading)


def _is_open(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:  # of the listing itself
        return False


def names(store: TestStore) -> list[str]:
    with store.metadata.read() as txn:
        return [segment.name for _, segment in txn.scan(SEGMENTS)]


def test_a_process_goes_on_once_the_disk_takes_changes_again(
    store: TestStore, expected_warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_warnings.append(BACK)
    writer = store.engine.open_writer("s")
    with failing(store, Page.DATA):
        with pytest.raises(TierfsError):
            writer.append(b"lost")
        for _ in range(2):
            with pytest.raises(Unavailable, match="earlier commit failed") as refusal:
                store.append("new", b"x")
            assert refusal.value.remedy
            assert (store.read("s"), names(store)) == (b"abc", ["s"])
    written = synced(monkeypatch)
    store.engine.close_writer(writer)
    store.append("s", b"def")
    assert str(store.metadata.path / "writer") in written
    store.append("new", b"x")
    assert (store.read("s"), names(store)) == (b"abcdef", ["s", "new"])
    store.offload()
    assert store.evict(force=True).kept_bytes == 0


def test_a_change_that_waited_for_one_that_failed_is_refused(store: TestStore) -> None:
    opened = open_environment(store.metadata.path)

    def change() -> None:
        with store.metadata.write():
            pass

    with ThreadPoolExecutor(1) as pool, failing(store, Page.DATA):
        writing = store.metadata.write()
        txn = writing.__enter__()
        waiting = pool.submit(change)
        assert eventually(lambda: set(opened.watch._waiting) - {threading.get_ident()})
        txn.update_store(next_id=txn.store.next_id + 1)
        with pytest.raises(TierfsError):
            writing.__exit__(None, None, None)
        with pytest.raises(Unavailable, match="earlier commit failed"):
            waiting.result()


def test_a_commit_that_may_hold_or_not_ends_what_this_process_does(store: TestStore) -> None:
    with failing(store, Page.LAST), pytest.raises(TierfsError):
        store.append("s", b"def")
    for use in (lambda: store.append("s", b"x"), lambda: names(store), lambda: store.read("s")):
        with pytest.raises(Unavailable, match="may or may not be durable") as refusal:
            use()
        assert refusal.value.remedy == "restart this process"
    close_environment(store.metadata.path)  # as the end of the process does
    assert names(store) == ["s"]
    assert store.read("s") in (b"abc", b"abcdef")
    store.append("new", b"x")
