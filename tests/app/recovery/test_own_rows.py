"""A takeover begins with the replica's own rows, which are those that a rebuild from the journal has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.app.recovery.test_follow import follower, following
from tests.app.recovery.test_recover import damage
from tests.engine.journal.replaying import check_store, view
from tests.stores import IN_MEMORY, LOCATION, TestStore, open_test_store
from tierfs.app.recovery import recover
from tierfs.app.recovery.from_journal import Rebuilder, Rebuilt
from tierfs.app.recovery.own_rows import owner_rows
from tierfs.base.bytes.progress import Meter, unseen
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal import levels, reader
from tierfs.engine.journal.names import checkpoint_name, slot_name
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.tables import GARBAGE, LOCATIONS, SEGMENTS


@pytest.fixture(params=["small states", "levels"])
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[TestStore]:
    """A store with something of everything, of which a part is not cold and a part is to be deleted."""
    if request.param == "levels":
        monkeypatch.setattr(levels, "SMALL_BYTES", 0)
        monkeypatch.setattr(levels, "MOST_WRITTEN", 0)
    with open_test_store(tmp_path / "owner", cold=MemoryStorage(), settings=OffloadSettings(grace_s=3600)) as store:
        change(store, "first")
        yield store


def change(store: TestStore, name: str) -> None:
    """Seal, grow, truncate, remove; leave a sealed and an open segment with bytes that are not cold."""
    for each in ("sealed", "open", "half", "gone"):
        store.append(f"{name}/{each}", b"abcdefgh", seal=each in ("sealed", "gone"))
    store.offload()
    store.append(f"{name}/half", b"ijkl", seal=True)
    store.append(f"{name}/open", b"ijkl")
    store.engine.delete(f"{name}/gone", recursive=False, cold_due_ms=store.clock.now_ms() + 3_600_000)
    store.engine.truncate(f"{name}/open", 4, cold_due_ms=store.clock.now_ms() + 3_600_000)
    store.cold_work().publish()


def own(replica: TestStore, owner: TestStore, path: Path) -> Rebuilt | None:
    listing = reader.list_journal(owner.cold)
    return owner_rows(replica.metadata, path, owner.cold, IN_MEMORY, listing, Meter(unseen))


def check_same(replica: TestStore, owner: TestStore, path: Path) -> None:
    found = own(replica, owner, path / "own")
    assert found is not None
    rebuilt = Rebuilder(path / "rebuilt", owner.cold, IN_MEMORY, replica.clock, Meter(unseen)).rebuild(
        reader.list_journal(owner.cold)
    )
    assert (found.checkpoint_slot, found.checkpoint_sequence) == (rebuilt.checkpoint_slot, rebuilt.checkpoint_sequence)
    with (
        closing(found.metadata) as own_metadata,
        closing(rebuilt.metadata) as rebuilt_metadata,
        own_metadata.read() as ours,
        rebuilt_metadata.read() as theirs,
    ):
        check_store(ours)
        assert view(ours) == view(theirs)
        assert list(ours.scan(GARBAGE)) == list(theirs.scan(GARBAGE))
        assert list(ours.scan(LOCATIONS)) == list(theirs.scan(LOCATIONS))
        lengths = [{key: row.length for key, row in txn.scan(SEGMENTS)} for txn in (ours, theirs)]
        assert lengths[0] == lengths[1]
        assert not any(row.owner_view.length for _, row in ours.scan(SEGMENTS))
        for name in ("next_id", "next_outbox", "next_garbage", "store_epoch", "journal", "clock_seen", "replica"):
            assert getattr(ours.store, name) == getattr(theirs.store, name), name


def test_the_rows_of_a_replica_are_those_of_a_rebuild(owner: TestStore, tmp_path: Path) -> None:
    """At the slot that the replica was made with, after more slots, and after checkpoints."""
    with following(owner, tmp_path / "replica") as replica:
        for number in range(4):
            (tmp_path / str(number)).mkdir()
            check_same(replica, owner, tmp_path / str(number))
            if number:
                owner.cold_work().checkpointer.checkpoint()
            change(owner, f"more{number}")
            follower(replica).refresh()
            assert replica.segment(f"more{number}/half").length == 8, "the replica shows no byte that is not cold"


def test_a_void_entry_has_no_garbage(owner: TestStore, tmp_path: Path) -> None:
    """It is of a previous owner, which has not noticed yet that its objects are another one's."""
    (name, *_) = [found.name for found in owner.cold.list("segments/")]
    with recovered(tmp_path / "new", owner.cold) as found:
        new = found.store
        with new.metadata.read() as txn:
            slot = txn.store.journal.next_slot
        row = pb.GarbageRecord(version=1, sequence=999, due_ms=1, tier=Tier.COLD, location_id=LOCATION, name=name)
        void = pb.JournalEntry(version=1, store_id=new.metadata.store_id, store_epoch=1, slot=slot, attempt="0" * 32)
        void.first_sequence = void.last_sequence = 1
        void.changes.add(sequence=1, garbage=row)
        owner.cold.put(slot_name(slot), BufferSource(frames.frame(void)))
        change(new, "after")
        with following(new, tmp_path / "replica") as replica:
            check_same(replica, new, tmp_path)


def test_where_rows_of_a_replica_cannot_be_used_all_is_rebuilt(owner: TestStore, tmp_path: Path) -> None:
    with following(owner, tmp_path / "replica") as replica, following(owner, tmp_path / "behind") as behind:
        for number in range(2):
            change(owner, f"more{number}")
            slot = owner.cold_work().checkpointer.checkpoint()
        assert own(behind, owner, tmp_path / "one") is None, "slots after its last one are deleted"
        follower(replica).refresh()
        damage(owner.cold, checkpoint_name(slot))
        assert own(replica, owner, tmp_path / "two") is None
        assert not (tmp_path / "two").exists()
        listing = reader.list_journal(owner.cold)
        taken = recover.owned(
            tmp_path / "taken", owner.cold, IN_MEMORY, replica.clock, unseen, listing, replica=replica.metadata
        )
        with closing(taken.metadata), taken.metadata.read() as txn:
            check_store(txn)
            assert txn.store.store_epoch == 2
        assert len(taken.warnings) == 1
