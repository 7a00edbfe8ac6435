"""Chunk files of appends that were refused: they go at once where no commit can name them, else soon and boundedly."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.errors import Conflict, DataLoss, StorageFull, TierfsError, Unavailable
from tierfs.metadata import transaction
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS
from tierfs.segments.append import PendingAppend
from tierfs.segments.create import WholeSegment
from tierfs.segments.unsure_files import MOST_UNSURE
from tierfs.types import Tier

MANY = 300

POLICY = {"chunk_bytes": "64"}

Break = Callable[[pytest.MonkeyPatch], None]


def stray(store: TestStore) -> set[str]:
    """The chunk files that no record names."""
    with store.metadata.read() as txn:
        named = {row.name for _, row in txn.scan(OBJECTS) if row.tier is Tier.LOCAL}
    return set(store.files.names()) - named


def sync_fails(patch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "failed")

    patch.setattr(os, "fdatasync", fail)


def refusing(error: TierfsError) -> Break:
    def fail(*_: object) -> None:
        raise error

    return lambda patch: patch.setattr(PendingAppend, "apply", fail)


def no_transaction(patch: pytest.MonkeyPatch) -> None:
    def fail(_: MetadataStore) -> None:
        raise Unavailable("an earlier commit failed")

    patch.setattr(MetadataStore, "write", fail)


@pytest.mark.parametrize(
    "broken",
    [sync_fails, refusing(Conflict("another")), refusing(DataLoss("a row")), no_transaction],
    ids=["sync", "conflict", "damage", "no transaction"],
)
@pytest.mark.parametrize("before", [0, 1])
def test_refused_appends_leave_no_file(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, broken: Break, before: int
) -> None:
    writer = store.engine.open_writer("s")
    for _ in range(before):
        writer.append(b"kept")
    with monkeypatch.context() as patch:
        broken(patch)
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
    commit = transaction._commit

    def fail(environment: Any, txn: Any) -> None:
        if happens(next(numbers)):
            commit(environment, txn)
        else:
            txn.abort()
        raise error

    return fail


FULL = StorageFull("the disk of the metadata is full")


@pytest.mark.parametrize("commits", [True, False], ids=["the next commit", "the engine's end"])
def test_appends_whose_commit_failed_leave_a_bounded_number_of_files_and_none_after(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"kept")
    with monkeypatch.context() as patch:
        patch.setattr(transaction, "_commit", failing_commit(lambda _: False, FULL))
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
def test_a_commit_that_happened_although_it_failed_keeps_its_file(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], bool]
) -> None:
    """The append is refused, for want of knowing; its bytes are in the segment, and never lost."""
    writer = store.engine.open_writer("s")
    with monkeypatch.context() as patch:
        patch.setattr(transaction, "_commit", failing_commit(happens, FULL))
        for number in range(MOST_UNSURE // 2):
            with pytest.raises(StorageFull):
                writer.append(b"%02d" % number)
    assert len(stray(store)) == sum(not happens(number) for number in range(MOST_UNSURE // 2))
    writer.append(b"after")
    there = b"".join(b"%02d" % number for number in range(MOST_UNSURE // 2) if happens(number))
    assert store.read("s") == there + b"after"
    assert stray(store) == set()


def test_after_a_commit_that_cannot_be_trusted_no_append_leaves_a_file(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.engine.open_writer("s")
    broken = failing_commit(lambda _: False, DataLoss("I/O error on the disk of the metadata"))

    def commit(environment: Any, txn: Any) -> None:
        environment.broken = "I/O error"
        broken(environment, txn)

    monkeypatch.setattr(transaction, "_commit", commit)
    with pytest.raises(DataLoss):
        writer.append(b"refused")
    for _ in range(MANY):
        with pytest.raises(Unavailable):
            writer.append(b"refused")
    assert len(stray(store)) == 1


def test_rolls_of_tiny_chunks_beside_appends_leave_no_file(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "tiny", policy={"chunk_bytes": "16"}) as store:
        writers = [store.engine.open_writer(name) for name in "abcd"]
        stopped = threading.Event()

        def roll() -> None:
            while not stopped.is_set():
                for writer in writers:
                    store.engine.roll(writer.segment_id)

        rolling = threading.Thread(target=roll)
        rolling.start()
        try:
            threads = [threading.Thread(target=append_many, args=(writer,)) for writer in writers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            stopped.set()
            rolling.join()
        for name in "abcd":
            assert store.read(name) == b"".join(b"%05d" % number for number in range(100))
        assert stray(store) == set()


def append_many(writer: Any) -> None:
    for number in range(100):
        writer.append(b"%05d" % number)


def test_a_batch_of_segments_whose_transaction_is_refused_leaves_no_file(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulk = store.engine.bulk_creator()
    new_files = bulk._new_files

    def then_refuse(batch: Any) -> Any:
        files = new_files(batch)
        no_transaction(monkeypatch)
        return files

    with monkeypatch.context() as patch:
        patch.setattr(bulk, "_new_files", then_refuse)
        with pytest.raises(Unavailable):
            bulk.create([WholeSegment("a", b"abc"), WholeSegment("b", b"abc")], seal=True)
    bulk.close()
    assert stray(store) == set()
