"""The journal: slots, fences, crashes between create and confirm, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import AlreadyExists, DataLoss, Fenced, Unavailable
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, Source, StoredObject
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.journal import publish
from tierfs.engine.journal.names import checkpoint_name, checkpoint_slot, entry_slot, part_of, slot_name
from tierfs.engine.journal.objects import read_small
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import changes as journal
from tierfs.engine.metadata import directories, frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor


def publisher(store: TestStore) -> Publisher:
    return Publisher(store.metadata, store.cold)


def slots(store: TestStore) -> list[int]:
    found = (entry_slot(item.name) for item in store.cold.list("journal/"))
    return [slot for slot in found if slot is not None]


def entries(store: TestStore) -> list[pb.JournalEntry]:
    names = [slot_name(slot) for slot in slots(store)]
    return [frames.parse_entry(read_small(store.cold, name), name) for name in names]


def put_entry(store: TestStore, slot: int, *, epoch: int, attempt: str = "x") -> None:
    entry = pb.JournalEntry(version=1, store_id=store.metadata.store_id, store_epoch=epoch, slot=slot, attempt=attempt)
    store.cold.put(slot_name(slot), BufferSource(frames.frame(entry)))


def test_the_first_entry_begins_the_epoch_and_names_every_change_once(store: TestStore) -> None:
    store.append("a/s", b"abcdefgh", seal=True)
    store.offload()
    found = entries(store)
    assert found[0].changes[0].owner_begins.store_epoch == 1
    sequences = [change.sequence for entry in found for change in entry.changes]
    assert sequences == list(range(1, len(sequences) + 1))
    links = [change.cold_link for entry in found for change in entry.changes if change.HasField("cold_link")]
    assert [(chunk.start_offset, chunk.length) for link in links for chunk in link.chunks] == [(0, 8)]
    assert [run.object_id for link in links for run in link.checksums] == [link.objects[0].id for link in links]


@pytest.mark.parametrize("limit", [2, 3, 4, 5])
def test_no_entry_ends_between_an_unlink_and_its_link(
    store: TestStore, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("s", b"abcdefgh" * 3, seal=True)
    store.offload()
    monkeypatch.setattr(publish, "_ENTRY_CHANGES", limit)
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "s")
        editor = Editor(txn, segment)
        for start in (2, 10, 18):
            editor.lose(ByteRange(start, start + 2))
        editor.put(journaled=True)
    assert publisher(store).publish() > 1
    kinds = [[change.WhichOneof("body") for change in entry.changes] for entry in entries(store)]
    assert sum(kind.count("cold_unlink") for kind in kinds) == 3
    assert [kind for kind in kinds if kind[-1] == "cold_unlink"] == []


def test_another_owners_slot_fences(store: TestStore) -> None:
    put_entry(store, 1, epoch=2)
    with pytest.raises(Fenced, match="epoch 2"):
        publisher(store).publish()
    with pytest.raises(Fenced):
        publisher(store).publish()
    with pytest.raises(Fenced, match="is read-only"):
        store.append("s", b"x")


def test_metadata_from_an_old_backup_is_refused(store: TestStore) -> None:
    publisher(store).publish()
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, next_slot=1, published_sequence=0))
        journal.segment_removed(txn, 99)
    with pytest.raises(Fenced, match="old backup") as caught:
        publisher(store).publish()
    assert "recover" in (caught.value.remedy or "")


def test_a_fenced_store_changes_nothing_in_the_bucket(store: TestStore) -> None:
    store.append("s", b"abcd")
    put_entry(store, 1, epoch=2)
    with pytest.raises(Fenced):
        publisher(store).publish()
    before = [found.name for found in store.cold.list("")]
    for verb in (store.offload, store.evict):
        with pytest.raises(Fenced):
            verb()
    assert [found.name for found in store.cold.list("")] == before


def test_damage_in_the_journal_is_named(store: TestStore) -> None:
    store.cold.put(slot_name(1), BufferSource(b"TFSJ garbage"))
    with pytest.raises(DataLoss, match=slot_name(1)):
        publisher(store).publish()


def test_hostile_sizes_are_refused_before_reading(store: TestStore) -> None:
    store.cold.put(slot_name(1), BufferSource(bytes(9 << 20)))
    with pytest.raises(DataLoss, match="at most"):
        publisher(store).publish()


def test_checkpoints_hold_the_state_and_retire_old_slots(tmp_path: Path) -> None:
    settings = OffloadSettings(checkpoint_entries=3)
    with open_test_store(tmp_path / "s", settings=settings) as store:
        for number in range(12):
            store.append(f"d/s{number}", b"abcd", seal=True)
            store.offload()
        found = [item.name for item in store.cold.list("journal/")]
        checkpoints = [slot for name in found if (slot := checkpoint_slot(name)) is not None]
        assert len(checkpoints) == 2
        assert min(slots(store)) == checkpoints[0] + 1
        newest = frames.parse_manifest(read_small(store.cold, checkpoint_name(checkpoints[1])), "manifest")
        parts = [name for name in found if part_of(name) == (newest.slot, newest.attempt)]
        assert len(parts) == newest.parts
        changes = [c for name in parts for c in frames.parse_part(read_small(store.cold, name), name).changes]
        with store.metadata.read() as txn:
            live = [change.SerializeToString(deterministic=True) for change in journal.state_changes(txn)]
        assert set(change.SerializeToString(deterministic=True) for change in changes) <= set(live) | {b""}
        assert sum(change.HasField("segment") for change in changes) >= 9


def parts(store: TestStore) -> set[str]:
    return {part[1] for item in store.cold.list("journal/") if (part := part_of(item.name))}


@pytest.mark.parametrize("keeps_metadata", [True, False])
def test_a_manifest_that_landed_behind_a_503_is_our_own(tmp_path: Path, keeps_metadata: bool) -> None:
    class Landing(MemoryStorage):
        """Stores a manifest and answers 503; may drop user metadata, as plain copies do."""

        failed = False

        def put(
            self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
        ) -> StoredObject:
            kept = metadata if keeps_metadata else None
            stored = super().put(name, source, metadata=kept, create_only=create_only)
            if checkpoint_slot(name) is not None and not self.failed:
                self.failed = True
                raise Unavailable("503")
            return stored

    storage = ResilientStorage(Landing(), attempts=3)
    with open_test_store(tmp_path / "landing", cold=storage) as store:
        store.append("s", b"x")
        assert store.cold_work().checkpointer.checkpoint() == 1
        with store.metadata.read() as txn:
            assert txn.store.journal.checkpoint_slot == 1
        assert len(parts(store)) == 1


def test_a_manifest_of_another_attempt_is_in_the_way(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.cold_work().publish()
    checkpointer = store.cold_work().checkpointer
    written = type(checkpointer)._write_parts

    def and_another_comes(self: Any, intent: Any, *others: Any) -> pb.CheckpointManifest:
        other = pb.CheckpointManifest(version=1, store_id=store.metadata.store_id, slot=intent.slot, attempt="other")
        store.cold.put(checkpoint_name(intent.slot), BufferSource(frames.frame(other)))
        return written(self, intent, *others)

    monkeypatch.setattr(type(checkpointer), "_write_parts", and_another_comes)
    with pytest.raises(AlreadyExists):
        checkpointer.checkpoint()


def test_the_store_knows_since_when_changes_wait_and_when_the_last_were_published(store: TestStore) -> None:
    publisher(store).publish()
    published_ms = store.clock.now_ms()
    store.clock.advance(60)
    store.append("s", b"x")
    store.clock.advance(60)
    store.append("t", b"x")
    with store.metadata.read() as txn:
        state = txn.store.journal
    assert (state.published_ms, state.queued_ms) == (published_ms, published_ms + 60_000)
    publisher(store).publish()
    with store.metadata.read() as txn:
        state = txn.store.journal
    assert (state.published_ms, state.queued_ms) == (published_ms + 120_000, 0)
