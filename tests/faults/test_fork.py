"""A child of fork: it shares nothing of its parent's writers, locks, snapshots and connections, and says so."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.children import code_of_child, die
from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.system.locks import LockFile
from tierfs.base.words.errors import Closed
from tierfs.engine.metadata import environment
from tierfs.engine.metadata.tables import TOUCHES
from tierfs.engine.segments.writer_locks import WriterLocks
from tierfs.upkeep.holder.lock import Hold, current

CLOSED, OTHER, NOTHING = 3, 4, 0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "100"}) as opened:
        yield opened


def in_child(work: Callable[[], object]) -> int:
    """Run it in a child of this process; return its outcome."""

    def outcome() -> int:
        try:
            work()
        except Closed:
            return CLOSED
        return NOTHING

    return code_of_child(outcome)


def end_child(got: BaseException | None) -> NoReturn:
    """End a child of this process, which must never run the rest of the tests, and report its result."""
    if got is not None and not isinstance(got, Closed):
        traceback.print_exception(got)
        die(OTHER)
    die(NOTHING if got is None else CLOSED)


def test_a_child_does_not_write_with_its_parents_writer(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    assert in_child(lambda: writer.append(b"XYZ")) == CLOSED
    assert in_child(writer.close) == CLOSED
    writer.append(b"cd")
    assert store.read("s") == b"abcd"
    assert [placed.chunk.length for placed in store.layout("s").local] == [4]


@pytest.mark.parametrize("verb", ["open_writer", "seal"])
def test_a_child_needs_an_engine_of_its_own(store: TestStore, verb: str) -> None:
    store.append("s", b"ab")
    with store.engine._lock:  # as if another thread opened a writer at that moment
        assert in_child(lambda: getattr(store.engine, verb)("s")) == CLOSED


def test_a_child_that_closes_the_engine_leaves_the_parents_writer_alone(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    assert in_child(store.engine.close) == NOTHING
    assert not store.segment("s").resumable
    other = WriterLocks(store.path / "writers")
    assert other.is_alive_elsewhere(writer.segment_id, writer.epoch)
    other.close()


def test_a_child_that_lives_on_keeps_no_lock_of_its_parent(store: TestStore) -> None:
    held = Hold(store.paths.holder, store.clock)
    writer = store.engine.open_writer("s")
    with child_that_lives():
        held.release()
        store.engine.close_writer(writer)
        assert current(store.paths.holder) is None
        Hold(store.paths.holder, store.clock).release()
        other = WriterLocks(store.path / "writers")
        assert not other.is_alive_elsewhere(writer.segment_id, writer.epoch)
        other.close()


def test_locks_end_with_a_killed_parent_though_its_child_lives(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from tierfs.base.system.locks import LockFile
file = LockFile(Path({str(tmp_path / "lock")!r}))
assert file.try_lock()
if os.fork() == 0:
    print("forked", flush=True)
input()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"forked\n"
    parent.kill()
    parent.wait()
    mine = LockFile(tmp_path / "lock")
    taken = mine.try_lock()
    mine.close()
    parent.stdin.close()  # ends the child
    parent.stdout.close()
    assert taken


def test_a_child_does_not_release_its_parents_lock(store: TestStore) -> None:
    held = Hold(store.paths.holder, store.clock)
    assert in_child(held.release) == NOTHING
    found = current(store.paths.holder)
    assert found is not None
    assert found.pid == os.getpid()
    held.release()


def test_a_child_that_opens_the_metadata_leaves_its_parents_snapshots_alone(store: TestStore) -> None:
    began, go_on = threading.Event(), threading.Event()

    def read() -> None:
        with store.metadata.read() as txn:
            assert txn.store
            began.set()
            go_on.wait()

    reader = threading.Thread(target=read)
    reader.start()
    began.wait()
    slots = environment.open_environment(store.metadata.path).lmdb.readers()

    def look() -> None:
        with store.metadata.read() as txn:
            assert txn.store

    assert str(os.getpid()) in slots
    assert in_child(look) == NOTHING
    assert slots.strip() in environment.open_environment(store.metadata.path).lmdb.readers()
    go_on.set()
    reader.join()


def test_a_child_ends_no_transaction_that_it_was_forked_in(store: TestStore) -> None:
    with store.metadata.read() as txn:
        before = txn.id
    parent, child, got = os.getpid(), 0, None
    try:
        with store.metadata.write() as txn:
            txn.touch(inode=7)
            child = os.fork()
    except BaseException as exc:
        got = exc
    if os.getpid() != parent:
        end_child(got)
    if got is not None:
        raise got
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == CLOSED
    with store.metadata.read() as txn:
        assert txn.id == before + 1
        assert 7 in [touch.inode for _, touch in txn.scan(TOUCHES)]


def test_a_child_of_a_server_that_froze_its_objects_opens_the_store(store: TestStore) -> None:
    """Servers do so before they fork: what is frozen is in no list of the collector."""
    before = gc.get_freeze_count()
    gc.freeze()

    def opened() -> None:
        with store.metadata.read():
            assert gc.get_freeze_count() > 0

    try:
        assert in_child(opened) == NOTHING
    finally:
        if not before:
            gc.unfreeze()


def test_a_child_connects_to_the_cold_tier_by_itself(tmp_path: Path) -> None:
    init_store(tmp_path / "store", clock=ManualClock())
    with app.open_store(tmp_path / "store") as opened:
        location = opened.cold_location_id
        assert location is not None
        storage = opened.storage_of(location)
        assert opened.storage_of(location) is storage

        def connect() -> None:
            assert opened.storage_of(location) is not storage

        with opened._lock:  # as if another thread connected at that moment
            assert in_child(connect) == NOTHING


@contextmanager
def child_that_lives() -> Iterator[None]:
    """A child of fork without exec, for as long as the block runs."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b".")
        signal.pause()
    os.read(ready, 1)
    os.close(ready)
    os.close(tell)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
