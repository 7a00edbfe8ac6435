"""LedgerOffloader: Pulsar's objects of a closed ledger, and what every failure on the way leaves (cases A4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.engine.ledger import independent
from tests.ledgers import ROOMY, cold_entries, ledger_names, new_ledger, offload, offloader, record, written
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, NotFound, TierfsError, Unavailable
from tierfs.base.words.types import ChunkState, SegmentId, Tier
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import chain_edits, entries, entries_object
from tierfs.engine.metadata.entries import StoredEntries
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.tiering.ledgers import offload as ledger_offload
from tierfs.tiering.ledgers.entry_rows import EntryRows
from tierfs.tiering.ledgers.offload import LedgerRecipe
from tierfs.tiering.objects import Made

HOUR_MS = 3600 * 1000
UID = UUID("c0ffee00-0000-4000-8000-000000000001")

THREE_BLOCKS = [bytes([65 + index]) * 100 for index in range(20)]
"""Seven entries of 112 bytes fit into a block of 1000."""

POLICY = ROOMY


def objects(store: TestStore) -> list[str]:
    """All but the journal and the mark of the store."""
    others = ("journal/", "tierfs-store")
    return [found.name for found in store.cold.list("") if not found.name.startswith(others)]


def test_a_closed_ledger_becomes_pulsars_objects(store: TestStore) -> None:
    name = new_ledger(store, THREE_BLOCKS, "public/default/persistent/ü b")
    offload(store, name, uuid=UID)
    ledger_id = int(name.rpartition("/")[2])
    names = [f"{UID}-ledger-{ledger_id}", f"{UID}-ledger-{ledger_id}-index"]
    assert ledger_names(store) == names
    assert written(store, name) == THREE_BLOCKS
    assert_layout(store, name, local=[2000], cold=[2000])
    for key, role in zip(names, ("data", "index"), strict=True):
        said = store.cold.stat(key).metadata
        assert said["s3managedledgeroffloaderformatversion"] == "1"
        assert said["managedledgername"] == "public/default/persistent/%C3%BC%20b"
        assert said["role"] == role
        assert said["store"] == store.metadata.store_id
    assert offloader(store).offload(store.segment(name).id, uuid4()) == 0, "once more does nothing"
    assert record(store, name).offload.uuid == UID
    assert ledger_names(store) == names
    store.evict()
    assert_layout(store, name, local=[], cold=[2000])
    assert cold_entries(store, name, 3, 17) == THREE_BLOCKS[3:17]
    with pytest.raises(Conflict, match="the only valid copy of some bytes"):
        offloader(store).delete_offloaded(store.segment(name).id, UID)
    store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms() + HOUR_MS)
    store.settle()
    assert len(ledger_names(store)) == 2
    store.clock.advance(2 * 3600)
    store.settle()
    assert objects(store) == []
    with store.metadata.read() as txn:
        assert txn.count(b"entries") == txn.count(b"ledgers") == 0


@pytest.mark.parametrize(("block_bytes", "expected"), [(2**17, [4096, 4096, 809]), (2**16, [4096, 927, 3169, 809])])
def test_a_block_of_many_entries_is_placed_in_several_commits(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, block_bytes: int, expected: list[int]
) -> None:
    commits: list[int] = []
    place = entries.place

    def count(txn: WriteTransaction, segment_id: SegmentId, stored: Sequence[StoredEntries]) -> None:
        commits.append(sum(one.entries for one in stored))
        place(txn, segment_id, stored)

    monkeypatch.setattr(ledger_offload, "_PLACED_AT_ONCE", 1)
    monkeypatch.setattr(entries, "place", count)
    payloads = [b"wide" * 25, *(b"x" * (index % 3) for index in range(9000))]
    name = new_ledger(store, payloads)
    offload(store, name, block_bytes=block_bytes)
    assert commits == expected
    assert written(store, name) == payloads == cold_entries(store, name)


@pytest.mark.parametrize("shorter", [-1, 0, 1])
def test_an_entry_fits_a_block_or_is_refused_before_anything_is_uploaded(store: TestStore, shorter: int) -> None:
    payloads = [b"a", *[bytes(1000 - 140 - shorter)] * 3]
    name = new_ledger(store, payloads)
    if shorter < 0:
        with pytest.raises(InvalidRequest, match="entry 1 of 861 bytes does not fit into a block of 1000 bytes"):
            offload(store, name)
        assert ledger_names(store) == []
        assert record(store, name).offload.uuid is None
        return
    offload(store, name)
    index = independent.decode_index(read_small(store.cold, ledger_names(store)[1]))
    assert index.rows == [(0, 1, 0), (1, 2, 1000), (2, 3, 2000), (3, 4, 3000)]
    assert cold_entries(store, name) == payloads


@pytest.mark.parametrize("lost", ["all", "the last"])
def test_a_ledger_whose_entries_are_not_all_known_is_not_offloaded(store: TestStore, lost: str) -> None:
    """Without the length of each entry the objects would lack entries, and the offload would be a success."""
    name = new_ledger(store, THREE_BLOCKS)
    segment = store.segment(name)
    with store.metadata.write() as txn:
        (run,) = entries.runs(txn, segment.id)
        entries.remove(txn, segment.id)
        if lost == "the last":
            entries.put(txn, segment.id, replace(run, lengths=run.lengths[:-1]))
    with pytest.raises(DataLoss, match=f"ledger {name}: its entries are not all known"):
        offload(store, name)
    assert objects(store) == []
    assert_layout(store, name, local=[2000], cold=[])


def test_open_and_empty_ledgers_are_refused(store: TestStore) -> None:
    opened = new_ledger(store, THREE_BLOCKS, close=False)
    with pytest.raises(InvalidRequest, match="is open"):
        offload(store, opened)
    with pytest.raises(InvalidRequest, match="has no entries"):
        offload(store, new_ledger(store, []))
    with pytest.raises(NotFound):
        offloader(store).offload(SegmentId(999), uuid4())
    store.append("s", b"bytes")
    with pytest.raises(InvalidRequest, match="is not a ledger"):
        offload(store, "s")


STEPS = {"data": 1, "copy of entries": 2, "index": 3}


@pytest.mark.parametrize("error", [Unavailable("the endpoint is away"), NotFound("no such bucket")])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_failure_leaves_no_object(
    store: TestStore, storage: ScriptedStorage, step: str, when: When, error: TierfsError
) -> None:
    name = new_ledger(store, THREE_BLOCKS)
    store.cold_work().publish()
    storage.fail("put", error, on=STEPS[step], when=when)
    with pytest.raises(type(error)):
        offloader(store).offload(store.segment(name).id, UID)
    store.settle()
    assert objects(store) == []
    assert_layout(store, name, local=[2000], cold=[])
    offload(store, name)
    assert written(store, name) == THREE_BLOCKS


def test_objects_stay_when_nobody_knows_whether_the_commit_came(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_ledger(store, THREE_BLOCKS)
    store.cold_work().publish()

    def dies(*_: object) -> None:
        raise Unavailable("the metadata store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(LedgerRecipe, "link", dies)
        with pytest.raises(Unavailable):
            offloader(store).offload(store.segment(name).id, UID)
    store.cold_work().collect()
    assert len(ledger_names(store)) == 2
    assert not record(store, name).offload.complete
    again = offload(store, name)
    store.settle()
    assert {key[:36] for key in ledger_names(store)} == {str(again)}


@pytest.mark.parametrize("put", range(1, 4))
def test_a_killed_attempt_is_cleaned_by_the_next_holder(store: TestStore, storage: ScriptedStorage, put: int) -> None:
    name = new_ledger(store, THREE_BLOCKS)
    store.cold_work().publish()
    storage.fail("put", KeyboardInterrupt(), on=put, when=When.AFTER)
    with pytest.raises(KeyboardInterrupt):
        offloader(store).offload(store.segment(name).id, UID)
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 3
    store.cold_work().resolve_crashed()
    store.settle()
    assert objects(store) == []
    offload(store, name)
    assert written(store, name) == THREE_BLOCKS


def test_another_holder_took_the_attempt_for_a_dead_ones(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    name = new_ledger(store, THREE_BLOCKS)
    store.cold_work().publish()
    link = LedgerRecipe.link

    def later(recipe: LedgerRecipe, made: Made) -> None:
        store.cold_work().resolve_crashed()
        link(recipe, made)

    monkeypatch.setattr(LedgerRecipe, "link", later)
    with pytest.raises(Conflict, match="another holder"):
        offloader(store).offload(store.segment(name).id, UID)
    assert_layout(store, name, local=[2000], cold=[])


@pytest.mark.parametrize("suspect", [0, 1, 2])
def test_the_only_good_copy_is_not_deleted(tmp_path: Path, suspect: int) -> None:
    """While a local chunk is suspect its bytes may be in the objects alone; once it proves right they may go."""
    with open_test_store(tmp_path / "small", policy={"chunk_bytes": "800"}) as store:
        name = new_ledger(store, THREE_BLOCKS)
        segment_id = store.segment(name).id
        uuid = offload(store, name)
        assert_layout(store, name, local=[800, 800, 400], cold=[2000])
        chunk = store.layout(name).local[suspect].chunk
        chain_edits.set_state(store.metadata, segment_id, Tier.LOCAL, chunk, ChunkState.SUSPECT)
        with pytest.raises(Conflict, match="the only valid copy of some bytes") as refused:
            offloader(store).delete_offloaded(segment_id, uuid)
        assert "tierfs check" in str(refused.value.remedy)
        assert cold_entries(store, name) == THREE_BLOCKS
        chain_edits.set_state(store.metadata, segment_id, Tier.LOCAL, chunk, ChunkState.GOOD)
        offloader(store).delete_offloaded(segment_id, uuid)
        store.settle()
        assert ledger_names(store) == []


def test_rows_whose_copy_is_damaged_on_its_way_are_read_again_and_not_made_from_the_ledger(
    store: TestStore, storage: ScriptedStorage
) -> None:
    name = new_ledger(store, THREE_BLOCKS)
    offload(store, name)
    segment_id = store.segment(name).id
    with store.metadata.write() as txn:
        entries.remove(txn, segment_id)
    storage.damage(-1, of=entries_object.ENTRIES_PREFIX)
    storage.reads.clear()
    assert EntryRows(store.metadata, store.cold, store.metadata.write).restore([segment_id]) == []
    assert {read.name for read in storage.reads if not read.name.startswith(entries_object.ENTRIES_PREFIX)} == set()
    assert cold_entries(store, name) == THREE_BLOCKS
