"""Replicas: whatever the owner does, a replica holds what the bucket holds, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import verbs
from tests.app.batches.batch_writes import Driver
from tests.app.recovery.test_recover import damage
from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ScriptedStorage
from tests.faults.two_owners import bucket as objects
from tests.mount.conftest import append
from tests.pipeline.reader.reading import store_of
from tests.stores import IN_MEMORY, LOCATION, TestStore, open_test_store
from tierfs.app.recovery import replica, replica_rows
from tierfs.app.recovery.from_journal import Rebuilder
from tierfs.app.recovery.replica import LIST_EVERY_S, Follower
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.errors import DataLoss, Fenced, PermissionDenied, Unavailable, WrongColdTier
from tierfs.base.words.types import ROOT_DIRECTORY, EntryKind, LocationId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource, StoredObject
from tierfs.engine.journal import reader
from tierfs.engine.journal.names import left_name, slot_name
from tierfs.engine.journal.reader import JournalListing, entries_behind
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord, TouchRecord
from tierfs.engine.metadata.tables import GARBAGE, LOCATIONS, TOUCHES

ARCHIVE = "file:///archive"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "owner", cold=ScriptedStorage(MemoryStorage())) as store:
        store.cold_work().publish()
        yield store


@contextmanager
def following(owner: TestStore, path: Path) -> Iterator[TestStore]:
    """A replica of the owner's bucket as it is now."""
    path.mkdir()
    rebuilder = Rebuilder(path / "metadata", owner.cold, IN_MEMORY, owner.clock, Meter())
    metadata = rebuilder.rebuild(reader.list_journal(owner.cold)).metadata
    replica_rows.become_replica(metadata)
    store = TestStore.around(path, metadata, owner.cold, owner.settings)
    try:
        yield store
    finally:
        store.close()


def follower(store: TestStore) -> Follower:
    return Follower(store.metadata, store.cold, IN_MEMORY)


def segments(store: TestStore) -> dict[str, SegmentRecord]:
    with store.metadata.read() as txn:
        return dict(directories.segments_below(txn, Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY), ""))


def cold_bytes(store: TestStore) -> dict[str, tuple[int, bytes]]:
    """Start and bytes of every segment up to the first gap of its cold chain."""
    found = {}
    for name, segment in segments(store).items():
        end = segment.start_offset
        with store.metadata.read() as txn:
            for chunk in chains.chunks(txn, segment.id, Tier.COLD, end):
                if chunk.start_offset > end:
                    break
                end = min(chunk.end_offset, segment.length)
        found[name] = (segment.start_offset, store.read(name, Tier.COLD)[segment.start_offset : end])
    return found


def shown(store: TestStore) -> dict[str, tuple[int, bytes]]:
    """The same as a replica shows it: from its records alone."""
    return {
        name: (segment.start_offset, store.read(name, Tier.COLD)[segment.start_offset : segment.length])
        for name, segment in segments(store).items()
    }


def test_nothing_new_costs_one_listing(owner: TestStore, tmp_path: Path) -> None:
    owner.append("s", b"abcdefgh")
    owner.offload()
    owner.cold_work().checkpointer.checkpoint()
    flaky = owner.cold
    assert isinstance(flaky, ScriptedStorage)
    with following(owner, tmp_path / "replica") as store:
        committed = store.metadata.last_transaction_id()
        flaky.calls.clear()
        found = follower(store).refresh()
        assert (found.entries, found.started_over) == (0, False)
        assert dict(flaky.calls) == {"list": 1}
        assert store.metadata.last_transaction_id() == committed


def advance(store: TestStore, seconds: float) -> None:
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(seconds)


def test_a_minute_at_rest_costs_one_listing(owner: TestStore, tmp_path: Path) -> None:
    """The next slot has a known name, and a look at it costs a twelfth of a listing on S3."""
    owner.append("s", b"abcdefgh")
    owner.offload()
    flaky = owner.cold
    assert isinstance(flaky, ScriptedStorage)
    with following(owner, tmp_path / "replica") as store:
        follows = follower(store)
        flaky.calls.clear()
        for _ in range(36):
            assert follows.refresh().entries == 0
            advance(owner, 5)
        assert dict(flaky.calls) == {"list": 3, "stat": 33}
        owner.append("s", b"ijkl")
        owner.offload()
        flaky.calls.clear()
        assert follows.refresh().entries > 0, "what is new is applied at the next look"
        assert (flaky.calls["list"], store.segment("s").length) == (1, 12)


def test_a_refresh_that_failed_is_followed_by_a_listing(owner: TestStore, tmp_path: Path) -> None:
    owner.append("s", b"abcdefgh")
    owner.offload()
    flaky = owner.cold
    assert isinstance(flaky, ScriptedStorage)
    with following(owner, tmp_path / "replica") as store:
        follows = follower(store)
        flaky.calls.clear()
        for verb in ("list", "stat"):
            flaky.fail(verb, Unavailable("away"))
            with pytest.raises(Unavailable):
                follows.refresh()
            follows.refresh()
        # A policy that allows listings of some prefixes answers so to a name that does not exist.
        flaky.fail("stat", PermissionDenied("403"))
        assert follows.refresh().entries == 0
        assert flaky.calls["list"] == 4


