"""What is decided again in the transaction that acts on it, and what is refused there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.errors import DataLoss, WrongColdTier
from tierfs.journal import replay
from tierfs.journal.publish import Publisher
from tierfs.metadata import chain_edits, tables
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.records import RECORD_VERSION, GarbageRecord
from tierfs.metadata.tables import CHUNKS, GARBAGE, LOCATIONS
from tierfs.tiering import evict
from tierfs.tiering.candidates import objects_to_make
from tierfs.tiering.objects import ChunksMoved
from tierfs.types import LocationId, Tier


@pytest.fixture
def cold() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=cold) as opened:
        opened.append("s", b"abcd", seal=True)
        yield opened


@pytest.mark.parametrize("field", ["object_id", "object_offset", "length"])
def test_an_object_of_a_chunk_that_is_another_by_now_is_not_linked(
    store: TestStore, cold: ScriptedStorage, field: str
) -> None:
    def change() -> None:
        with store.metadata.write() as txn:
            key = tables.chunk(store.segment("s").id, Tier.LOCAL, 0)
            chunk = txn.must_get(CHUNKS, key, "the chunk")
            txn.put(CHUNKS, key, replace(chunk, **{field: getattr(chunk, field) + 1}))

    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"), 8)
    cold.do("put", change, when=When.AFTER, of="segments/")
    with pytest.raises(ChunksMoved, match="changed meanwhile"):
        store.cold_work().tools.offload.run(action)
    assert not store.segment("s").cold.count


@pytest.mark.parametrize("late_ms", [-1, 0, 1])
def test_the_lag_counts_in_the_transaction_that_evicts(store: TestStore, late_ms: int) -> None:
    store.offload("s")
    made_ms = store.layout("s").cold[0].object.created_ms
    done = evict.evict(store.metadata, store.segment("s").id, cold_before_ms=made_ms - late_ms)
    assert done.bytes == (0 if late_ms > 0 else 4)


@pytest.mark.parametrize("writable", [True, False])
def test_nothing_is_deleted_in_a_place_that_is_not_ours(
    store: TestStore, cold: ScriptedStorage, writable: bool
) -> None:
    store.offload("s")
    name = store.layout("s").cold[0].object.name
    other = LocationId(LOCATION + 1)
    with store.metadata.write() as txn:
        ours = txn.must_get(LOCATIONS, tables.u32(LOCATION), "ours")
        txn.put(LOCATIONS, tables.u32(other), replace(ours, id=other, url="memory:theirs", writable=writable))
        row = GarbageRecord(due_ms=0, tier=Tier.COLD, location_id=other, name=name, length=4)
        txn.put(GARBAGE, tables.pair(0, 99), row)
    store.collect()
    assert any(stored.name == name for stored in cold.list("segments/")) is not writable


@pytest.mark.parametrize("gap", [-1, 0, 1])
def test_a_journal_that_lacks_a_change_is_refused(tmp_path: Path, gap: int) -> None:
    with open_test_store(tmp_path / "owner") as owner, owner.metadata.write_replayed() as txn:
        first = replay.applied(txn) + 1 + gap
        entry = pb.JournalEntry(
            version=RECORD_VERSION,
            store_id=txn.store.store_id,
            store_epoch=txn.store.store_epoch,
            slot=txn.store.journal.next_slot,
            attempt="1" * 32,
            first_sequence=first,
            last_sequence=first,
            changes=[pb.Change(sequence=first, directory_removed=999)],
        )
        if gap <= 0:
            assert replay.apply_entry(txn, entry)
            return
        with pytest.raises(DataLoss, match="was the last"):
            replay.apply_entry(txn, entry)


def test_a_chain_that_begins_before_its_segment_is_not_joined_to_another(store: TestStore) -> None:
    store.append("t", b"ab")
    source, target = store.segment("s"), store.segment("t")
    with store.metadata.write() as txn, pytest.raises(DataLoss, match="a chunk before the start"):
        chain_edits.append_chain(txn, target, replace(source, start_offset=1), Tier.LOCAL)


def test_no_slot_is_made_in_a_place_that_does_not_show_ours(store: TestStore) -> None:
    store.settle()
    store.append("t", b"ab", seal=True)
    empty = MemoryStorage()
    with pytest.raises(WrongColdTier):
        Publisher(store.metadata, empty).publish()
    assert [stored.name for stored in empty.list("")] == []
