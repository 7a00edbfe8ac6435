"""What a journal or a checkpoint may say, and what becomes of a store that is replaced, at the entry that decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, open_test_store
from tierfs.checksum import crc32c
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource, StoredObject
from tierfs.errors import DataLoss
from tierfs.journal import batch_markers, reader
from tierfs.journal.names import checkpoint_name, slot_name
from tierfs.journal.publish import Publisher
from tierfs.journal.reader import JournalListing
from tierfs.metadata import chain_edits, changes
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.journal_state import PublishIntent, first_of
from tierfs.metadata.ledger_and_batch_records import MAX_BATCH, BatchRecord
from tierfs.metadata.records import RECORD_VERSION, ChunkRecord
from tierfs.metadata.store import new_id
from tierfs.types import ChunkState, ObjectId, Tier


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def journal(*entries: tuple[int, int]) -> MemoryStorage:
    """Return a bucket with entries of these slots and epochs."""
    storage = MemoryStorage()
    for slot, epoch in entries:
        put(storage, slot, slot, epoch)
    return storage


def put(storage: MemoryStorage, at: int, slot: int, epoch: int) -> StoredObject:
    entry = pb.JournalEntry(version=RECORD_VERSION, store_id="s", store_epoch=epoch, slot=slot, attempt="a")
    return storage.put(slot_name(at), BufferSource(changes.frame(entry)))


@pytest.mark.parametrize("beyond_epoch", [2, 3, 4])
def test_entries_beyond_a_gap_are_void_only_of_a_lower_epoch(beyond_epoch: int) -> None:
    storage = journal((1, 3), (2, 3), (4, beyond_epoch))
    listing = reader.list_journal(storage)
    if beyond_epoch < 3:
        behind = reader.entries_behind(storage, listing, 0, 3)
        assert [item.name for item in behind] == [slot_name(1), slot_name(2)]
        return
    with pytest.raises(DataLoss, match="is missing"):
        reader.entries_behind(storage, listing, 0, 3)


@pytest.mark.parametrize("slot", [1, 2])
def test_an_entry_is_that_of_its_name(slot: int) -> None:
    item = put(MemoryStorage(), 1, 1, 1)
    storage = MemoryStorage()
    item = put(storage, 1, slot, 1)
    if slot == 1:
        assert reader.read_entry(storage, item).slot == 1
        return
    with pytest.raises(DataLoss, match="entry of slot 2"):
        reader.read_entry(storage, item)


def test_slots_below_a_recovery_from_objects_are_void() -> None:
    first = first_of(2)
    listing = reader.list_journal(journal((1, 1), (first, 2), (first + 1, 2)))
    assert list(listing.slots) == [first, first + 1]


@pytest.mark.parametrize("checkpoints", [(), (5,), (5, 7)])
@pytest.mark.parametrize("next_is_there", [True, False])
def test_a_reader_starts_over_where_slots_may_have_been_superseded(
    checkpoints: tuple[int, ...], next_is_there: bool
) -> None:
    item = StoredObject("x", 1, "e", 0)
    slots = {slot: item for slot in range(5 if next_is_there else 6, 9)}
    listing = JournalListing(slots, dict.fromkeys(checkpoints, item))
    expected = len(checkpoints) > 1 or (len(checkpoints) == 1 and not next_is_there)
    assert reader.must_start_over(listing, 4) is expected


@pytest.mark.parametrize("same", [True, False])
def test_a_part_is_that_of_its_manifest(same: bool) -> None:
    storage = MemoryStorage()
    data = changes.frame(pb.CheckpointPart(version=RECORD_VERSION, attempt="a"))
    item = storage.put(f"{checkpoint_name(1)}.part", BufferSource(data))
    manifest = pb.CheckpointManifest(part_crc32c=[crc32c(data) ^ (not same)])
    if same:
        assert reader.read_part(storage, item, manifest, 0).attempt == "a"
        return
    with pytest.raises(DataLoss, match="checksum"):
        reader.read_part(storage, item, manifest, 0)


def test_a_listed_size_is_checked_before_memory_is_taken() -> None:
    item = StoredObject(slot_name(1), changes.MAX_OBJECT_BYTES + 1, "e", 0)
    with pytest.raises(DataLoss, match="at most"):
        reader.read_entry(MemoryStorage(), item)


@pytest.mark.parametrize("wrong_reads", [1, 2])
@pytest.mark.parametrize("kind", ["entry", "manifest", "part", "marker"])
def test_one_wrong_transfer_is_no_damage(kind: str, wrong_reads: int) -> None:
    storage = ScriptedStorage()
    part = changes.frame(pb.CheckpointPart(version=RECORD_VERSION, attempt="a"))
    record = BatchRecord(application="app", batch="7", job="0" * 32)
    marker = pb.BatchMarker(version=RECORD_VERSION, application="app", batch="7")
    name, message = {
        "entry": (slot_name(1), pb.JournalEntry(version=RECORD_VERSION, store_id="s", slot=1)),
        "manifest": (checkpoint_name(1), pb.CheckpointManifest(version=RECORD_VERSION, store_id="s", slot=1)),
        "part": (f"{checkpoint_name(1)}.part", pb.CheckpointPart(version=RECORD_VERSION, attempt="a")),
        "marker": (batch_markers.marker_name(record, 1), marker),
    }[kind]
    manifest = pb.CheckpointManifest(part_crc32c=[crc32c(part)])
    item = storage.put(name, BufferSource(changes.frame(message)))
    reads: dict[str, Callable[[], object]] = {
        "entry": lambda: reader.read_entry(storage, item),
        "manifest": lambda: reader.read_manifest(storage, item),
        "part": lambda: reader.read_part(storage, item, manifest, 0),
        "marker": lambda: batch_markers.read_marker(storage, name),
    }
    storage.damage(-1, on=range(1, 1 + wrong_reads))
    if wrong_reads == 1:
        assert reads[kind]()
        return
    with pytest.raises(DataLoss):
        reads[kind]()


@pytest.mark.parametrize("wrong", ["nothing", "versions", "forgotten", "application"])
def test_a_marker_is_of_its_name_and_of_possible_versions(wrong: str) -> None:
    storage = MemoryStorage()
    record = BatchRecord(application="app", batch="7", job="0" * 32)
    marker = pb.BatchMarker(
        version=RECORD_VERSION,
        application="other" if wrong == "application" else "app",
        batch="7",
        committed=[pb.VersionRange(first=1, last=MAX_BATCH + (wrong == "versions"))],
        forgotten=MAX_BATCH + (wrong == "forgotten"),
    )
    name = batch_markers.marker_name(record, 1)
    storage.put(name, BufferSource(changes.frame(marker)))
    if wrong == "nothing":
        assert batch_markers.read_marker(storage, name)[1] == "app"
        return
    with pytest.raises(DataLoss):
        batch_markers.read_marker(storage, name)


@pytest.mark.parametrize("whose", ["own", "other"])
def test_an_entry_of_another_store_is_void_at_no_epoch(store: TestStore, whose: str) -> None:
    from tierfs.journal.publish import _is_void

    with store.metadata.read() as txn:
        ours = txn.store
    entry = pb.JournalEntry(store_id=ours.store_id if whose == "own" else new_id(), store_epoch=ours.store_epoch - 1)
    assert _is_void(entry, ours) is (whose == "own")


@pytest.mark.parametrize("attempt", ["a", "b"])
def test_an_entry_of_the_same_store_and_epoch_is_ones_own_by_its_attempt(store: TestStore, attempt: str) -> None:
    from tierfs.journal.publish import _is_own

    with store.metadata.read() as txn:
        ours = txn.store
    entry = pb.JournalEntry(store_id=ours.store_id, store_epoch=ours.store_epoch, attempt=attempt)
    assert _is_own(entry, PublishIntent(attempt="a"), ours) is (attempt == "a")


def test_a_proof_ends_with_a_look_that_fails(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(store.metadata, store.cold)
    publisher.publish()
    publisher.require_ownership()
    assert publisher._is_proven()

    def fail(*_: object, **__: object) -> None:
        raise DataLoss("away")

    monkeypatch.setattr(Publisher, "_judge", fail)
    with pytest.raises(DataLoss, match="away"):
        publisher.require_ownership()
    assert not publisher._is_proven()


@pytest.mark.parametrize("state", list(ChunkState))
@pytest.mark.parametrize("object_id", [1, 2])
@pytest.mark.parametrize("was_lost", [True, False])
def test_a_mark_is_for_the_chunk_that_was_looked_at(state: ChunkState, object_id: int, was_lost: bool) -> None:
    found = ChunkState.LOST if was_lost else ChunkState.GOOD
    seen = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(1), state=found)
    current = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(object_id), state=ChunkState.LOST)
    # A lost extent becomes good by one who saw it lost, and read its object; no other mark changes it.
    expected = object_id == 1 and was_lost and state is ChunkState.GOOD
    assert chain_edits._changes(current, Tier.COLD, seen, state) is expected
    good = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(object_id))
    assert chain_edits._changes(good, Tier.COLD, seen, state) is (object_id == 1 and state is not ChunkState.GOOD)
