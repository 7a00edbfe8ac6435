"""Chunks of a mostly dead pack move, proved and judged again, and the old pack goes no earlier than it may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage, When
from tests.stores import TestStore, open_test_store
from tests.tiering.test_repack import KEPT, POLICY, dying_pack
from tierfs.config import OffloadSettings
from tierfs.errors import DataLoss
from tierfs.metadata import tables
from tierfs.metadata.tables import CHUNKS, GARBAGE
from tierfs.metadata.transaction import ReadTransaction
from tierfs.tiering.repack import Repack
from tierfs.types import ChunkState, ObjectId, Tier


@pytest.fixture
def cold() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage) -> Iterator[TestStore]:
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "store", policy=POLICY, settings=settings, cold=cold) as opened:
        yield opened


def repacker(store: TestStore) -> Repack:
    return Repack(store.metadata, store.files, store.cold_work().tools.cold, store.settings)


def walk(repack: Repack) -> None:
    for _ in range(100):
        if repack.step() is None:
            return
    raise AssertionError("it does not end")


def objects(store: TestStore) -> set[ObjectId]:
    return {store.layout(name).cold[0].object.id for name in KEPT}


def mark(store: TestStore, name: str, state: ChunkState) -> None:
    with store.metadata.write() as txn:
        key = tables.chunk(store.segment(name).id, Tier.COLD, 0)
        txn.put(CHUNKS, key, replace(txn.must_get(CHUNKS, key, "the chunk"), state=state))


def test_a_damaged_chunk_does_not_move(store: TestStore, cold: ScriptedStorage) -> None:
    data, before = dying_pack(store), objects(store)
    placed = store.layout(KEPT[0]).cold[0]
    cold.damage(7, on=ALWAYS, of=placed.object.name)
    with pytest.raises(DataLoss):
        walk(repacker(store))
    assert objects(store) == before
    cold.behave()
    assert {name: store.read(name) for name in KEPT} == data


def test_a_chunk_that_is_another_by_now_does_not_move(store: TestStore, cold: ScriptedStorage) -> None:
    data, (before,) = dying_pack(store), objects(store)
    cold.do("put", lambda: mark(store, KEPT[0], ChunkState.SUSPECT), when=When.AFTER, of="packs/")
    walk(repacker(store))
    first, second = (store.layout(name).cold[0] for name in KEPT)
    assert (first.object.id, first.chunk.state) == (before, ChunkState.SUSPECT)
    assert second.object.id != before
    assert {name: store.read(name) for name in KEPT} == data


def test_the_old_pack_stays_until_the_journal_names_the_new_one(store: TestStore) -> None:
    dying_pack(store)
    (old,) = {store.layout(name).cold[0].object.name for name in KEPT}
    walk(repacker(store))
    with store.metadata.read() as txn:
        (row,) = [row for _, row in txn.scan(GARBAGE) if row.name == old]
        assert row.after_sequence > txn.store.journal.published_sequence


def test_a_pack_that_has_to_stay_is_read_once(store: TestStore, cold: ScriptedStorage) -> None:
    dying_pack(store)
    (old,) = {store.layout(name).cold[0].object.name for name in KEPT}
    mark(store, KEPT[0], ChunkState.SUSPECT)
    repack = repacker(store)
    for reads in (2, 0):  # its trailer and its index
        cold.reads.clear()
        walk(repack)
        assert len([read for read in cold.reads if read.name == old]) == reads
        store.append("other", b"abc")


def test_without_a_commit_no_object_is_looked_at(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("s", b"abc", seal=True)
    looks: list[bytes] = []
    scan_raw = ReadTransaction.scan_raw

    def noted(txn: ReadTransaction, name: bytes, *args: bytes, **named: bytes) -> Iterator[tuple[bytes, bytes]]:
        looks.append(name)
        return scan_raw(txn, name, *args, **named)

    monkeypatch.setattr(ReadTransaction, "scan_raw", noted)
    repack = repacker(store)
    for expected in (1, 0, 0):
        looks.clear()
        walk(repack)
        assert looks.count(b"objects") == expected