def test_what_only_a_listing_shows_is_seen_within_a_minute(owner: TestStore, tmp_path: Path) -> None:
    """The note of a move has no slot of its own, and slots of a checkpoint that was passed are deleted."""
    owner.append("s", b"abcdefgh")
    owner.offload()
    with following(owner, tmp_path / "replica") as store:
        follows = follower(store)
        applied = follows.refresh().slot
        owner.cold.put(left_name(applied), BufferSource(b"{}"))
        advance(owner, LIST_EVERY_S / 2)
        assert follows.refresh().entries == 0
        advance(owner, LIST_EVERY_S / 2)
        for _ in range(2):  # and again at the next look
            with pytest.raises(WrongColdTier):
                follows.refresh()
    owner.cold.delete(left_name(applied))
    with following(owner, tmp_path / "other") as store:
        follows = follower(store)
        follows.refresh()
        for _ in range(3):
            owner.append("s", b"ijkl")
            owner.offload()
            owner.cold_work().checkpointer.checkpoint()
        advance(owner, LIST_EVERY_S)
        assert follows.refresh().started_over
        assert store.segment("s").length == 20


def test_a_segment_ends_at_the_first_gap_and_is_open_until_all_of_it_is_cold(owner: TestStore, tmp_path: Path) -> None:
    owner.append("s", b"abcdefgh")
    owner.offload()
    owner.append("s", b"ijklmnop", seal=True)
    owner.cold_work().publish()
    with following(owner, tmp_path / "replica") as store:
        assert (store.segment("s").length, store.segment("s").sealed) == (8, False)
        owner.offload()
        follower(store).refresh()
        assert (store.segment("s").length, store.segment("s").sealed) == (16, True)
        assert store.segment("s").sealed_ms == owner.segment("s").sealed_ms
        assert store.read("s", Tier.COLD) == b"abcdefghijklmnop"


def touches(store: TestStore, after: int) -> list[TouchRecord]:
    with store.metadata.read() as txn:
        return [touch for _, touch in txn.scan(TOUCHES, tables.u64(after))]


def test_a_replica_that_was_left_behind_starts_over_and_touches_only_what_changed(
    owner: TestStore, tmp_path: Path
) -> None:
    for name in ("same", "more", "gone"):
        owner.append(name, b"abcdefgh", seal=name == "same")
    owner.offload()
    with following(owner, tmp_path / "replica") as store:
        before = segments(store)
        with store.metadata.read() as txn:
            seen = txn.store.next_change
        owner.append("more", b"ijkl")
        owner.append("new", b"x")
        owner.offload()
        owner.cold_work().checkpointer.checkpoint()
        owner.engine.delete("gone", recursive=False, cold_due_ms=owner.clock.now_ms())
        owner.settle()
        owner.cold_work().checkpointer.checkpoint()
        owner.append("after", b"yz")
        owner.offload()
        found = follower(store).refresh()
        assert found.started_over
        assert shown(store) == cold_bytes(owner)
        after = segments(store)
        assert after["same"] == before["same"]
        assert after["more"].generation > before["more"].generation
        changed = touches(store, seen)
        assert before["same"].inode not in {touch.inode for touch in changed}
        assert {touch.name for touch in changed if touch.name} == {"gone", "new", "after"}
        assert {before["more"].inode, before["gone"].inode} <= {touch.inode for touch in changed}
        assert not list(store.path.glob("metadata.*"))
        assert follower(store).refresh().entries == 0
        owner.append("more", b"!!!!")
        owner.offload()
        assert follower(store).refresh().entries > 0
        assert shown(store) == cold_bytes(owner)


def test_a_replica_that_starts_over_knows_the_places_adopted_meanwhile(owner: TestStore, tmp_path: Path) -> None:
    with following(owner, tmp_path / "replica") as store:
        with owner.metadata.write() as txn:
            adopted = policies.register_foreign(txn, LocationRecord(id=LocationId(0), url=ARCHIVE, writable=False))
        for name in "ab":  # slots up to the newest checkpoint but one are void
            owner.append(name, b"x")
            owner.offload()
            owner.cold_work().checkpointer.checkpoint()
        assert follower(store).refresh().started_over
        with store.metadata.read() as txn:
            assert {row.id: row.url for _, row in txn.scan(LOCATIONS)} == {
                LOCATION: IN_MEMORY.record.url,
                adopted.id: ARCHIVE,
            }


def listing(slots: list[int], checkpoints: list[int]) -> JournalListing:
    def item(slot: int) -> StoredObject:
        return StoredObject(slot_name(slot), 1, "etag")

    return JournalListing({slot: item(slot) for slot in slots}, {slot: item(slot) for slot in checkpoints})


