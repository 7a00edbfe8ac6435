"""Writers of one process: shared by those that open a segment together, and never ended by one of them for another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.safety.refused import refused
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import Closed, Conflict, OffsetMismatch, Sealed, TierfsError
from tierfs.base.words.types import Ack, ByteRange
from tierfs.engine.segments.managed_ledger import ManagedLedgerWriter
from tierfs.engine.segments.shared_writers import SharedWriters

THREADS = 8
APPENDS = 25


@pytest.fixture
def writers(store: TestStore) -> SharedWriters:
    return SharedWriters(store.engine)


def test_threads_that_open_append_and_close_lose_nothing(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "64"}) as store:
        writers = SharedWriters(store.engine)

        def append(number: int) -> ByteRange:
            writer = writers.open("s")
            try:
                return writer.append(f"{number:03}".encode(), last=True)
            finally:
                writers.close(writer)

        with ThreadPoolExecutor(THREADS) as pool:
            ranges = list(pool.map(append, range(THREADS * APPENDS)))
        data = store.read("s")
        assert [data[at.start : at.end] for at in ranges] == [f"{n:03}".encode() for n in range(THREADS * APPENDS)]
        assert len(data) == 3 * THREADS * APPENDS
        assert not writers._uses
        with closing(store.another_engine()) as other:
            other.open_writer("s")  # another process may write at once


def test_the_last_of_its_users_closes_a_writer(store: TestStore, writers: SharedWriters) -> None:
    first, second = writers.open("s"), writers.open("s")
    assert first is second
    writers.close(first)
    with closing(store.another_engine()) as other:
        with pytest.raises(Conflict, match="being written by"):
            other.open_writer("s")
        assert second.append(b"ab") == ByteRange(0, 2)
        writers.close(second)
        assert other.open_writer("s").append(b"cd") == ByteRange(2, 4)


@pytest.mark.parametrize("expected", [1, 2, 3])
def test_a_shared_writer_is_opened_at_its_length(writers: SharedWriters, expected: int) -> None:
    writer = writers.open("s")
    writer.append(b"ab")
    with refused(expected != 2, OffsetMismatch):
        assert writers.open("s", expected_offset=expected) is writer


def test_a_take_over_replaces_the_writers_of_this_process(store: TestStore, writers: SharedWriters) -> None:
    old = writers.open("s")
    old.append(b"ab")
    new = writers.open("s", take_over=True)
    new.append(b"cd")
    with pytest.raises(Closed):
        old.append(b"lost")
    writers.close(old)
    assert new.append(b"ef") == ByteRange(4, 6)
    assert writers.open("s") is new


def test_a_writer_that_sealed_its_segment_is_not_shared(store: TestStore, writers: SharedWriters) -> None:
    first, second = writers.open("s"), writers.open("s")
    first.append(b"ab", seal=True)
    with pytest.raises(TierfsError):
        second.append(b"cd")
    with pytest.raises(Sealed):
        writers.open("s")
    store.engine.unseal("s")
    assert writers.open("s").append(b"cd") == ByteRange(2, 4)


def test_a_writer_that_another_process_fenced_is_not_shared(store: TestStore, writers: SharedWriters) -> None:
    old = writers.open("s")
    old.append(b"ab")
    with closing(store.another_engine()) as other:
        other.open_writer("s", take_over=True).append(b"cd")
    new = writers.open("s")
    assert new is not old
    assert new.append(b"ef") == ByteRange(4, 6)


@pytest.mark.parametrize("name", ["s", "s.10"])
def test_the_writer_of_a_stream_is_shared_by_the_names_of_its_members(tmp_path: Path, name: str) -> None:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "64", "seal_bytes": "10"}) as store:
        writers = SharedWriters(store.engine)
        writer = writers.open("s")
        writer.append(b"0123456789")
        writer.append(b"ab")
        assert writer.segment_id == store.segment("s.10").id
        assert writers.open(name) is writer


def test_a_stream_that_policy_sealed_under_its_writer_goes_on_in_it(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "64", "seal_bytes": "10"}) as store:
        writers = SharedWriters(store.engine)
        writer = writers.open("s")
        writer.append(b"0123456789")
        assert store.engine.end_if_due(writer.segment_id)  # as the holder does
        assert writers.open("s") is writer
        writer.append(b"ab")
        assert writers.open("s") is writer
        assert store.segment("s.10").range == ByteRange(10, 12)


@pytest.mark.parametrize("there", [None, Ack.LOCAL, Ack.COLD])
@pytest.mark.parametrize("wanted", [None, Ack.LOCAL, Ack.COLD])
def test_an_append_is_acknowledged_as_its_writer_was_opened(
    monkeypatch: pytest.MonkeyPatch, store: TestStore, there: Ack | None, wanted: Ack | None
) -> None:
    local = store.engine.commits_of(Ack.LOCAL)
    monkeypatch.setattr(store.engine, "_make_pool", lambda _: local)
    writers = SharedWriters(store.engine)
    writer = writers.open("s", ack=there)
    with refused((there is Ack.COLD) is not (wanted is Ack.COLD), Conflict, "with ack="):
        assert writers.open("s", ack=wanted) is writer


def test_a_second_writer_of_a_process_is_refused_where_none_is_shared(store: TestStore) -> None:
    writer: Any = store.engine.open_writer("s")
    with pytest.raises(Conflict, match="in this process"):
        store.engine.open_writer("s")
    assert writer.append(b"ab") == ByteRange(0, 2)
    store.engine.close_writer(writer)
    assert store.engine.open_writer("s").append(b"cd") == ByteRange(2, 4)


def test_a_second_managed_ledger_of_a_process_does_not_end_the_first(store: TestStore) -> None:
    first = ManagedLedgerWriter(store.engine, "t")
    first.add_entries([b"a"])
    with pytest.raises(Conflict, match="in this process"):
        ManagedLedgerWriter(store.engine, "t").add_entries([b"b"])
    first.add_entries([b"c"])
