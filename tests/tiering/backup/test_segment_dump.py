"""Dumps of one segment in the bucket, and what loading one brings back."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.app.recovery.recovering import recovered
from tests.copied import copy_tier
from tests.doubles.scripted_storage import ScriptedStorage
from tests.engine.journal.replaying import check_store
from tests.ledgers import ROOMY, cold_entries, new_ledger, offload
from tests.stores import TestStore, assert_layout, open_test_store, quiet
from tierfs.base.words.errors import AlreadyExists, DataLoss, Fenced, InvalidRequest, NotFound, Unavailable
from tierfs.base.words.types import ChunkState, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, Source, StoredObject
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.metadata import chains, frames, policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.segments.clone import clone
from tierfs.tiering.backup import segment
from tierfs.tiering.backup.segment import SegmentDumped, SegmentRestored, dump_segment

HOUR_MS = 3600 * 1000


@pytest.fixture(params=["off", "zstd"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TestStore]:
    policy = {"chunk_bytes": "4", "object_bytes": "8", "compression": request.param}
    with open_test_store(tmp_path / "store", policy=policy) as opened:
        yield opened


def made(store: TestStore, *parts: bytes) -> SegmentDumped:
    """A segment whose parts are one object each, dumped."""
    for part in parts:
        store.append("a/s", part)
        store.offload()
    return dump_segment(store.metadata, store.cold, "a/s")


class Busy(MemoryStorage):
    """Takes no dump for now; keeps what it was given to read, as the frames of an error do."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy = True
        self.kept: list[object] = []

    def put(self, name: str, source: Source, **named: Any) -> StoredObject:
        self.kept.append(source.read(0, source.length_bytes))
        if self.is_busy and name.startswith(segment.DUMPS_PREFIX):
            raise Unavailable("503 Slow Down")
        return super().put(name, source, **named)


def test_a_dump_that_the_bucket_does_not_take_ends_with_the_buckets_error(tmp_path: Path) -> None:
    cold = Busy()
    with open_test_store(tmp_path / "busy", cold=cold) as store:
        store.append("a/s", b"abcdefgh")
        store.offload()
        storage = ResilientStorage(cold, attempts=2)
        with pytest.raises(Unavailable, match="503 Slow Down"):
            dump_segment(store.metadata, storage, "a/s")
        cold.is_busy = False
        assert dump_segment(store.metadata, storage, "a/s").cold_bytes == 8
        remove(store, "a/s")
        load(store)
        assert store.read("a/s") == b"abcdefgh"


def remove(store: TestStore, name: str, grace_ms: int = HOUR_MS) -> None:
    store.engine.delete(name, recursive=True, cold_due_ms=store.clock.now_ms() + grace_ms)
    store.settle()


def load(store: TestStore, wanted: str = "a/s", *, accept_loss: bool = False) -> SegmentRestored:
    with store.holding() as work:
        return work.load_segment(wanted, accept_loss=accept_loss, report=quiet)


def collect_after_the_grace(store: TestStore) -> None:
    store.clock.advance(2 * 3600)  # type: ignore[attr-defined]
    store.collect()


