"""The last of its kind: reference, change, slot, part, due time and lock decide what goes and what stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import lmdb
import pytest

from tests.stores import TestStore, open_test_store
from tierfs.app import batch_write
from tierfs.app.store import Store
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource
from tierfs.clock import ManualClock
from tierfs.config import WriteSettings
from tierfs.errors import AlreadyExists, Conflict, DataLoss, TierfsError, Unavailable
from tierfs.journal import cold_identity, replay
from tierfs.journal.checkpoint import Checkpointer
from tierfs.journal.cold_identity import StoreMark
from tierfs.journal.names import checkpoint_name, part_name, slot_name
from tierfs.journal.publish import Publisher
from tierfs.metadata import chain, chains, tables, transaction
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.environment import open_environment
from tierfs.metadata.journal_state import CheckpointIntent
from tierfs.metadata.records import RECORD_VERSION, ChunkRecord, ObjectRecord
from tierfs.metadata.tables import OBJECTS
from tierfs.segments.delete import delete
from tierfs.segments.engine import Engine
from tierfs.segments.trash import end_due
from tierfs.types import LocationId, ObjectId, Tier


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "4", "trash_age": "10"}) as opened:
        yield opened


@pytest.mark.parametrize("references", [1, 2, 3])
def test_an_object_goes_with_its_last_reference(store: TestStore, references: int) -> None:
    holder = ObjectRecord(
        id=ObjectId(900), tier=Tier.COLD, location_id=LocationId(1), name="o", length=4, etag="e", references=references
    )
    with store.metadata.write() as txn:
        txn.put(OBJECTS, tables.u64(holder.id), holder)
        gone = chains.release(txn, ChunkRecord(start_offset=0, length=4, object_id=holder.id))
        left = txn.get(OBJECTS, tables.u64(holder.id))
        assert (gone, left) == (
            (holder, None) if references == 1 else (None, replace(holder, references=references - 1))
        )
        txn.delete(OBJECTS.name, tables.u64(holder.id))


@pytest.mark.parametrize("gap", [0, 1])
def test_a_gap_in_a_segment_keeps_chunks_apart(gap: int) -> None:
    left = ChunkRecord(start_offset=0, length=4, object_id=ObjectId(1))
    right = ChunkRecord(start_offset=4 + gap, length=4, object_id=ObjectId(1), object_offset=4)
    assert chain.continues(left, right) is (gap == 0)


class Failing:
    """A transaction whose commit fails."""

    def commit(self) -> None:
        """Fail as a broken disk does."""
        raise lmdb.Error("Input/output error")


def test_nothing_is_written_after_a_commit_that_failed(store: TestStore) -> None:
    environment = open_environment(store.metadata.path)
    with pytest.raises(TierfsError):
        transaction._commit(environment, Failing())
    with pytest.raises(Unavailable, match="earlier commit"), store.metadata.write():
        pass


def test_a_removal_ends_at_its_own_time(store: TestStore) -> None:
    assert isinstance(store.clock, ManualClock)
    for name in ("first", "second"):
        store.append(name, b"1")
        delete(store.metadata, store.engine._locks, name, recursive=False, cold_due_ms=0, to_trash=True)
        store.clock.advance(5)
    assert end_due(store.metadata) == 1
    assert end_due(store.metadata) == 0
    store.clock.advance(5)
    assert end_due(store.metadata) == 1


@pytest.mark.parametrize("writes", [True, False])
def test_no_segment_is_sealed_under_its_writer_elsewhere(store: TestStore, writes: bool) -> None:
    writer = store.engine.open_writer("s")
    if not writes:
        store.engine.close_writer(writer)
    other = Engine(store.metadata, store.files, store.path / "writers", store.clock, WriteSettings())
    with closing(other):
        if writes:
            with pytest.raises(Conflict, match="being written"):
                other.seal("s")
        else:
            other.seal("s")
    assert store.segment("s").sealed is not writes


@pytest.mark.parametrize("later", [0, 1])
def test_a_change_is_applied_once_and_an_entry_has_every_one(store: TestStore, later: int) -> None:
    with store.metadata.write_replayed() as txn:
        replay.apply(txn, pb.Change(sequence=1, directory_removed=999))
        last = replay.applied(txn)
        assert replay.apply(txn, pb.Change(sequence=last + later, directory_removed=999)) is bool(later)
        first = last + later + 1
        entry = pb.JournalEntry(
            version=RECORD_VERSION,
            store_id=txn.store.store_id,
            store_epoch=txn.store.store_epoch,
            slot=txn.store.journal.next_slot,
            attempt="1" * 32,
            first_sequence=first,
            changes=[pb.Change(sequence=number, directory_removed=999) for number in (first, first + 1 + later)],
        )
        if not later:
            assert replay.apply_entry(txn, entry)
            return
        with pytest.raises(DataLoss, match="not numbered"):
            replay.apply_entry(txn, entry)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_an_id_that_was_seen_is_not_handed_out(store: TestStore, more: int) -> None:
    with store.metadata.write_replayed() as txn:
        following = txn.store.next_id
        replay.see_id(txn, following + more)
        assert txn.allocate_id() == following + max(0, more + 1)


def test_two_checkpoints_and_what_follows_the_older_one_are_kept(store: TestStore) -> None:
    storage = MemoryStorage()
    names = {slot: [slot_name(slot), checkpoint_name(slot), part_name(slot, "a" * 32, 0)] for slot in (4, 5, 6)}
    for name in [name for each in names.values() for name in each]:
        storage.put(name, BufferSource(b""))
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, previous_checkpoint_slot=5))
    checkpointer = Checkpointer(store.metadata, storage, Publisher(store.metadata, storage), 1)
    assert {item.name for item in checkpointer.superseded()} == {*names[4], slot_name(5)}


def test_a_crashed_checkpoint_takes_its_own_parts_alone(store: TestStore) -> None:
    storage = MemoryStorage()
    for attempt in ("a" * 32, "b" * 32):
        storage.put(part_name(5, attempt, 0), BufferSource(b""))
    checkpointer = Checkpointer(store.metadata, storage, Publisher(store.metadata, storage), 1)
    checkpointer._delete_parts(CheckpointIntent(attempt="a" * 32, slot=5))
    assert [item.name for item in storage.list("")] == [part_name(5, "b" * 32, 0)]


@pytest.mark.parametrize("marked", ["a", "b"])
def test_a_place_is_marked_for_one_store(marked: str) -> None:
    storage = MemoryStorage()
    cold_identity.write_mark(storage, StoreMark(marked * 32))
    if marked == "a":
        cold_identity.write_mark(storage, StoreMark("a" * 32))
        return
    with pytest.raises(AlreadyExists):
        cold_identity.write_mark(storage, StoreMark("a" * 32))


@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_is_published_with_its_own_change(store: TestStore, more: int) -> None:
    with store.metadata.read() as txn:
        sequence = txn.store.journal.published_sequence + more
    assert batch_write._is_published(cast(Store, store), sequence) is (more == 0)
