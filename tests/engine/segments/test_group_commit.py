"""Groups of appends: their order, their syncs before the commit, and failures that stay with one segment."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.stores import TestStore, assert_layout, create_ledger, open_test_store
from tierfs.base.words.errors import Closed, DataLoss, OffsetMismatch, StorageFull
from tierfs.base.words.types import Ack, ByteRange
from tierfs.engine.metadata import entries
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments import group_commit
from tierfs.engine.segments.group_commit import GroupCommit

Together = Callable[..., list[object]]

TIMEOUT_S = 60
"""Longest wait for a thread of a test."""


@pytest.fixture(params=[group_commit._LARGE_BYTES, 0], ids=["writes in turn", "writes side by side"], autouse=True)
def large_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_LARGE_BYTES", request.param)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Together:
    """Run calls in threads, in one group and in this order; return their results and errors."""

    def run(*calls: Callable[[], object]) -> list[object]:
        enqueue = GroupCommit._enqueue
        queued = threading.Semaphore(0)

        def enqueued(self: GroupCommit, call: object) -> bool:
            leads = enqueue(self, call)  # type: ignore[arg-type]
            queued.release()
            return leads

        complete = threading.Event()
        with monkeypatch.context() as patch, ThreadPoolExecutor(len(calls)) as pool:
            patch.setattr(GroupCommit, "_enqueue", enqueued)
            patch.setattr(GroupCommit, "_await_returning", lambda _: complete.wait(TIMEOUT_S))
            futures = []
            for call in calls:
                futures.append(pool.submit(_result, call))
                assert queued.acquire(timeout=TIMEOUT_S)
            complete.set()
            return [future.result(TIMEOUT_S) for future in futures]

    return run


def _result(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as exc:
        return exc


def test_calls_of_a_group_lie_behind_each_other(store: TestStore, together: Together) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"ab")
    found = together(*(partial(writer.append, data) for data in (b"cde", b"", b"f", b"ghijkl")))
    assert found == [ByteRange(2, 5), ByteRange(5, 5), ByteRange(5, 6), ByteRange(6, 12)]
    assert_layout(store, "s", local=[4, 4, 4], cold=[])
    assert store.read("s") == b"abcdefghijkl"


def test_every_file_is_synced_before_the_commit(
    store: TestStore, together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = [store.engine.open_writer(f"s{number}") for number in range(20)]
    happened: list[str] = []
    sync, finish = os.fdatasync, WriteTransaction.finish

    def synced(fd: int) -> None:
        sync(fd)
        happened.append(os.readlink(f"/proc/self/fd/{fd}"))

    def finished(self: WriteTransaction) -> None:
        happened.append("commit")
        finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", synced)
        patch.setattr(WriteTransaction, "finish", finished)
        together(*(partial(writer.append, b"abc") for writer in writers for _ in range(2)))
    files = {str(store.files.root / placed.object.name) for w in writers for placed in store.layout(w.name).local}
    assert len(files) == 40
    assert happened[-1] == "commit"
    assert sorted(happened[:-1]) == sorted(files), "each once"


@pytest.mark.parametrize(
    ("call", "number", "error"),
    [("fdatasync", errno.EIO, DataLoss), ("pwrite", errno.ENOSPC, StorageFull)],
)
def test_a_file_that_cannot_be_written_or_synced_fails_its_segment_alone(
    store: TestStore, together: Together, monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: type
) -> None:
    good, bad = store.engine.open_writer("good"), store.engine.open_writer("bad")
    bad.append(b"a")
    broken = str(store.files.root / store.layout("bad").local[0].object.name)
    original = getattr(os, call)

    def refuse(fd: int, *words: Any) -> Any:
        if os.readlink(f"/proc/self/fd/{fd}") == broken:
            raise OSError(number, os.strerror(number))
        return original(fd, *words)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        found = together(*(partial(writer.append, b"b") for writer in (good, bad, good, bad)))
    assert found[::2] == [ByteRange(0, 1), ByteRange(1, 2)]
    assert [type(refused) for refused in found[1::2]] == [error, error]
    assert store.read("bad") == b"a"
    assert bad.append(b"c") == ByteRange(1, 2)
    assert_layout(store, "bad", local=[1, 1], cold=[])
    assert store.read("bad") == b"ac"
    assert store.read("good") == b"bb"
    assert len(list(store.files.names())) == 3


@pytest.mark.parametrize(
    ("calls", "expected", "data"),
    [
        (
            [{"data": data, "expected_offset": 0} for data in (b"a", b"b", b"c")],
            [ByteRange, OffsetMismatch, OffsetMismatch],
            b"a",
        ),
        ([{"data": b"ab"}, {"data": b"c", "seal": True}, {"data": b"d"}], [ByteRange, ByteRange, Closed], b"abc"),
    ],
    ids=["one of conditional ones meets its offset", "those behind a seal are refused"],
)
def test_calls_of_a_group_are_judged_in_their_order(
    store: TestStore, together: Together, calls: list[dict[str, Any]], expected: list[type], data: bytes
) -> None:
    writer = store.engine.open_writer("s")
    found = together(*(partial(writer.append, **call) for call in calls))
    assert [type(result) for result in found] == expected
    assert store.read("s") == data


def test_a_group_goes_on_in_the_successor_where_policy_ends_the_segment(tmp_path: Path, together: Together) -> None:
    with open_test_store(tmp_path / "s", policy={"seal_bytes": "5"}) as store:
        writer = store.engine.open_writer("s")
        found = together(*(partial(writer.append, data) for data in (b"abc", b"def", b"ghi", b"jkl", b"mno")))
        assert found == [ByteRange(at, at + 3) for at in range(0, 15, 3)]
        assert store.read("s") == b"abcdef"
        assert store.read("s.6")[6:] == b"ghijkl"
        assert store.read("s.12")[12:] == b"mno"


def test_entries_of_a_group_have_the_ids_of_their_payloads(store: TestStore, together: Together) -> None:
    create_ledger(store.metadata, "l")
    writer = store.engine.open_ledger("l")
    groups = ([b"ab"], [b"", b"c"], [b"def"])
    assert together(*(partial(writer.append_entries, group) for group in groups)) == [
        range(1),
        range(1, 3),
        range(3, 4),
    ]
    data = store.read("l")
    with store.metadata.read() as txn:
        placed = [entry.range for entry in entries.placed(txn, writer.segment_id, 0, 4)]
    assert [data[span.start : span.end] for span in placed] == [b"ab", b"", b"c", b"def"]


def test_each_thread_finds_its_appends_in_its_order(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s", policy={"chunk_bytes": "500"}) as store:
        writers = [store.engine.open_writer(f"s{number}") for number in range(3)]

        def work(thread: int) -> None:
            for turn in range(30):
                writers[(thread + turn) % 3].append(b"%02d:%02d " % (thread, turn))

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(work, range(24)))
        for number, writer in enumerate(writers):
            seen = [record.split(b":") for record in store.read(writer.name).split()]
            for thread in range(24):
                turns = [int(turn) for found, turn in seen if int(found) == thread]
                assert turns == [turn for turn in range(30) if (thread + turn) % 3 == number]


def test_a_lone_caller_does_not_wait_for_others(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = store.engine.open_writer("s")
    commits = store.engine.commits_of(Ack.LOCAL)
    waits: list[int] = []

    class Enough:
        def acquire(self, *, blocking: bool = True, timeout: float = -1) -> bool:
            waits.append(blocking)
            return False

    monkeypatch.setattr(commits, "_enough", Enough())
    for _ in range(5):
        writer.append(b"a")
    assert waits == [False] * 5
