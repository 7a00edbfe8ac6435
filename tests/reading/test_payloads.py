"""Payloads out of stored objects: which requests they take, what arrives when, and what is remembered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.ledgers import new_ledger, offload, offloader
from tests.stores import TestStore, open_test_store
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB, SegmentId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import chains, directories, entries
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading import plain_bytes
from tierfs.reading.plain_bytes import PlainBytes, StoreRows

ROOMY = {"chunk_bytes": str(8 * MIB), "object_bytes": str(8 * MIB)}


class Watched(MemoryStorage):
    """Tells which ranges were asked for, and delivers them in steps."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.step_bytes = 700

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        if "-ledger-" in name:
            self.ranges.append((offset, offset + len(buffer)))
        progress = more.pop("progress", None)
        super().read_into(name, offset, buffer, **more)
        for received in range(self.step_bytes, len(buffer), self.step_bytes) if progress else ():
            progress(received)
        if progress:
            progress(len(buffer))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=ROOMY, cold=Watched()) as opened:
        yield opened


def watched(store: TestStore) -> Watched:
    assert isinstance(store.cold, Watched)
    return store.cold


def cold_object(store: TestStore, held: list[bytes], block_bytes: int) -> ObjectRecord:
    """The data object of a ledger of these entries."""
    name = new_ledger(store, held)
    offload(store, name, block_bytes=block_bytes)
    watched(store).ranges.clear()
    with store.metadata.read() as txn:
        (chunk,) = chains.chunks(txn, directories.segment_by_name(txn, name).id, Tier.COLD)
        return chains.object_of(txn, chunk)


def read(store: TestStore, holder: ObjectRecord, start: int, end: int, *, pinned: bool = True) -> bytes:
    view = memoryview(bytearray(end - start))
    known, etag = PlainBytes(StoreRows(store.metadata)), holder.etag if pinned else None
    known.read_into(store.cold, holder, start, view, etag, None)
    return bytes(view)


def test_a_range_is_one_request_from_its_first_byte_to_its_last(store: TestStore) -> None:
    holder = cold_object(store, [bytes([index]) * 100 for index in range(50)], 100_000)
    assert read(store, holder, 150, 420) == bytes([1]) * 50 + bytes([2]) * 100 + bytes([3]) * 100 + bytes([4]) * 20
    first, last = 128 + 2 * 12 + 150, 128 + 5 * 12 + 420
    assert watched(store).ranges == [(first, last)]


def test_padding_is_read_over_unless_it_is_long(store: TestStore) -> None:
    small = [bytes(900)] * 4
    holder = cold_object(store, small, 2100)
    assert read(store, holder, 0, 3600) == bytes(3600)
    assert len(watched(store).ranges) == 1
    large = [bytes(10), bytes(2 * MIB), bytes(10)]
    holder = cold_object(store, large, 2 * MIB + 140)
    assert read(store, holder, 0, holder.length) == bytes(holder.length)
    assert len(watched(store).ranges) == 2


@pytest.mark.parametrize("step_bytes", [1, 13, 700, 10_000])
def test_what_arrived_is_whole_entries_in_order(store: TestStore, step_bytes: int) -> None:
    chosen = random.Random(step_bytes)
    held = [chosen.randbytes(chosen.choice([0, 1, 50, 333])) for _ in range(80)]
    holder = cold_object(store, held, 1500)
    whole, seen = b"".join(held), []
    watched(store).step_bytes = step_bytes
    view = memoryview(bytearray(len(whole)))

    def progress(received: int) -> None:
        seen.append(received)
        assert view[:received] == whole[:received]

    PlainBytes(StoreRows(store.metadata)).read_into(store.cold, holder, 0, view, holder.etag, progress)
    assert seen == sorted(seen)
    assert seen[-1] == len(whole)


def test_bytes_of_any_version_are_taken_when_all_have_arrived(store: TestStore) -> None:
    holder = cold_object(store, [bytes([index]) * 100 for index in range(50)], 100_000)
    told: list[int] = []
    view = memoryview(bytearray(holder.length))
    PlainBytes(StoreRows(store.metadata)).read_into(store.cold, holder, 0, view, None, told.append)
    assert told == [holder.length]
    assert read(store, holder, 0, holder.length, pinned=False) == bytes(view)


def test_entries_that_nobody_knows_are_data_loss(store: TestStore) -> None:
    holder = cold_object(store, [b"payload"], 1000)
    with store.metadata.write() as txn:
        entries.remove(txn, holder.segment_id)  # type: ignore[arg-type]
    with pytest.raises(DataLoss, match="the position of the payload at 0 is unknown"):
        read(store, holder, 0, 7)


def test_runs_are_remembered_up_to_a_number(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_bytes, "_KEPT_RUNS", 3)
    holder = cold_object(store, [bytes(100)] * 60, 1000)
    known = PlainBytes(StoreRows(store.metadata))
    for start in (0, 5900, 3000, 100, 2000):
        known.read_into(store.cold, holder, start, memoryview(bytearray(50)), holder.etag, None)
    assert sum(map(len, known._runs.values())) == len(known._order) == 3
    found = entries.run_holding

    def never(*_: object) -> None:
        raise AssertionError("it is remembered")

    monkeypatch.setattr(entries, "run_holding", never)
    known.read_into(store.cold, holder, 2010, memoryview(bytearray(50)), holder.etag, None)
    monkeypatch.setattr(entries, "run_holding", found)


def test_what_is_remembered_of_one_object_is_not_taken_for_the_next(store: TestStore) -> None:
    """As in a mount, while the cold form is deleted and made again in blocks of another size."""
    held = [bytes([index]) * 100 for index in range(50)]
    before = cold_object(store, held, 1000)
    known = PlainBytes(StoreRows(store.metadata))
    view = memoryview(bytearray(before.length))
    known.read_into(store.cold, before, 0, view, before.etag, None)
    segment_id = SegmentId(before.segment_id)
    with store.metadata.read() as txn:
        uuid = entries.find(txn, segment_id).offload.uuid
    assert uuid is not None
    offloader(store).delete_offloaded(segment_id, uuid)
    offloader(store, 2000).offload(segment_id, uuid4())
    with store.metadata.read() as txn:
        (chunk,) = chains.chunks(txn, segment_id, Tier.COLD)
        after = chains.object_of(txn, chunk)
    known.read_into(store.cold, after, 0, view, after.etag, None)
    assert view == b"".join(held)
