"""How cold objects are made: what is judged again at each step, and what becomes of one that is not linked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.app.batches.batch_writes import Driver, contents
from tests.doubles.scripted_storage import Read, ScriptedStorage, When
from tests.safety.refused import refused
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.app.batches import job as batch_job
from tierfs.app.batches import manifest as batch_manifest
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options.policy import Policy
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, TierfsError, Unavailable, WrongColdTier
from tierfs.base.words.object_names import is_manifest
from tierfs.base.words.types import ROOT_DIRECTORY, AttemptId, ChunkState, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import BufferSource, Source, StoredObject
from tierfs.engine.journal.objects import read_small
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import directories, frames, tables
from tierfs.engine.metadata.records import GarbageRecord
from tierfs.engine.metadata.tables import CHUNKS, GARBAGE, INTENTS, LOCATIONS
from tierfs.engine.metadata.untrusted import MAX_OFFSET
from tierfs.tiering import evict, objects
from tierfs.tiering.candidates import OffloadAction, objects_to_make
from tierfs.tiering.objects import ChunksMoved, ColdTier
from tierfs.tiering.offload import Offload
from tierfs.tiering.offload_source import ChunkSource
from tierfs.tiering.packs import format as packs
from tierfs.tiering.packs.format import PackEntry, PackIndex, read_index
from tierfs.tiering.policy import EvictAction


@pytest.fixture
def cold() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=cold) as opened:
        opened.append("s", b"abcd", seal=True)
        yield opened


def tier_of(store: TestStore, error: TierfsError | None = None) -> ColdTier:
    """The cold tier of a process, whose proof of ownership fails with an error."""
    publisher = Publisher(store.metadata, store.cold)

    def require_ours() -> None:
        if error is not None:
            raise error

    return ColdTier(LOCATION, store.cold, require_ours, publisher.require_place)


def action_of(store: TestStore) -> OffloadAction:
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"), Policy(object_bytes=8))
    return action


def rows(store: TestStore) -> tuple[int, set[str]]:
    """The number of intents, and the names in the garbage."""
    with store.metadata.read() as txn:
        return txn.count(INTENTS.name), {row.name for _, row in txn.scan(GARBAGE)}


def damage(store: TestStore) -> None:
    (placed,) = store.layout("s").local
    path = store.files.root / placed.object.name
    path.chmod(0o600)
    path.write_bytes(b"abxd")


def states(store: TestStore, tier: Tier) -> set[ChunkState]:
    return {placed.chunk.state for placed in store.layout("s").chunks(tier)}


def test_what_was_removed_meanwhile_is_not_offloaded(store: TestStore) -> None:
    action = action_of(store)
    with store.metadata.write() as txn:
        entry = directories.find(txn, "s")
        assert entry is not None
        directories.queue(txn, ROOT_DIRECTORY, entry)
    with pytest.raises(ChunksMoved, match="deleted meanwhile"):
        Offload(store.metadata, store.files, tier_of(store)).run(action)
    assert not list(store.cold.list("segments/"))


def test_no_chunk_is_judged_for_a_place_that_is_not_ours(store: TestStore) -> None:
    action = action_of(store)
    damage(store)
    error = WrongColdTier("another store's")
    with pytest.raises(WrongColdTier):
        Offload(store.metadata, store.files, tier_of(store, error)).run(action)
    assert states(store, Tier.LOCAL) == {ChunkState.GOOD}
    with pytest.raises(DataLoss):
        Offload(store.metadata, store.files, tier_of(store)).run(action)
    assert states(store, Tier.LOCAL) == {ChunkState.SUSPECT}


@pytest.mark.parametrize("when", list(When)[:2])
@pytest.mark.parametrize("error", [Unavailable("no answer"), ZeroDivisionError("a defect")])
def test_an_object_that_was_not_linked_is_garbage_whatever_went_wrong(
    store: TestStore, cold: ScriptedStorage, when: When, error: Exception
) -> None:
    cold.fail("put", error, when=when, of="segments/")
    with pytest.raises(type(error)):
        Offload(store.metadata, store.files, tier_of(store)).run(action_of(store))
    intents, garbage = rows(store)
    assert not intents
    assert len(garbage) == 1
    assert {stored.name for stored in cold.list("segments/")} <= garbage


@pytest.mark.parametrize("field", ["object_id", "object_offset", "length"])
def test_an_object_whose_chunk_is_another_by_now_is_garbage(
    store: TestStore, cold: ScriptedStorage, field: str
) -> None:
    def change() -> None:
        with store.metadata.write() as txn:
            key = tables.chunk(store.segment("s").id, Tier.LOCAL, 0)
            chunk = txn.must_get(CHUNKS, key, "the chunk")
            changed = getattr(chunk, field) + (-1 if field == "length" else 1)
            txn.put(CHUNKS, key, replace(chunk, **{field: changed}))

    action = action_of(store)
    cold.do("put", change, when=When.AFTER, of="segments/")
    with pytest.raises(ChunksMoved, match="changed meanwhile"):
        store.cold_work().offloader.run(action)
    assert not store.segment("s").cold.count
    assert rows(store) == (0, {stored.name for stored in cold.list("segments/")})


@pytest.mark.parametrize("late_ms", [-1, 0, 1])
def test_the_lag_counts_in_the_transaction_that_evicts(store: TestStore, late_ms: int) -> None:
    store.offload("s")
    made_ms = store.layout("s").cold[0].object.created_ms
    ((_, done),) = evict.evict_some(store.metadata, [EvictAction(store.segment("s").id, made_ms - late_ms)])
    assert done == (evict.Evicted() if late_ms > 0 else evict.Evicted(chunks=1, bytes=4))


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


def test_no_object_is_made_in_the_place_that_the_tier_was_moved_away_from(store: TestStore) -> None:
    offload, action = Offload(store.metadata, store.files, tier_of(store)), action_of(store)
    with store.metadata.write() as txn:
        key = tables.u32(LOCATION)
        txn.put(LOCATIONS, key, replace(txn.must_get(LOCATIONS, key, "ours"), url="memory:elsewhere"))
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        offload.run(action)
    assert not list(store.cold.list("segments/"))
    assert rows(store) == (0, set())


def test_a_holder_that_begins_gives_up_objects_and_no_distributed_write(store: TestStore) -> None:
    driver = Driver(store)
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"abc"})
    assert objects.abandon_all(store.metadata) == 0
    assert not driver.commit(plan, uploaded).repeated
    assert store.read("out/a") == b"abc"


def test_other_bytes_than_those_of_an_index_are_not_stored_as_one(store: TestStore) -> None:
    for sent in (b"index", b"xndex"):
        source = ChunkSource(store.files, [])
        source.add_tail(sent)
        source.read(0, 5)
        source._tail = memoryview(b"index")
        with refused(sent != b"index", Unavailable):
            assert list(source.verified_grid().grid()) == [crc32c(sent)]
        source.close()


def pack_of(*entries: PackEntry, payload: int = 8) -> tuple[str, bytes]:
    attempt = AttemptId("1" * 32)
    data = os.urandom(payload) + packs.index_and_trailer(PackIndex("0" * 32, 1, attempt, 0, entries), payload)
    return packs.pack_name(ObjectId(7), 1, attempt, crc32c(data)), data


@pytest.mark.parametrize("shift", [-1, 0, 1])
@pytest.mark.parametrize("beyond", [0, 1])
def test_entries_of_a_pack_share_no_byte_and_end_at_the_largest_offset(
    cold: ScriptedStorage, shift: int, beyond: int
) -> None:
    first = PackEntry(SegmentId(1), "a", MAX_OFFSET - 4 + beyond, 4, 0, 0)
    name, data = pack_of(first, PackEntry(SegmentId(2), "b", 0, 3, 4 + shift, 0))
    cold.put(name, BufferSource(data))
    with refused(shift < 0 or beyond, DataLoss):
        assert len(read_index(cold, name, len(data)).entries) == 2


@pytest.mark.parametrize("damages", [0, 1, 2])
@pytest.mark.parametrize("of", ["trailer", "index"])
def test_a_pack_is_damaged_only_if_its_index_is_so_twice(cold: ScriptedStorage, damages: int, of: str) -> None:
    name, data = pack_of(PackEntry(SegmentId(1), "a", 0, 8, 0, 0))
    cold.put(name, BufferSource(data))
    if damages:  # of each try the first read is that of the trailer
        cold.damage(5, on=range(1, 2 * damages) if of == "trailer" else range(2, 2 * damages + 1))
    with refused(damages > 1, DataLoss):
        assert read_index(cold, name, len(data)).entries[0].length == 8
    assert cold.reads[0] == Read(name, len(data) - packs.TRAILER_BYTES, packs.TRAILER_BYTES)


@pytest.mark.parametrize("field", ["epoch", "attempt", ""])
def test_an_index_that_contradicts_the_name_of_its_pack_is_refused(cold: ScriptedStorage, field: str) -> None:
    _, data = pack_of(PackEntry(SegmentId(1), "a", 0, 8, 0, 0))
    epoch, attempt = (2 if field == "epoch" else 1), ("2" if field == "attempt" else "1") * 32
    name = packs.pack_name(ObjectId(7), epoch, AttemptId(attempt), crc32c(data))
    cold.put(name, BufferSource(data))
    with refused(field, DataLoss, "contradicts its name"):
        assert len(read_index(cold, name, len(data)).entries) == 1


# Distributed writes


@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_has_as_many_segments_as_the_limit_at_most(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(batch_job, "MAX_SEGMENTS", 2)
    segments = {f"out/{number}": b"abc" for number in range(2 + more)}
    with refused(more, InvalidRequest, "one write of 3 segments"):
        Driver(store).write(segments)
    assert contents(store) == {"s": b"abcd", **({} if more else segments)}


class Short(ScriptedStorage):
    """Takes less of an upload than it was given."""

    lacks = 0

    def put(self, name: str, source: Source, **named: Any) -> StoredObject:
        stored = super().put(name, source, **named)
        return replace(stored, length_bytes=stored.length_bytes - self.lacks)


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_task_reports_no_object_that_arrived_in_part(store: TestStore, lacks: int) -> None:
    store.cold = cold = Short(store.cold)
    driver = Driver(store)
    plan = driver.begin()
    cold.lacks = lacks
    with refused(lacks, DataLoss, "2 of 3 bytes arrived"):
        assert [one.segment for one in driver.upload(plan, {"out/a": b"abc"})] == ["out/a"]
    assert bool(list(cold.list("uploads/"))) is not bool(lacks)


def test_parts_of_a_manifest_are_as_large_as_readers_accept(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_manifest, "_PART_BYTES", 300)
    Driver(store).write({f"out/{number:03d}": b"abc" for number in range(20)})
    names = [one.name for one in store.cold.list("uploads/") if is_manifest(one.name)]
    parts = [frames.parse_batch_manifest(read_small(store.cold, name), name) for name in names]
    assert sum(len(part.segments) for part in parts) == 20
    assert all(sum(each.ByteSize() for each in part.segments) <= 300 for part in parts)
