"""System calls that fail around an append: committed bytes stay, failed appends leave none."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.engine.journal.replaying import check_store
from tests.engine.segments.test_trash import DAY_S, in_trash, listed, remove, restore
from tests.stores import TestStore
from tests.upkeep.check.looking import findings
from tierfs.base.words.errors import Conflict, DataLoss, StorageFull, TierfsError, Unavailable
from tierfs.base.words.types import ByteRange, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata.environment import Environment
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHUNKS, DIRECTORIES, DIRENTS, OBJECTS, SEGMENTS
from tierfs.engine.segments import delete
from tierfs.engine.segments.append import PendingAppend
from tierfs.engine.segments.group_commit import AppendCall, GroupCommit
from tierfs.engine.segments.unsure_files import MOST_UNSURE
from tierfs.engine.segments.writer_locks import WriterLocks


def raising(error: BaseException) -> Callable[..., Any]:
    """A call that fails."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def failing(number: int) -> Callable[..., Any]:
    """A system call that fails."""
    return raising(OSError(number, os.strerror(number)))


FULL = StorageFull("the disk of the metadata is full")


def test_an_append_whose_file_cannot_be_made_read_only_is_there_once(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append("cannot be made read-only")
    writer = store.engine.open_writer("s")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", failing(errno.EIO))
        assert writer.append(b"abcdef") == ByteRange(0, 6)
        assert writer.append(b"gh", seal=True) == ByteRange(6, 8)
    assert store.read("s") == b"abcdefgh"


def test_a_file_that_was_evicted_before_it_is_made_read_only_is_nothing_to_warn_of(store: TestStore) -> None:
    store.append("s", b"ab")
    (name,) = store.files.names()
    store.files.delete(name)
    store.files.protect(name)


@pytest.mark.parametrize("verb", ["roll", "seal", "open_writer", "concat"])
def test_a_verb_that_is_committed_does_not_fail_for_a_mode(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str], verb: str
) -> None:
    expected_warnings.append("cannot be made read-only")
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    segment_id = writer.segment_id
    store.append("source", b"cd", seal=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", failing(errno.EPERM))
        if verb == "roll":
            store.engine.roll(segment_id)
        elif verb == "concat":
            store.engine.concat("s", "source")
        elif verb == "open_writer":
            store.engine.open_writer("s", take_over=True)
        else:
            store.engine.seal("s")
    assert not store.segment("s").active


@pytest.mark.parametrize("full", ["disk", "metadata"])
def test_closing_where_nothing_can_be_written_succeeds(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    with monkeypatch.context() as patch:
        patch.setattr(ChunkFiles, "free_bytes", lambda self: 0)
        if full == "metadata":
            patch.setattr(MetadataStore, "write", raising(FULL))
        store.engine.close_writer(writer)
    assert store.segment("s").resumable is (full == "disk")
    store.reopen()
    store.append("s", b"cd")
    assert store.read("s") == b"abcd"


def test_a_writer_that_could_not_be_opened_keeps_no_lock(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("s", b"ab")
    segment = store.segment("s")
    with monkeypatch.context() as patch:
        patch.setattr(MetadataStore, "read", failing(errno.EIO))  # met after the commit, where the file is resumed
        with pytest.raises(OSError, match="Input"):
            store.engine.open_writer("s")
    other = WriterLocks(store.path / "writers")
    for epoch in range(segment.writer_epoch, store.segment("s").writer_epoch + 1):
        assert not other.is_alive_elsewhere(segment.id, epoch)
    other.close()
    store.append("s", b"cd")
    assert store.read("s") == b"abcd"


@pytest.mark.parametrize("held", [False, True], ids=["after a closed writer", "beside a writer"])
def test_a_refused_writer_leaves_the_lock_of_the_epoch_before_as_it_was(store: TestStore, held: bool) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    segment = store.segment("s")
    if not held:
        store.engine.close_writer(writer)
    other = WriterLocks(store.path / "writers")
    assert other.try_lock(segment.id, segment.writer_epoch + 1)  # a process that is about to become the writer
    with pytest.raises(TierfsError):
        store.engine.open_writer("s")
    other.unlock(segment.id, segment.writer_epoch + 1)
    assert other.is_alive_elsewhere(segment.id, segment.writer_epoch) is held
    other.close()
    if held:
        writer.append(b"ab")


@pytest.mark.parametrize("clean", [True, False])
def test_a_short_file_refuses_every_writer_until_it_is_whole_again(store: TestStore, clean: bool) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"abc")
    if clean:
        store.engine.close_writer(writer)
    store.reopen()
    file = store.files.root / store.layout("s").local[0].object.name
    file.write_bytes(b"a")
    for _ in range(3):
        with pytest.raises(DataLoss, match="1 of 3 bytes") as caught:
            store.engine.open_writer("s")
        assert caught.value.remedy == "run: tierfs check"
    file.write_bytes(b"abc")
    store.append("s", b"d")
    assert store.read("s") == b"abcd"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_leader_fails_nobody_else(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of a group is the main thread, and Ctrl-C arrives at three moments of its work."""
    for moment in ("before", "committed", "told"):
        names = [f"{moment}-{number}" for number in range(3)]
        results = appended_while_the_leader_is_interrupted(store, monkeypatch, names, moment)
        assert results == dict.fromkeys(names[1:], ByteRange(0, 3))
        for name in names[1:]:
            assert store.read(name) == b"abc"
        assert store.read(names[0]) in (b"", b"abc")


def appended_while_the_leader_is_interrupted(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, names: list[str], moment: str
) -> dict[str, object]:
    """Results of the threads that shared the main thread's group."""
    results: dict[str, object] = {}
    writers = [store.engine.open_writer(name) for name in names]

    def append(number: int) -> None:
        try:
            results[names[number]] = writers[number].append(b"abc")
        except BaseException as exc:
            results[names[number]] = exc

    threads = [threading.Thread(target=append, args=(number,)) for number in (1, 2)]
    commit, enqueue, wake = Environment.commit, GroupCommit._enqueue, AppendCall.wake
    queue_is_full = threading.Event()

    def interrupt(at: str) -> None:
        if at == moment and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)

    def committed(self: Environment, txn: Any) -> None:
        interrupt("before")
        commit(self, txn)
        interrupt("committed")

    def enqueued(self: GroupCommit, call: AppendCall) -> bool:
        leads = enqueue(self, call)
        if len(self._queue) == len(names):
            queue_is_full.set()
        return leads

    def returned(_: GroupCommit) -> None:
        if threading.current_thread() is threading.main_thread():  # it leads
            for thread in threads:
                thread.start()
            queue_is_full.wait()

    def woken(self: AppendCall) -> None:
        interrupt("told")
        wake(self)

    with monkeypatch.context() as patch:
        patch.setattr(GroupCommit, "_enqueue", enqueued)
        patch.setattr(GroupCommit, "_await_returning", returned)
        patch.setattr(Environment, "commit", committed)
        patch.setattr(AppendCall, "wake", woken)
        with pytest.raises(KeyboardInterrupt):
            writers[0].append(b"abc")
        for thread in threads:
            thread.join(60)
    return results


class Killed(Exception):
    """The process ends before a commit."""


@contextmanager
def killed_at(store: TestStore, monkeypatch: pytest.MonkeyPatch, commit: int) -> Iterator[list[int]]:
    """End the process as its commit of this number is to begin."""
    count, write = [0], MetadataStore.write

    @contextmanager
    def counted(self):
        count[0] += 1
        if count[0] == commit:
            raise Killed
        with write(self) as txn:
            yield txn

    with monkeypatch.context() as patch:
        patch.setattr(MetadataStore, "write", counted)
        with suppress(Killed):
            yield count
    store.reopen()


@pytest.mark.parametrize("commit", range(1, 12))
def test_a_crash_at_any_commit_leaves_a_removal_whole(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    monkeypatch.setattr(delete, "BATCH_RECORDS", 3)
    for number in range(6):
        store.append(f"d/{number}", b"xy")
    store.offload("d/0")
    with killed_at(store, monkeypatch, commit):
        remove(store, "d", recursive=True)
        restore(store, "d")
        remove(store, "d", recursive=True)
        store.clock.advance(DAY_S)
        with store.holding() as work:
            work.collect()
    with store.metadata.read() as txn:
        check_store(txn)
    assert findings(store) == []
    assert len(listed(store)) in (0, 6)
    if in_trash(store):
        restore(store, "d")
        assert [store.read(f"d/{number}") for number in range(6)] == [b"xy"] * 6
    if listed(store):
        remove(store, "d", recursive=True)
    store.clock.advance(DAY_S)
    store.settle()
    with store.metadata.read() as txn:
        assert [txn.count(table.name) for table in (SEGMENTS, DIRECTORIES, DIRENTS, CHUNKS)] == [0, 1, 0, 0]


MANY = 300

IN_ONE_CHUNK = pytest.mark.parametrize("policy", [{"chunk_bytes": "64"}], ids=["in one chunk"])


def stray(store: TestStore) -> set[str]:
    """The chunk files that no record names."""
    with store.metadata.read() as txn:
        named = {row.name for _, row in txn.scan(OBJECTS) if row.tier is Tier.LOCAL}
    return set(store.files.names()) - named


REFUSALS = {
    "sync": (os, "fdatasync", OSError(errno.EIO, "failed")),
    "conflict": (PendingAppend, "apply", Conflict("another")),
    "damage": (PendingAppend, "apply", DataLoss("a row")),
    "no transaction": (MetadataStore, "write", Unavailable("an earlier commit failed")),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("before", [0, 1])
@IN_ONE_CHUNK
def test_refused_appends_leave_no_file(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, refusal: str, before: int
) -> None:
    writer = store.engine.open_writer("s")
    for _ in range(before):
        writer.append(b"kept")
    with monkeypatch.context() as patch:
        owner, name, error = REFUSALS[refusal]
        patch.setattr(owner, name, raising(error))
        for _ in range(MANY):
            with pytest.raises(TierfsError):
                writer.append(b"refused")
        assert stray(store) == set()
    writer.append(b"after")
    assert store.read("s") == b"kept" * before + b"after"
    assert stray(store) == set()


def failing_commit(happens: Callable[[int], bool], error: TierfsError) -> Callable[[Any, Any], None]:
    """A commit that fails; `happens` tells of the n-th whether it is there all the same."""
    numbers = iter(range(10 * MANY))
    commit = Environment.commit

    def fail(environment: Any, txn: Any) -> None:
        if happens(next(numbers)):
            commit(environment, txn)
        else:
            txn.abort()
        raise error

    return fail


@pytest.mark.parametrize("commits", [True, False], ids=["the next commit", "the engine's end"])
@IN_ONE_CHUNK
def test_appends_whose_commit_failed_leave_a_bounded_number_of_files_and_none_after(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"kept")
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "commit", failing_commit(lambda _: False, FULL))
        for _ in range(MANY):
            with pytest.raises(StorageFull):
                writer.append(b"refused")
        assert 0 < len(stray(store)) <= MOST_UNSURE
    if not commits:
        store.engine.close()
    else:
        writer.append(b"after")
        assert store.read("s") == b"keptafter"
    assert stray(store) == set()


@pytest.mark.parametrize("happens", [lambda _: True, lambda number: number % 2 == 0], ids=["all", "every other"])
@IN_ONE_CHUNK
def test_a_commit_that_happened_although_it_failed_keeps_its_file(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], bool]
) -> None:
    """The append is refused, for want of knowing; its bytes are in the segment, and never lost."""
    writer = store.engine.open_writer("s")
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "commit", failing_commit(happens, FULL))
        for number in range(MOST_UNSURE // 2):
            with pytest.raises(StorageFull):
                writer.append(b"%02d" % number)
    assert len(stray(store)) == sum(not happens(number) for number in range(MOST_UNSURE // 2))
    writer.append(b"after")
    there = b"".join(b"%02d" % number for number in range(MOST_UNSURE // 2) if happens(number))
    assert store.read("s") == there + b"after"
    assert stray(store) == set()
