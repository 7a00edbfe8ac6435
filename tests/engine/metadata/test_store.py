"""The LMDB environment and its transactions: atomic, one per process, safe over fork and wrong places."""

from __future__ import annotations

import os
import threading
from itertools import islice
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import open_test_store
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.types import ROOT_DIRECTORY, Tier
from tierfs.engine.metadata import directories, environment, host, layout
from tierfs.engine.metadata import store as store_module
from tierfs.engine.metadata.records import StoreRecord, TouchRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import TOUCHES
from tierfs.engine.metadata.transaction import WriteTransaction


@pytest.fixture
def store(tmp_path: Path):
    made = MetadataStore.create(tmp_path / "m", ManualClock())
    yield made
    made.close()


def test_a_block_that_raises_changes_nothing(store: MetadataStore) -> None:
    def change_and_fail() -> None:
        with store.write() as txn:
            directories.make_directories(txn, ("a", "b"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_fail()
    with store.read() as txn:
        assert list(directories.entries(txn, ROOT_DIRECTORY)) == []
        assert txn.store.next_id == 2


def test_ids_are_never_used_twice(store: MetadataStore) -> None:
    with store.write() as txn:
        first = [txn.allocate_id() for _ in range(5)]
    with store.write() as txn:
        assert txn.allocate_id() == first[-1] + 1


@pytest.mark.parametrize("rows", [0, 1, 4, 5, 6])
def test_work_in_batches_meets_every_row_once_a_few_per_transaction(store: MetadataStore, rows: int) -> None:
    with store.write() as txn:
        for number in range(rows):
            txn.touch(inode=number)
    before = store.last_transaction_id()

    def look(txn: WriteTransaction, found: list[tuple[bytes, TouchRecord]]) -> list[int]:
        txn.allocate_id()
        return [record.inode for _, record in found]

    done = list(islice(batches(store.write, TOUCHES, 2, look), 9))
    assert [inode for some in done for inode in some] == list(range(rows))
    assert max(map(len, done)) <= 2
    assert store.last_transaction_id() == before + len(done)


def test_an_error_in_a_batch_undoes_it_and_keeps_those_before(store: MetadataStore) -> None:
    with store.write() as txn:
        for number in range(4):
            txn.touch(inode=number)

    def fail_at_last(txn: WriteTransaction, found: list[tuple[bytes, TouchRecord]]) -> None:
        for key, record in found:
            txn.delete(TOUCHES.name, key)
            if record.inode == 3:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(batches(store.write, TOUCHES, 2, fail_at_last))
    with store.write() as txn:
        assert [record.inode for _, record in txn.scan(TOUCHES)] == [2, 3]


def test_a_store_is_not_made_twice_nor_opened_where_there_is_none(tmp_path: Path, store: MetadataStore) -> None:
    with pytest.raises(AlreadyExists):
        MetadataStore.create(store.path, ManualClock())
    with pytest.raises(NotFound):
        MetadataStore(tmp_path / "nothing", ManualClock())


def test_a_newer_format_is_refused_with_the_remedy(store: MetadataStore) -> None:
    with store.write() as txn:
        txn.update_store(min_reader_version=99, version=1)
    with pytest.raises(DataLoss) as caught:
        MetadataStore(store.path, ManualClock())
    assert caught.value.remedy == "upgrade tierfs"


def test_network_filesystems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_filesystem_of", lambda path: "nfs4")
    with pytest.raises(InvalidRequest, match="network filesystem"):
        MetadataStore.create(tmp_path / "net", ManualClock())


def test_a_waiting_writer_names_the_holder(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append(f"owned by process {os.getpid()}")
    monkeypatch.setattr("tierfs.engine.metadata.write_watch.WARN_AFTER_S", 0.0)
    monkeypatch.setattr("tierfs.engine.metadata.write_watch._POLL_S", 0.01)
    warned = threading.Event()
    monkeypatch.setattr("tierfs.engine.metadata.write_watch.log.warning", lambda *_: warned.set())
    waiting = threading.Thread(target=lambda: store.write().__enter__().__class__)
    with store.write() as txn:
        txn.touch(inode=1)
        waiting.start()
        assert warned.wait(60)
    waiting.join(60)


def test_what_is_said_to_be_committed_is_seen_by_who_looks_then(tmp_path: Path) -> None:
    store = MetadataStore.create(tmp_path / "metadata", ManualClock())
    done = threading.Event()

    def commit() -> None:
        for _ in range(200):
            with store.write() as txn:
                txn.allocate_id()
        done.set()

    writer = threading.Thread(target=commit)
    writer.start()
    behind = 0
    while not done.is_set():
        newest = store.last_transaction_id()
        with store.read() as txn:
            behind += txn.id < newest
    writer.join()
    store.close()
    assert behind == 0


def test_who_closes_does_not_close_for_others_of_the_process(tmp_path: Path) -> None:
    first = MetadataStore.create(tmp_path / "metadata", ManualClock())
    second = MetadataStore(tmp_path / "metadata", ManualClock())
    with second.read() as txn:
        first.close()
        first.close()
        assert txn.store.store_id == second.store_id
    opened = environment.open_environment(second.path)
    second.close()
    assert environment.open_environment(second.path) is not opened


def test_a_store_that_is_being_opened_stays_open_when_the_last_other_user_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another thread, at the moment in which the new user reads the store's record."""
    first = MetadataStore.create(tmp_path / "shared", ManualClock(1))
    check = store_module._check_version
    opened = []

    def closed_meanwhile(record: StoreRecord, path: Path) -> None:
        opened.append(environment.open_environment(path))
        first.close()
        check(record, path)

    monkeypatch.setattr(store_module, "_check_version", closed_meanwhile)
    second = MetadataStore(tmp_path / "shared", ManualClock(1))
    assert environment.open_environment(second.path) is opened[0]
    with second.write() as txn:
        txn.allocate_id()
    second.close()
    assert second.path not in environment.environments


CHUNKS = 2000

MAX_RECORD_BYTES_PER_CHUNK = 300


def test_a_chunk_costs_at_most_300_bytes_of_records(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s") as store:
        store.append("logs/s", b"abcd" * CHUNKS)
        with store.metadata.read() as txn:
            rows = [
                len(key) + len(data)
                for name in (b"chunks", b"objects", b"checksums")
                for key, data in txn.scan_raw(name)
            ]
        assert len(rows) == 3 * CHUNKS
        assert sum(rows) / CHUNKS <= MAX_RECORD_BYTES_PER_CHUNK


def test_opening_a_file_loads_a_window_and_not_the_chain(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s") as store:
        store.append("logs/s", b"abcd" * CHUNKS)
        segment = store.segment("logs/s")
        with store.metadata.read() as txn:
            middle = layout.load(txn, segment, 4 * 1000 + 1)
        assert len(middle.local) == layout.WINDOW_CHUNKS
        assert middle.chunks(Tier.LOCAL)[0].range.start == 4000
        assert middle.window.start == 4000
        assert middle.window.end == 4000 + 4 * layout.WINDOW_CHUNKS