def test_a_slot_that_came_while_the_journal_was_listed_is_not_missing() -> None:
    """Slots are listed before checkpoints, so a new one may be seen under its checkpoint only."""
    found = listing([500], [501])
    assert [item.name for item in entries_behind(MemoryStorage(), found, 499, 1)] == [slot_name(500)]
    with pytest.raises(DataLoss, match="0501 is missing"):
        entries_behind(MemoryStorage(), found, 499, 1, at_least=501)


def test_a_replica_changes_nothing_and_names_the_way_out(owner: TestStore, tmp_path: Path) -> None:
    owner.append("s", b"abcd")
    owner.offload()
    owner.engine.delete("s", recursive=False, cold_due_ms=owner.clock.now_ms())
    owner.append("t", b"abcd")
    owner.cold_work().publish()
    with following(owner, tmp_path / "replica") as store:
        before = objects(owner.cold)

        def set_policy() -> None:
            with store.metadata.write() as txn:
                policies.change(txn, "", put_settings={"chunk_bytes": "16"})

        for verb in (
            lambda: store.append("t", b"x"),
            lambda: store.append("new", b"x"),
            lambda: store.engine.seal("t"),
            lambda: store.engine.delete("t", recursive=False, cold_due_ms=0),
            set_policy,
            store.offload,
            store.evict,
            store.collect,
            store.settle,
            lambda: store.cold_work().orphans(grace_s=0),
            Driver(store).begin,
        ):
            with pytest.raises(Fenced, match="replica") as caught:
                verb()
            assert "tierfs standby --now" in (caught.value.remedy or "")
        assert objects(owner.cold) == before
        with store.metadata.read() as txn:
            assert txn.count(GARBAGE.name) == 0


def test_a_missing_slot_is_damage_and_the_replica_stays_as_it_was(owner: TestStore, tmp_path: Path) -> None:
    owner.append("s", b"abcd")
    owner.offload()
    with following(owner, tmp_path / "replica") as store:
        before = shown(store)
        for name in "ab":
            owner.append(name, b"abcd")
            owner.offload()
        with store.metadata.read() as txn:
            owner.cold.delete(slot_name(txn.store.journal.next_slot))
        with pytest.raises(DataLoss, match=r"journal/.* is missing"):
            follower(store).refresh()
        assert shown(store) == before


def test_a_damaged_slot_is_passed_over_once_the_owner_has_written_a_checkpoint(
    owner: TestStore, tmp_path: Path
) -> None:
    """As `check --repair` does: one checkpoint is enough."""
    with following(owner, tmp_path / "replica") as store:
        for name in "ab":
            owner.append(name, b"abcd")
            owner.offload()
        with store.metadata.read() as txn:
            damage(owner.cold, slot_name(txn.store.journal.next_slot))
        with pytest.raises(DataLoss, match="is damaged") as caught:
            follower(store).refresh()
        assert "check --repair" in (caught.value.remedy or "")
        owner.cold_work().checkpointer.checkpoint(whole=True)
        assert follower(store).refresh().started_over
        assert shown(store) == cold_bytes(owner)


def test_a_replica_that_starts_over_takes_no_other_stores_journal(owner: TestStore, tmp_path: Path) -> None:
    """As where the bucket was emptied, and another store made in it."""
    owner.append("s", b"abcd")
    owner.offload()
    with (
        following(owner, tmp_path / "replica") as store,
        open_test_store(tmp_path / "other", cold=ScriptedStorage(MemoryStorage())) as other,
    ):
        before = shown(store)
        for name in "abcdef":
            other.append(name, b"xyz")
            other.offload()
            other.cold_work().checkpointer.checkpoint()
        with pytest.raises(DataLoss, match="the journal is another store's"):
            Follower(store.metadata, other.cold, IN_MEMORY).refresh()
        assert shown(store) == before
        assert not list(store.path.glob("metadata.*"))


def test_an_owner_that_deletes_slots_during_a_first_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins again, with what is there by then."""
    meter_of = replica.meter_of
    with store_of(tmp_path / "store") as owner:

        def change(names: str) -> None:
            for name in names:
                append(owner, name, b"abcd", seal=True)
                verbs.offload(owner, "")
                owner.cold_work().checkpointer.checkpoint()

        def meanwhile(report: OnProgress, listed: JournalListing) -> Meter:
            listings.append(listed.last_slot)
            if len(listings) == 1:
                change("cdef")
            return meter_of(report, listed)

        listings: list[int] = []
        change("ab")
        monkeypatch.setattr(replica, "meter_of", meanwhile)
        done = replica.create_replica(tmp_path / "replica", Place.in_directory(tmp_path / "store/cold"), unseen)
        assert listings == sorted(set(listings))
        assert (len(listings), done.slot) == (2, listings[-1])
