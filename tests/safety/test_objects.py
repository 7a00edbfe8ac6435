"""How cold objects are made: what is judged again at each step, and what becomes of one that is not linked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import Read, ScriptedStorage, When
from tests.stores import LOCATION, TestStore, open_test_store
from tests.tiering.batch_writes import Driver
from tierfs.checksum import crc32c
from tierfs.chunkstore.protocol import BufferSource
from tierfs.errors import Conflict, DataLoss, TierfsError, Unavailable, WrongColdTier
from tierfs.journal.publish import Publisher
from tierfs.metadata import directories, tables
from tierfs.metadata.tables import CHUNKS, GARBAGE, INTENTS, LOCATIONS
from tierfs.metadata.untrusted import MAX_OFFSET
from tierfs.tiering import objects, packs
from tierfs.tiering.candidates import OffloadAction, objects_to_make
from tierfs.tiering.consolidate import Consolidate
from tierfs.tiering.consolidate_command import asked_for
from tierfs.tiering.objects import ChunksMoved, ColdTier
from tierfs.tiering.offload import Offload
from tierfs.tiering.offload_source import ChunkSource
from tierfs.tiering.packs import PackEntry, PackIndex, read_index
from tierfs.types import ROOT_DIRECTORY, AttemptId, ChunkState, ObjectId, SegmentId, Tier


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
        (action,) = objects_to_make(txn, store.segment("s"), 8)
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


def test_no_object_is_read_for_a_consolidation_in_a_place_that_is_not_ours(
    store: TestStore, cold: ScriptedStorage
) -> None:
    for number in range(3):
        store.append("t", b"ab")
        store.offload("t")
        store.evict("t")
        assert number < len(store.layout("t").cold)
    store.engine.seal("t")
    with store.metadata.read() as txn:
        (action,) = asked_for(txn, store.segment("t"), LOCATION, store.settings).actions
    cold.reads.clear()
    cold.calls.clear()
    for error in (WrongColdTier("another store's"), None):
        consolidate = Consolidate(store.metadata, tier_of(store, error), grace_ms=0)
        if error is not None:
            with pytest.raises(WrongColdTier):
                consolidate.run(action, lambda _: None)
            assert not cold.calls
        else:
            assert consolidate.run(action, lambda _: None).bytes == 6
            assert cold.calls


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


def test_an_object_whose_chunks_moved_is_garbage(store: TestStore, cold: ScriptedStorage) -> None:
    def change() -> None:
        with store.metadata.write() as txn:
            key = tables.chunk(store.segment("s").id, Tier.LOCAL, 0)
            chunk = txn.must_get(CHUNKS, key, "the chunk")
            txn.put(CHUNKS, key, replace(chunk, object_offset=1))

    cold.do("put", change, when=When.AFTER, of="segments/")
    with pytest.raises(ChunksMoved):
        Offload(store.metadata, store.files, tier_of(store)).run(action_of(store))
    assert rows(store) == (0, {stored.name for stored in cold.list("segments/")})


def test_no_object_is_made_in_the_place_that_the_tier_was_moved_away_from(store: TestStore) -> None:
    offload, action = Offload(store.metadata, store.files, tier_of(store)), action_of(store)
    with store.metadata.write() as txn:
        key = tables.u32(LOCATION)
        txn.put(LOCATIONS, key, replace(txn.must_get(LOCATIONS, key, "ours"), url="memory:elsewhere"))
    with pytest.raises(Conflict, match="another address"):
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
        if sent == b"index":
            assert list(source.verified_grid().grid()) == [crc32c(sent)]
        else:
            with pytest.raises(Unavailable):
                source.verified_grid()
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
    if shift >= 0 and not beyond:
        assert len(read_index(cold, name, len(data)).entries) == 2
    else:
        with pytest.raises(DataLoss):
            read_index(cold, name, len(data))


@pytest.mark.parametrize("damages", [0, 1, 2])
@pytest.mark.parametrize("of", ["trailer", "index"])
def test_a_pack_is_damaged_only_if_its_index_is_so_twice(cold: ScriptedStorage, damages: int, of: str) -> None:
    name, data = pack_of(PackEntry(SegmentId(1), "a", 0, 8, 0, 0))
    cold.put(name, BufferSource(data))
    if damages:  # of each try the first read is that of the trailer
        cold.damage(5, on=range(1, 2 * damages) if of == "trailer" else range(2, 2 * damages + 1))
    if damages > 1:
        with pytest.raises(DataLoss):
            read_index(cold, name, len(data))
    else:
        assert read_index(cold, name, len(data)).entries[0].length == 8
    assert cold.reads[0] == Read(name, len(data) - packs.TRAILER_BYTES, packs.TRAILER_BYTES)


@pytest.mark.parametrize("field", ["epoch", "attempt", ""])
def test_an_index_that_contradicts_the_name_of_its_pack_is_refused(cold: ScriptedStorage, field: str) -> None:
    _, data = pack_of(PackEntry(SegmentId(1), "a", 0, 8, 0, 0))
    epoch, attempt = (2 if field == "epoch" else 1), ("2" if field == "attempt" else "1") * 32
    name = packs.pack_name(ObjectId(7), epoch, AttemptId(attempt), crc32c(data))
    cold.put(name, BufferSource(data))
    if field:
        with pytest.raises(DataLoss, match="contradicts its name"):
            read_index(cold, name, len(data))
    else:
        assert len(read_index(cold, name, len(data)).entries) == 1
