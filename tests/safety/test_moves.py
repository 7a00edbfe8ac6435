"""Chunks of a mostly dead pack move, judged again; and which change of the journal names each cold object.

Its local copy goes, and it is trusted, from that change on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.batches.batch_writes import Driver
from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.ledgers import new_ledger
from tests.ledgers import offload as offload_ledger
from tests.stores import LOCATION, TestStore, open_test_store
from tests.tiering.test_repack import KEPT, POLICY, dying_pack
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import ChunkState, ObjectId, Tier
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import CHUNKS, GARBAGE, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering.packs.repack import Repack


@pytest.fixture
def cold() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage) -> Iterator[TestStore]:
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "store", policy=POLICY, settings=settings, cold=cold) as opened:
        yield opened


def repacker(store: TestStore) -> Repack:
    return Repack(store.metadata, store.cold_work().cold, store.settings)


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


# The change that names an object


def write(store: TestStore) -> None:
    for number in range(20):
        store.append(f"s{number:02d}", os.urandom(3000), seal=True)


def offload(store: TestStore) -> None:
    store.append("s", os.urandom(200_000), seal=True)
    store.offload("s")


def pack(store: TestStore) -> None:
    write(store)
    store.offload()


def consolidate(store: TestStore) -> None:
    for _ in range(3):
        store.append("s", os.urandom(200_000))
        store.offload("s")
        store.evict("s")
    store.engine.seal("s")
    store.consolidate("s")


def repack(store: TestStore) -> None:
    pack(store)
    store.evict()
    for number in range(2, 20):
        store.engine.delete(f"s{number:02d}", recursive=False, cold_due_ms=0)
    work = store.cold_work()
    work.publish()
    walk(Repack(store.metadata, work.cold, store.settings))


def batch(store: TestStore) -> None:
    Driver(store).write({f"out/{number}": b"abc" * number for number in range(1, 4)})


def ledger(store: TestStore) -> None:
    offload_ledger(store, new_ledger(store, [b"entry"] * 10))


def _objects(change: pb.Change) -> set[int]:
    """The objects that a change brings to the journal."""
    if change.HasField("pack_link"):
        return {change.pack_link.object.id}
    return {item.id for item in change.cold_link.objects}


@pytest.mark.parametrize("verb", [offload, pack, consolidate, repack, batch, ledger])
def test_an_object_counts_as_journaled_from_the_change_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: Callable[[TestStore], None]
) -> None:
    queued: dict[int, set[int]] = {}
    add = WriteTransaction.add_to_outbox

    def noted(txn: WriteTransaction, data: bytes) -> int:
        sequence = add(txn, data)
        queued[sequence] = _objects(pb.Change.FromString(data))
        return sequence

    monkeypatch.setattr(WriteTransaction, "add_to_outbox", noted)
    settings = OffloadSettings(relocate_min_bytes=1000)
    with open_test_store(tmp_path / "store", policy=POLICY, settings=settings) as store:
        verb(store)
        with store.metadata.read() as txn:
            cold = [holder for _, holder in txn.scan(OBJECTS) if holder.tier is Tier.COLD]
    assert cold
    for holder in cold:
        assert holder.location_id == LOCATION
        assert holder.id in queued[holder.linked_sequence]
