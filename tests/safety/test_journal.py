"""What a journal or a checkpoint may say, what is kept of it, and which entries are one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.safety.refused import refused
from tests.stores import IN_MEMORY, TestStore, open_test_store
from tierfs.app.batches import driver
from tierfs.app.recovery.takeover import SupersededError, Takeover
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import AlreadyExists, Conflict, DataLoss, Fenced, WrongColdTier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, StoredObject
from tierfs.engine.journal import batch_markers, epochs, publish, reader, replay, store_mark
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.journal.names import checkpoint_name, part_name, slot_name
from tierfs.engine.journal.objects import read_small
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.journal.reader import JournalListing, ListedPart
from tierfs.engine.journal.store_mark import StoreMark
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.batch_records import MAX_BATCH, BatchRecord
from tierfs.engine.metadata.epoch_numbers import first_of
from tierfs.engine.metadata.journal_state import CheckpointIntent, PublishIntent
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.store import new_id


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def put(storage: MemoryStorage, at: int, slot: int, epoch: int) -> StoredObject:
    entry = pb.JournalEntry(version=RECORD_VERSION, store_id="s", store_epoch=epoch, slot=slot, attempt="a")
    return storage.put(slot_name(at), BufferSource(frames.frame(entry)))


def journal(*entries: tuple[int, int]) -> MemoryStorage:
    """Return a bucket with entries of these slots and epochs."""
    storage = MemoryStorage()
    for slot, epoch in entries:
        put(storage, slot, slot, epoch)
    return storage


# Reading


@pytest.mark.parametrize("beyond_epoch", [2, 3, 4])
def test_entries_beyond_a_gap_are_void_only_of_a_lower_epoch(beyond_epoch: int) -> None:
    storage = journal((1, 3), (2, 3), (4, beyond_epoch))
    with refused(beyond_epoch >= 3, DataLoss, "is missing"):
        behind = reader.entries_behind(storage, reader.list_journal(storage), 0, 3)
        assert [item.name for item in behind] == [slot_name(1), slot_name(2)]


@pytest.mark.parametrize("slot", [1, 2])
def test_an_entry_is_that_of_its_name(slot: int) -> None:
    storage = MemoryStorage()
    item = put(storage, 1, slot, 1)
    with refused(slot != 1, DataLoss, "entry of slot 2"):
        assert reader.read_entry(storage, item).slot == 1


@pytest.mark.parametrize(("slot", "sums"), [(1, 1), (2, 1), (1, 0), (1, 2)])
def test_a_checkpoint_is_that_of_its_name_and_knows_each_part(slot: int, sums: int) -> None:
    storage = MemoryStorage()
    manifest = pb.CheckpointManifest(version=RECORD_VERSION, slot=slot, parts=1, part_crc32c=range(sums))
    item = storage.put(checkpoint_name(1), BufferSource(frames.frame(manifest)))
    with refused((slot, sums) != (1, 1), DataLoss, "contradicts itself"):
        assert reader.read_manifest(storage, item).slot == 1


@pytest.mark.parametrize(
    ("later_epoch", "error"), [(0, None), (2, SupersededError), (3, Fenced), (4, Fenced)], ids=["none", *"234"]
)
def test_a_recovery_owns_its_slot_unless_another_follows(
    store: TestStore, later_epoch: int, error: type[Exception] | None
) -> None:
    storage = journal((5, 3), *[(6, later_epoch)] * (later_epoch > 0))
    takeover = Takeover(store.metadata, storage, IN_MEMORY)
    with refused(error, error or Fenced):
        takeover._require_newest(pb.JournalEntry(store_epoch=3, slot=5))


@pytest.mark.parametrize("is_taken", [False, True])
def test_an_epoch_is_begun_by_one_recovery(is_taken: bool) -> None:
    storage = MemoryStorage()
    epochs.begin(storage, 2, "store", 0)
    with refused(is_taken, Fenced, "another recovery"):
        epochs.begin(storage, 2 if is_taken else 3, "store", 0)
    assert epochs.newest(storage) == (2 if is_taken else 3)


def test_slots_below_a_recovery_from_objects_are_void() -> None:
    first = first_of(2)
    assert list(reader.list_journal(journal((1, 1), (first, 2), (first + 1, 2))).slots) == [first, first + 1]


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
    storage, data = MemoryStorage(), frames.frame(pb.CheckpointPart(version=RECORD_VERSION, attempt="a"))
    item = storage.put(f"{checkpoint_name(1)}.part", BufferSource(data))
    with refused(not same, DataLoss, "checksum"):
        assert reader.read_part(storage, ListedPart((item.name,), crc32c(data) ^ (not same))).attempt == "a"


def test_a_listed_size_is_checked_before_memory_is_taken() -> None:
    item = StoredObject(slot_name(1), frames.MAX_OBJECT_BYTES + 1, "e", 0)
    with pytest.raises(DataLoss, match="at most"):
        reader.read_entry(MemoryStorage(), item)


RECORD = BatchRecord(application="app", batch="7", job="0" * 32)
MARKER = batch_markers.marker_name(RECORD, 1)
PART = frames.frame(pb.CheckpointPart(version=RECORD_VERSION, attempt="a"))

READS: dict[str, tuple[str, bytes, Callable[[Any, StoredObject], object]]] = {
    "entry": (
        slot_name(1),
        frames.frame(pb.JournalEntry(version=RECORD_VERSION, store_id="s", slot=1)),
        reader.read_entry,
    ),
    "manifest": (
        checkpoint_name(1),
        frames.frame(pb.CheckpointManifest(version=RECORD_VERSION, store_id="s", slot=1)),
        reader.read_manifest,
    ),
    "part": (
        f"{checkpoint_name(1)}.part",
        PART,
        lambda storage, item: reader.read_part(storage, ListedPart((item.name,), crc32c(PART))),
    ),
    "marker": (
        MARKER,
        frames.frame(pb.BatchMarker(version=RECORD_VERSION, application="app", batch="7")),
        lambda storage, item: batch_markers.read_marker(storage, item.name),
    ),
}


@pytest.mark.parametrize("wrong_reads", [1, 2])
@pytest.mark.parametrize("kind", READS)
def test_a_single_wrong_transfer_is_no_damage(kind: str, wrong_reads: int) -> None:
    storage, (name, data, read) = ScriptedStorage(), READS[kind]
    item = storage.put(name, BufferSource(data))
    storage.damage(-1, on=range(1, 1 + wrong_reads))
    with refused(wrong_reads > 1, DataLoss):
        assert read(storage, item)


@pytest.mark.parametrize("wrong", ["nothing", "versions", "forgotten", "application"])
def test_a_marker_is_of_its_name_and_of_possible_versions(wrong: str) -> None:
    storage = MemoryStorage()
    marker = pb.BatchMarker(
        version=RECORD_VERSION,
        application="other" if wrong == "application" else "app",
        batch="7",
        committed=[pb.VersionRange(first=1, last=MAX_BATCH + (wrong == "versions"))],
        forgotten=MAX_BATCH + (wrong == "forgotten"),
    )
    storage.put(MARKER, BufferSource(frames.frame(marker)))
    with refused(wrong != "nothing", DataLoss):
        assert batch_markers.read_marker(storage, MARKER)[1] == "app"


# Replaying


@pytest.mark.parametrize(("gap", "skips"), [(-1, 0), (0, 0), (1, 0), (0, 1)])
def test_a_change_is_applied_once_and_a_journal_has_every_one(store: TestStore, gap: int, skips: int) -> None:
    with store.metadata.write_replayed() as txn:
        replay.apply(txn, pb.Change(sequence=1, directory_removed=999))
        last = replay.applied(txn)
        assert not replay.apply(txn, pb.Change(sequence=last, directory_removed=999))
        assert replay.apply(txn, pb.Change(sequence=last + 1, directory_removed=999))
        first = last + 2 + gap
        entry = pb.JournalEntry(
            version=RECORD_VERSION,
            store_id=txn.store.store_id,
            store_epoch=txn.store.store_epoch,
            slot=txn.store.journal.next_slot,
            attempt="1" * 32,
            first_sequence=first,
            changes=[pb.Change(sequence=number, directory_removed=999) for number in (first, first + 1 + skips)],
        )
        with refused(gap > 0 or skips, DataLoss, "gap: expected change" if gap > 0 else "not consecutive"):
            assert replay.apply_entry(txn, entry)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_an_id_that_was_seen_is_not_handed_out(store: TestStore, more: int) -> None:
    with store.metadata.write_replayed() as txn:
        following = txn.store.next_id
        replay.see_id(txn, following + more)
        assert txn.allocate_id() == following + max(0, more + 1)


# Publishing


def test_entries_end_at_their_size(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "ENTRY_BYTES", 400)
    for number in range(40):
        store.append(f"d/segment{number}", b"abcd", seal=True)
    with store.holding() as work:
        assert work.publish() > 10
    for stored in store.cold.list("journal/"):
        entry = frames.parse_entry(read_small(store.cold, stored.name), stored.name)
        for change in entry.changes:
            change.ClearField("sequence")  # as in the queue, whose rows are measured
        assert sum(change.ByteSize() for change in entry.changes) <= 400


@pytest.mark.parametrize("attempt", ["a", "b"])
def test_an_entry_counts_as_published_only_under_its_own_intent(store: TestStore, attempt: str) -> None:
    intent = PublishIntent(slot=1, first_sequence=1, last_sequence=1, attempt="a")
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, intent=replace(intent, attempt=attempt)))
    with refused(attempt != "a", Conflict, "another process published"):
        Publisher(store.metadata, store.cold)._confirm(intent)


@pytest.mark.parametrize("own_store", [True, False])
@pytest.mark.parametrize("older", [0, 1])
@pytest.mark.parametrize("attempt", ["a", "b"])
def test_an_entry_is_void_of_an_older_epoch_and_ones_own_by_its_attempt(
    store: TestStore, own_store: bool, older: int, attempt: str
) -> None:
    with store.metadata.read() as txn:
        ours = txn.store
    store_id = ours.store_id if own_store else new_id()
    entry = pb.JournalEntry(store_id=store_id, store_epoch=ours.store_epoch - older, attempt=attempt)
    assert publish._is_void(entry, ours) is (own_store and older > 0)
    assert publish._is_own(entry, PublishIntent(attempt="a"), ours) is (own_store and not older and attempt == "a")


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


def test_no_slot_is_made_in_a_place_that_does_not_show_ours(store: TestStore) -> None:
    store.settle()
    store.append("t", b"ab", seal=True)
    empty = MemoryStorage()
    with pytest.raises(WrongColdTier):
        Publisher(store.metadata, empty).publish()
    assert not list(empty.list(""))


@pytest.mark.parametrize("marked", ["a", "b"])
def test_a_place_is_marked_for_one_store(marked: str) -> None:
    storage = MemoryStorage()
    store_mark.write_mark(storage, StoreMark(marked * 32))
    with refused(marked != "a", AlreadyExists):
        store_mark.write_mark(storage, StoreMark("a" * 32))


@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_is_published_with_its_own_change(store: TestStore, more: int) -> None:
    with store.metadata.read() as txn:
        sequence = txn.store.journal.published_sequence + more
    assert driver._is_published(cast(Any, store), sequence) is (more == 0)


# Checkpoints


def names(storage: MemoryStorage) -> set[str]:
    return {item.name for item in storage.list("")}


def test_two_checkpoints_and_what_follows_the_older_one_are_kept(store: TestStore) -> None:
    storage = MemoryStorage()
    of = {slot: [slot_name(slot), checkpoint_name(slot), part_name(slot, "a" * 32, 0)] for slot in (4, 5, 6)}
    for name in [name for each in of.values() for name in each]:
        storage.put(name, BufferSource(b""))
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, previous_checkpoint_slot=5))
    checkpointer = Checkpointer(store.metadata, storage, Publisher(store.metadata, storage), 1)
    assert {item.name for item in checkpointer.superseded()} == {*of[4], slot_name(5)}


def test_a_crashed_checkpoint_takes_its_own_parts_alone(store: TestStore) -> None:
    storage = MemoryStorage()
    for attempt in ("a" * 32, "b" * 32):
        storage.put(part_name(5, attempt, 0), BufferSource(b""))
    checkpointer = Checkpointer(store.metadata, storage, Publisher(store.metadata, storage), 1)
    checkpointer._delete_parts(CheckpointIntent(attempt="a" * 32, slot=5))
    assert names(storage) == {part_name(5, "b" * 32, 0)}
