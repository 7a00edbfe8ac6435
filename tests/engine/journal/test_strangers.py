"""Objects in `journal/` that no owner wrote: they stop nobody who can do without them, and errors name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import follower, following
from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import cold_findings
from tierfs.base.words.errors import DataLoss, Fenced
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal import epochs
from tierfs.engine.journal.names import (
    MAX_SLOT,
    checkpoint_name,
    checkpoint_slot,
    entry_slot,
    part_name,
    part_of,
    slot_name,
)
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH, epoch_of
from tierfs.engine.metadata.store import new_id
from tierfs.upkeep.check.findings import Kind, Severity

STRANGERS = (
    "journal/99999999999999999999",
    f"journal/{2**63:020d}",
    slot_name(MAX_SLOT + 1),
    slot_name(0),
    "journal/" + "\u0663" * 20,
    "journal/checkpoint-99999999999999999999",
    "journal/checkpoint-" + "\u0663" * 20,
    "journal/checkpoint-99999999999999999999.part-" + "0" * 32 + "-000000",
    "journal/00000000000000000003.bak",
    "journal/readme.txt",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=MemoryStorage()) as opened:
        opened.append("s", b"abcdefgh", seal=True)
        opened.offload()
        yield opened


def put(store: TestStore, name: str, data: bytes = b"x") -> None:
    store.cold.put(name, BufferSource(data))


def test_only_numbers_that_an_owner_can_reach_are_slots() -> None:
    assert epoch_of(MAX_SLOT) == MAX_EPOCH
    assert [entry_slot(slot_name(slot)) for slot in (0, 1, MAX_SLOT, MAX_SLOT + 1)] == [None, 1, MAX_SLOT, None]
    assert [checkpoint_slot(checkpoint_name(slot)) for slot in (1, MAX_SLOT + 1)] == [1, None]
    assert part_of(part_name(MAX_SLOT + 1, "a" * 32, 0)) is None
    assert all(entry_slot(name) is checkpoint_slot(name) is part_of(name) is None for name in STRANGERS)


def test_strangers_in_the_journal_stop_nobody_and_check_lists_them(store: TestStore, tmp_path: Path) -> None:
    with following(store, tmp_path / "replica") as replica:
        for name in STRANGERS:
            put(store, name)
        store.append("t", b"ijkl", seal=True)
        store.offload()
        follower(replica).refresh()
        assert replica.read("t") == b"ijkl"
    notes = [finding for finding in cold_findings(store) if finding.kind is Kind.JOURNAL]
    assert [(note.severity, note.subject) for note in notes] == [(Severity.NOTE, min(STRANGERS))]
    assert f"{len(STRANGERS)} objects" in notes[0].message
    with store.holding() as work:
        work.checkpointer.checkpoint()
    with recovered(tmp_path / "again", store.cold) as found:
        assert found.store.read("t") == b"ijkl"
    assert {item.name for item in store.cold.list("journal/")} >= set(STRANGERS)


def publish(store: TestStore, _: Path) -> None:
    store.clock.advance(60)  # type: ignore[attr-defined]
    store.append("t", b"ijkl", seal=True)
    store.offload()


def recover(store: TestStore, path: Path) -> None:
    with recovered(path, store.cold):
        pass


def refresh(store: TestStore, path: Path) -> None:
    with following(store, path) as replica:
        follower(replica).refresh()


@pytest.mark.parametrize("read", [publish, recover, refresh])
@pytest.mark.parametrize("slots_later", [0, 5])
def test_an_unreadable_entry_is_named_with_what_to_do(
    store: TestStore, tmp_path: Path, read: Callable[[TestStore, Path], None], slots_later: int
) -> None:
    newest = max(slot for item in store.cold.list("journal/") if (slot := entry_slot(item.name)) is not None)
    name = slot_name(newest + 1 + slots_later)
    put(store, name)
    with pytest.raises(DataLoss) as refused:
        read(store, tmp_path / "other")
    assert name in str(refused.value)
    assert "if tierfs did not write it, remove it" in (refused.value.remedy or "")


def test_an_impossible_change_is_named_by_its_slot_with_what_to_do(store: TestStore, tmp_path: Path) -> None:
    with store.metadata.read() as txn:
        slot, sequence = txn.store.journal.next_slot, txn.store.journal.published_sequence + 1
    bad = pb.Change(sequence=sequence, segment=pb.SegmentRecord(version=1, id=900, parent_id=1, inode=901, name=".."))
    entry = pb.JournalEntry(
        version=1, store_id=store.metadata.store_id, store_epoch=1, slot=slot, first_sequence=sequence, changes=[bad]
    )
    put(store, slot_name(slot), frames.frame(entry))
    for read in (recover, refresh):
        with pytest.raises(DataLoss) as refused:
            read(store, tmp_path / read.__name__)
        assert slot_name(slot) in str(refused.value)
        assert frames.RESTORE in (refused.value.remedy or "")


NEW_STORE = new_id()


def test_the_newest_epoch_that_began() -> None:
    storage = MemoryStorage()
    assert epochs.newest(storage) == 0
    for epoch in (2, 17, MAX_EPOCH, 3):
        epochs.begin(storage, epoch, NEW_STORE, 0)
        assert epochs.newest(storage) == max(int(item.name[-10:]) for item in storage.list(epochs.EPOCHS_PREFIX))


@pytest.mark.parametrize("name", ["2", f"{MAX_EPOCH + 1:010d}", "9" * 10, "9" * 11, "٢" * 10, "0000000002/x", "x"])
def test_what_no_owner_writes_is_ignored(name: str) -> None:
    storage = MemoryStorage()
    storage.put(f"{epochs.EPOCHS_PREFIX}{name}", BufferSource(b"x"))
    assert epochs.newest(storage) == 0


def test_an_epoch_begins_once() -> None:
    storage = MemoryStorage()
    epochs.begin(storage, 2, NEW_STORE, 0)
    with pytest.raises(Fenced, match="with epoch 2"):
        epochs.begin(storage, 2, NEW_STORE, 0)
