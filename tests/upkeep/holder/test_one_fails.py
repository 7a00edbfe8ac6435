"""One damaged segment, pack or place keeps no other from its work, and nothing that became cold from the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ScriptedStorage
from tests.ledgers import ROOMY, new_ledger
from tests.stores import TestStore, assert_layout, open_test_store, quiet
from tests.tiering.test_repack import KEPT, POLICY, dying_pack, packs
from tests.upkeep.check.looking import flip_local
from tests.upkeep.holder.holding import failures, working
from tests.upkeep.holder.test_look_failures import lose_object
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.errors import DataLoss, Fenced, Unavailable
from tierfs.base.words.types import ROOT_DIRECTORY, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata import chains, policies, tables
from tierfs.engine.metadata.tables import OBJECTS, OUTBOX_NAME
from tierfs.engine.segments.engine import Engine
from tierfs.tiering.backup.segment import SegmentRestore
from tierfs.tiering.garbage.retention import Retention
from tierfs.tiering.ledgers.entry_rows import EntryRows

BAD = "s1"
NAMES = ("s0", BAD, "s2")
GOOD = ("s0", "s2")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=ScriptedStorage()) as opened:
        yield opened


def of_large_objects(store: TestStore) -> None:
    """No packs: an object for each segment."""
    store.settings = OffloadSettings(pack_below_bytes=0)


def assert_named(store: TestStore, *names: str) -> None:
    """All of these is cold, and the journal names it: a loss of this disk loses nothing of them."""
    with store.metadata.read() as txn:
        assert not txn.count(OUTBOX_NAME)
        published = txn.store.journal.published_sequence
    for name in names:
        segment, placed = store.segment(name), store.layout(name).cold
        assert sum(each.chunk.length for each in placed) == segment.length, name
        assert all(each.object.linked_sequence <= published for each in placed), name


def damaged_bytes(store: TestStore) -> str:
    for name in NAMES:
        store.append(name, b"abcd", seal=True)
    flip_local(store, BAD, 1)
    return "does not match its checksums|is damaged and has no other copy"


def damaged_in_a_pack(store: TestStore) -> str:
    store.settings = OffloadSettings(pack_below_bytes=1000)
    return damaged_bytes(store)


def damaged_record(store: TestStore) -> str:
    for name in NAMES:
        store.append(name, b"abcd")
    lose_object(store.metadata, BAD)
    return "refers to a missing object"


@pytest.mark.parametrize("damage", [damaged_bytes, damaged_in_a_pack, damaged_record])
def test_what_became_cold_beside_damage_is_named_by_the_journal(
    store: TestStore, damage: Callable[[TestStore], str]
) -> None:
    of_large_objects(store)
    why = damage(store)
    for _ in range(2):
        with pytest.raises(DataLoss, match=why):
            store.offload()
        assert_named(store, *GOOD)
        assert not store.segment(BAD).cold.count


def test_what_became_cold_before_an_internal_error_is_named(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    of_large_objects(store)
    for name in NAMES:
        store.append(name, b"abcd", seal=True)
    work, made = store.cold_work(), 0

    def second_fails(action: object, extra: object) -> int:
        nonlocal made
        made += 1
        if made == 2:
            raise ZeroDivisionError
        return work.offloader.run(action)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "_make", second_fails)
    with pytest.raises(ZeroDivisionError):
        work.offload("", quiet)
    cold = [name for name in NAMES if store.segment(name).cold.count]
    assert len(cold) in (1, 2)
    assert_named(store, *cold)


def test_ledgers_that_became_cold_beside_a_damaged_one_are_named(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy=ROOMY) as store:
        names = [new_ledger(store, [b"one", b"two"], "t") for _ in range(3)]
        flip_local(store, names[1], 1)
        with pytest.raises(DataLoss, match="does not match"):
            store.cold_work().offload_prefix("t", None, quiet)
        assert_named(store, names[0], names[2])


def test_a_segment_that_was_restored_is_named_though_its_entries_cannot_be_read(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("s0", b"abcd", seal=True)
    store.offload()

    def restored(self: SegmentRestore, *_: object, **__: object) -> object:
        store.append("s2", b"abcd")  # its change waits in the outbox, as that of a restored segment
        return type("Restored", (), {"segment": "s0"})()

    def unreadable(self: EntryRows, *_: object) -> tuple[str, ...]:
        raise Unavailable("the server does not answer")

    monkeypatch.setattr(SegmentRestore, "restore", restored)
    monkeypatch.setattr(EntryRows, "restore", unreadable)
    with pytest.raises(Unavailable, match="does not answer"):
        store.cold_work().load_segment("s0", accept_loss=False, report=quiet)
    with store.metadata.read() as txn:
        assert not txn.count(OUTBOX_NAME)


def lose_cold_object(store: TestStore, name: str) -> None:
    with store.metadata.write() as txn:
        (chunk, *_) = chains.chunks(txn, store.segment(name).id, Tier.COLD)
        txn.delete(OBJECTS.name, tables.u64(chunk.object_id))


def test_segments_are_consolidated_beside_a_damaged_one(store: TestStore) -> None:
    of_large_objects(store)
    for part in (b"ab", b"cd"):
        for name in NAMES:
            store.append(name, part)
        store.offload()
    lose_cold_object(store, BAD)
    with pytest.raises(DataLoss, match="refers to a missing object"):
        store.consolidate()
    assert [len(store.layout(name).cold) for name in GOOD] == [1, 1]
    assert_named(store, *GOOD)


def test_a_damaged_pack_keeps_no_other_from_being_repacked(tmp_path: Path) -> None:
    with open_test_store(
        tmp_path / "store", policy=POLICY, settings=OffloadSettings(relocate_min_bytes=1000), cold=ScriptedStorage()
    ) as store:
        dying_pack(store, "old/")
        (damaged,) = packs(store)
        assert isinstance(store.cold, ScriptedStorage)
        held = bytearray(store.cold.stat(damaged).length_bytes)
        store.cold.read_into(damaged, 0, memoryview(held))
        held[-1] ^= 1  # in its trailer: its index cannot be read
        store.cold.delete(damaged)
        store.cold.put(damaged, BufferSource(bytes(held)))
        dying_pack(store)
        before = packs(store)
        assert len(before) == 2
        with pytest.raises(DataLoss):
            store.consolidate()
        assert len(packs(store)) == 3
        assert_named(store, *KEPT)


def test_evict_goes_past_a_damaged_segment_and_deletes_what_it_dropped(store: TestStore) -> None:
    of_large_objects(store)
    for name in NAMES:
        store.append(name, b"abcd", seal=True)
    store.offload()
    lose_object(store.metadata, BAD)
    with pytest.raises(DataLoss, match="refers to a missing object"):
        store.evict()
    assert [store.segment(name).local.count for name in NAMES] == [0, 1, 0]
    assert len(list(store.files.root.rglob("*.chunk"))) <= 1


def test_room_is_made_past_a_damaged_segment(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    of_large_objects(store)
    for name in NAMES:
        store.append(name, b"abcd", seal=True)
    store.offload()
    lose_object(store.metadata, BAD)
    room = store.files.disk_bytes()

    def full(self: ChunkFiles) -> object:
        kept = sum(store.segment(name).local.count for name in NAMES)
        return replace(room, free=0 if kept > 2 else 1 << 40)

    monkeypatch.setattr(ChunkFiles, "disk_bytes", full)
    assert store.cold_work().make_room(BAD) == 8, "both good ones at once: far more was missing"


async def test_a_chunk_that_cannot_be_ended_holds_up_no_upload(
    tmp_path: Path, autojump_clock: object, expected_warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_warnings.append("look failed: .*")
    from tests.upkeep.holder.holding import TrioClock

    with open_test_store(tmp_path / "s", clock=TrioClock()) as store:
        for name in NAMES:
            store.append(name, b"ab")
        bad, roll = store.segment(BAD).id, Engine.roll

        def rolls(self: Engine, segment_id: SegmentId) -> None:
            if segment_id == bad:
                raise DataLoss("it cannot be ended")
            roll(self, segment_id)

        monkeypatch.setattr(Engine, "roll", rolls)
        async with working(store):
            await trio.sleep(700)
        for name in GOOD:
            assert_layout(store, name, local=[2], cold=[2])
        assert [row.what for row in failures(store)] == ["look"]


def test_lifetimes_end_past_a_damaged_segment(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    with open_test_store(tmp_path / "s", clock=clock) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"retention_age": "86400", "seal_bytes": "4"})
        for name in NAMES:
            store.append(name, b"abcd", seal=name == "s0")
        store.offload()
        lose_object(store.metadata, BAD)
        retention, attempts = Retention(store.metadata, store.engine, grace_s=0), Attempts()
        retention.seal(attempts)
        assert store.segment("s2").sealed
        clock.advance(2 * 86400)
        done = retention.expire(attempts)
        assert done.bytes == 8
        with pytest.raises(DataLoss, match="refers to a missing object"):
            attempts.end()


def test_a_fenced_step_ends_the_job_at_once() -> None:
    attempts = Attempts()
    with attempts.step():
        raise Unavailable("first")
    with attempts.step():
        raise ZeroDivisionError
    with pytest.raises(Fenced), attempts.step():
        raise Fenced("another owner")
    with pytest.raises(Unavailable, match="first"):
        attempts.end()