@pytest.mark.parametrize("newest_first", [True, False], ids=["the newest first", "the newest last"])
def test_a_segment_removed_by_mistake_comes_back_and_stays(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    monkeypatch.setattr(segment, "_PIECE_BYTES", 100)
    made(store, b"abcdefgh", b"ijklmnop", b"qrst")
    store.clock.advance(1)  # type: ignore[attr-defined]
    with store.metadata.write() as txn:
        policies.change(txn, "a/s", put_settings={"read_priority": "offloaded-only"})
    dumped = dump_segment(store.metadata, store.cold, "a/s")
    listed = store.cold.list  # in the order of names, and those of dumps are random

    def in_order(prefix: str, **more: Any) -> Iterator[StoredObject]:
        return iter(sorted(listed(prefix, **more), key=lambda item: (item.name == dumped.object) != newest_first))

    monkeypatch.setattr(store.cold, "list", in_order)
    assert (dumped.cold_bytes, dumped.only_local_bytes) == (20, 0)
    before = store.segment("a/s")
    store.append("b/other", b"")
    newest = store.segment("b/other")
    remove(store, "a")
    restored = load(store)
    assert (restored.cold_bytes, restored.lost_bytes, restored.objects) == (20, 0, 3)
    after = store.segment("a/s")
    assert (after.id, after.length, after.recovered_ms) == (before.id, 20, 0)
    assert after.inode != before.inode
    assert after.birth > newest.birth > before.birth, "it appears again now"
    assert after.writer_epoch > before.writer_epoch
    collect_after_the_grace(store)
    assert_layout(store, "a/s", local=[], cold=[8, 8, 4])
    assert store.read("a/s") == b"abcdefghijklmnopqrst"
    with store.metadata.read() as txn:
        assert policies.effective(txn, after).read_priority.value == "offloaded-only"
    store.append("a/s", b"uvwx")
    store.offload()
    assert store.read("a/s", Tier.COLD) == b"abcdefghijklmnopqrstuvwx"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_dump_is_loaded_where_the_tier_was_copied(store: TestStore, damaged: bool) -> None:
    made(store, b"abcdefgh", b"ijklmnop")
    remove(store, "a/s")
    copy_tier(store.cold)
    if damaged:
        (first, *_) = (item.name for item in store.cold.list("segments/"))
        data = bytearray(store.cold.stat(first).length_bytes)
        store.cold.read_into(first, 0, memoryview(data))
        data[-1] ^= 0x20  # of a compressed one the seek table, which no reader needs that has its rows
        store.cold.put(first, BufferSource(bytes(data)), create_only=False)
        with pytest.raises(DataLoss, match="8 bytes of a/s are missing"):
            load(store)
        return
    assert load(store).lost_bytes == 0
    assert store.read("a/s") == b"abcdefghijklmnop"


def test_a_wrong_bit_on_the_way_takes_no_object_of_a_copied_tier_for_gone(
    tmp_path: Path, storage: ScriptedStorage
) -> None:
    with open_test_store(tmp_path / "store", cold=storage) as store:
        made(store, b"abcdefgh", b"ijklmnop")
        remove(store, "a/s")
        copy_tier(store.cold)
        storage.damage(3, of="segments/")
        assert load(store).lost_bytes == 0


def test_a_wrong_bit_on_the_way_is_no_damage_of_a_dump(tmp_path: Path, storage: ScriptedStorage) -> None:
    with open_test_store(tmp_path / "store", cold=storage) as store:
        made(store, b"abcd")
        for first in (1, 2):  # the header, and what follows it
            remove(store, "a/s")
            storage.damage(-1, on=first, of="dumps/")
            assert load(store).lost_bytes == 0
            storage.behave()
        remove(store, "a/s")
        storage.damage(-1, on=range(1, 100), of="dumps/")
        with pytest.raises(DataLoss, match="is damaged"):
            load(store)


def test_a_dump_of_a_ledger_is_loaded_where_the_tier_was_copied_and_recovered_there(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy=ROOMY) as store:
        payloads = [b"entry %d" % number for number in range(300)]
        name = new_ledger(store, payloads)
        offload(store, name)
        dump_segment(store.metadata, store.cold, name)
        remove(store, name)
        copy_tier(store.cold)
        restored = load(store, name)
        assert (restored.lost_bytes, restored.objects) == (0, 1)
        assert cold_entries(store, name) == payloads
        with recovered(tmp_path / "second", store.cold) as found:
            assert cold_entries(found.store, name) == payloads


@pytest.mark.parametrize("gone", ["a/s", "a/t"], ids=["the source", "the clone"])
def test_a_clone_and_its_source_come_back_each_beside_the_other(store: TestStore, tmp_path: Path, gone: str) -> None:
    made(store, b"abcdefgh", b"ijkl")
    clone(store.metadata, "a/s", "a/t", end=10)
    dump_segment(store.metadata, store.cold, "a/t")
    before = store.read(gone, Tier.COLD)
    remove(store, gone)
    assert (load(store, gone).cold_bytes, store.read(gone)) == (len(before), before)
    collect_after_the_grace(store)
    with store.metadata.read() as txn:
        check_store(txn)
    with recovered(tmp_path / "lost", store.cold) as found:
        assert {name: found.store.read(name) for name in ("a/s", "a/t")} == {
            "a/s": b"abcdefghijkl",
            "a/t": b"abcdefghij",
        }


def test_the_newest_dump_of_a_name_is_loaded_or_the_one_that_is_named(store: TestStore) -> None:
    first = made(store, b"abcd")
    store.clock.advance(1)  # type: ignore[attr-defined]
    second = made(store, b"efgh")
    remove(store, "a/s")
    assert load(store).dump == second.object
    assert store.read("a/s") == b"abcdefgh"
    remove(store, "a/s")
    assert load(store, first.object).dump == first.object
    assert store.read("a/s") == b"abcd"


@pytest.mark.parametrize("copied", [False, True])
def test_a_clock_that_is_set_back_does_not_select_an_older_dump(store: TestStore, copied: bool) -> None:
    store.clock.advance(3600)  # type: ignore[attr-defined]
    made(store, b"abcd")
    store.clock.advance(-60)  # type: ignore[attr-defined]
    second = made(store, b"efgh")
    if copied:
        copy_tier(store.cold)
    remove(store, "a/s")
    assert load(store).dump == second.object
    assert store.read("a/s") == b"abcdefgh"


def test_a_dump_of_a_later_owner_is_newer_whatever_its_journal_counts(store: TestStore) -> None:
    """A recovery may begin behind changes of the owner before, which were never published."""
    made(store, b"abcd")
    for number in range(20):
        store.append(f"b/{number}", b"x")
    older = dump_segment(store.metadata, store.cold, "a/s")
    newer = made(store, b"efgh")
    with store.metadata.read() as txn:
        (piece,) = segment.read_dump(store.cold, store.cold.stat(newer.object))
        assert piece.sequence == txn.store.next_outbox - 1
        assert piece.store_epoch == txn.store.store_epoch
    store.cold.delete(newer.object)
    piece.store_epoch, piece.sequence, piece.written_ms = 2, 3, 1
    store.cold.put(newer.object, BufferSource(frames.frame(piece)))
    remove(store, "a/s")
    assert load(store).dump == newer.object != older.object


def test_a_dump_that_says_to_be_of_another_segment_is_not_loaded_for_it(store: TestStore) -> None:
    first = made(store, b"abcd")
    stored = store.cold.stat(first.object)
    data = bytearray(stored.length_bytes)
    store.cold.read_into(first.object, 0, memoryview(data))
    forged = {**stored.metadata, "name": base64.urlsafe_b64encode(b"b/other").decode()}
    store.cold.put(first.object, BufferSource(bytes(data)), metadata=forged, create_only=False)
    remove(store, "a/s")
    with pytest.raises(DataLoss, match="it is of segment a/s, but its name is of b/other"):
        load(store, "b/other")
    assert load(store, first.object).segment == "a/s"


def test_an_existing_name_is_never_replaced(store: TestStore) -> None:
    made(store, b"abcd")
    with pytest.raises(AlreadyExists):
        load(store)
    remove(store, "a/s")
    store.append("a/s", b"another")
    with pytest.raises(AlreadyExists):
        load(store)
    assert store.read("a/s") == b"another"


def test_without_a_dump_the_way_to_one_is_named(store: TestStore) -> None:
    with pytest.raises(NotFound, match="no backup of a/s") as caught:
        load(store)
    assert "--to-bucket" in (caught.value.remedy or "")


def lost(store: TestStore, segment: SegmentRecord) -> list[tuple[int, int]]:
    with store.metadata.read() as txn:
        found = chains.chunks(txn, segment.id, Tier.COLD)
        return [(chunk.start_offset, chunk.end_offset) for chunk in found if chunk.state is ChunkState.LOST]


def test_what_is_gone_is_lost_only_when_that_is_accepted(store: TestStore) -> None:
    made(store, b"abcdefgh", b"ijklmnop", b"qrst", b"uvwx")
    objects = [found.name for found in store.cold.list("segments/")]
    remove(store, "a/s")
    store.cold.delete(objects[1])
    store.cold.delete(objects[3])
    slots = len(list(store.cold.list("journal/")))
    with pytest.raises(DataLoss, match="12 bytes of a/s are missing") as caught:
        load(store)
    assert "--yes" in (caught.value.remedy or "")
    with pytest.raises(NotFound):
        store.segment("a/s")
    assert len(list(store.cold.list("journal/"))) == slots
    restored = load(store, accept_loss=True)
    assert (restored.length, restored.cold_bytes, restored.lost_bytes) == (20, 12, 12)
    segment = store.segment("a/s")
    assert segment.recovered_ms
    assert lost(store, segment) == [(8, 16)]
    collect_after_the_grace(store)
    assert store.read("a/s") == b"abcdefgh" + bytes(8) + b"qrst"


def test_an_object_that_changed_is_gone(store: TestStore) -> None:
    made(store, b"abcdefgh")
    (found,) = store.cold.list("segments/")
    remove(store, "a/s")
    store.cold.put(found.name, BufferSource(b"ABCDEFGH"), create_only=False)
    with pytest.raises(DataLoss, match="8 bytes"):
        load(store)


def test_bytes_that_were_not_cold_are_told_of(store: TestStore) -> None:
    made(store, b"abcd")
    store.append("a/s", b"local")
    store.clock.advance(1)  # type: ignore[attr-defined]
    dumped = dump_segment(store.metadata, store.cold, "a/s")
    assert dumped.only_local_bytes == 5
    remove(store, "a/s")
    with pytest.raises(DataLoss, match="5 bytes of a/s are missing"):
        load(store)
    assert load(store, accept_loss=True).length == 4


def test_a_damaged_dump_changes_nothing(store: TestStore) -> None:
    dumped = made(store, b"abcd")
    remove(store, "a/s")
    found = store.cold.stat(dumped.object)
    data = bytearray(found.length_bytes)
    store.cold.read_into(found.name, 0, memoryview(data))
    data[-1] ^= 1
    store.cold.put(found.name, BufferSource(bytes(data)), metadata=found.metadata, create_only=False)
    with pytest.raises(DataLoss, match=r"dumps/.* is damaged"):
        load(store)
    with pytest.raises(NotFound):
        store.segment("a/s")


def test_a_fenced_store_loads_nothing(store: TestStore) -> None:
    made(store, b"abcd")
    remove(store, "a/s")
    with store.metadata.write_notes() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=9))
    with pytest.raises(Fenced):
        load(store)


def test_a_restored_segment_whose_policies_contradict_those_of_its_directory_is_refused(store: TestStore) -> None:
    made(store, b"abcd")
    with store.metadata.write() as txn:
        policies.change(txn, "a/s", put_settings={"offload_after": "off"})
    dump_segment(store.metadata, store.cold, "a/s")
    store.engine.delete("a/s", recursive=False, cold_due_ms=store.clock.now_ms() + HOUR_MS)
    store.settle()
    with store.metadata.write() as txn:
        policies.change(txn, "a", put_settings={"retention_age": "86400"})
    with pytest.raises(InvalidRequest, match=r"policy of a/s: .*retention waits for an offload that never happens"):
        load(store)
    with store.metadata.write() as txn:
        policies.change(txn, "a", put_settings={"retention_age": "off"})
    assert load(store).cold_bytes == 4
