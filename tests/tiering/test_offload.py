"""Offload and evict: what becomes cold, what may go, and what every crash and fault leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.fsck.looking import flip_local
from tests.stores import LOCATION, TestStore, assert_layout, open_test_store, quiet
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import StoredObject
from tierfs.errors import Conflict, DataLoss, NotFound, Unavailable
from tierfs.metadata import chains, policies
from tierfs.metadata.records import GarbageRecord
from tierfs.metadata.tables import GARBAGE, INTENTS
from tierfs.tiering import objects
from tierfs.tiering.candidates import objects_to_make
from tierfs.tiering.objects import ChunksMoved
from tierfs.types import CRC_BLOCK_BYTES, ROOT_DIRECTORY, ChunkState, Tier

GARBAGE_ROWS = 250


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


def cold_names(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("segments/")]


def test_offload_rolls_and_joins_neighbouring_chunks_up_to_the_object_limit(store: TestStore) -> None:
    store.append("s", b"abcdefghijklmno")
    report = store.offload("s")
    assert (report.segments, report.objects, report.bytes) == (1, 2, 15)
    assert_layout(store, "s", local=[4, 4, 4, 3], cold=[8, 7])
    assert store.read("s", Tier.COLD) == b"abcdefghijklmno"


def test_offload_again_does_nothing(store: TestStore) -> None:
    store.append("s", b"abcdefghijklmno")
    store.offload()
    report = store.offload()
    assert (report.objects, report.bytes, report.already_cold_bytes) == (0, 0, 15)
    assert len(cold_names(store)) == 2


def test_offload_goes_on_behind_what_is_cold(store: TestStore) -> None:
    store.append("s", b"abcdefgh")
    store.offload()
    store.append("s", b"ijk", b"lmnop")
    store.offload()
    assert_layout(store, "s", local=[4, 4, 4, 4], cold=[8, 8])
    assert store.read("s", Tier.COLD) == b"abcdefghijklmnop"


def test_objects_describe_themselves(store: TestStore) -> None:
    store.append("logs/ü", b"abc")
    store.offload()
    (name,) = cold_names(store)
    metadata = store.cold.stat(name).metadata
    assert name.startswith("segments/logs/ü/")
    assert (metadata["start"], metadata["end"], metadata["epoch"]) == ("0", "3", "1")
    assert metadata["store"] == store.metadata.store_id
    assert all(value.isascii() for value in metadata.values())


def test_evict_takes_cold_bytes_and_keeps_the_rest(store: TestStore) -> None:
    store.append("s", b"abcdefgh")
    store.offload()
    store.append("s", b"ij")
    report = store.evict()
    assert (report.chunks, report.bytes, report.kept_bytes) == (2, 8, 2)
    assert_layout(store, "s", local=[2], cold=[8])
    assert len(list(store.files.names())) == 1
    assert store.read("s") == b"abcdefghij"


def test_evict_keeps_what_the_journal_does_not_name(store: TestStore) -> None:
    store.append("s", b"abcd")
    store.offload()
    with store.metadata.write() as txn:
        journal = txn.store.journal
        txn.update_store(journal=type(journal)(next_slot=journal.next_slot, published_sequence=0))
    from tierfs.tiering import evict

    assert evict.evict(store.metadata, store.segment("s").id, cold_before_ms=store.clock.now_ms()).chunks == 0


def test_evict_keeps_local_only_segments_unless_forced(store: TestStore) -> None:
    store.append("s", b"abcd")
    store.offload()
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"read_priority": "local-only"})
    assert store.evict().reasons == {"read priority is local-only (--force overrides)": 4}
    assert store.evict(force=True).bytes == 4


def test_a_damaged_source_is_never_made_cold_and_becomes_suspect(store: TestStore) -> None:
    store.append("s", b"abcd", seal=True)
    flip_local(store, "s", 1)
    with pytest.raises(DataLoss, match="does not match its checksums"):
        store.offload()
    assert_layout(store, "s", local=[4], cold=[])
    assert [placed.chunk.state for placed in store.layout("s").local] == [ChunkState.SUSPECT]
    store.clock.advance(7200)
    store.settle()
    assert cold_names(store) == []


def test_a_short_source_is_data_loss(store: TestStore) -> None:
    store.append("s", b"abcd", seal=True)
    path = store.files.root / store.layout("s").local[0].object.name
    path.chmod(0o600)
    path.write_bytes(b"ab")
    with pytest.raises(DataLoss, match="ends at 2"):
        store.offload()


def test_grids_of_source_and_object_meet_at_odd_boundaries(tmp_path: Path) -> None:
    policy = {"chunk_bytes": str(CRC_BLOCK_BYTES + 1000), "object_bytes": str(1 << 20)}
    with open_test_store(tmp_path / "s", policy=policy) as store:
        data = os.urandom(5 * CRC_BLOCK_BYTES + 77)
        store.append("s", data)
        store.offload()
        assert store.read("s", Tier.COLD) == data
        from tierfs.checksum import block_crcs
        from tierfs.metadata import checksums

        with store.metadata.read() as txn:
            for placed in store.layout("s").cold:
                part = data[placed.chunk.start_offset : placed.chunk.end_offset]
                found = [run.crc(i) for run in checksums.runs(txn, placed.object.id) for i in range(run.count)]
                assert found == block_crcs(part)


def test_an_upload_of_unknown_end_leaves_no_orphan(tmp_path: Path) -> None:
    cold = ScriptedStorage()
    cold.fail("put", Unavailable("the connection was lost"), of="segments/", when=When.AFTER)
    with open_test_store(tmp_path / "s", cold=cold) as store:
        store.append("s", b"abcd")
        with pytest.raises(Unavailable):
            store.offload()
        assert_layout(store, "s", local=[4], cold=[])
        store.offload()
        assert_layout(store, "s", local=[4], cold=[4])
        store.settle()
        assert len(cold_names(store)) == 1
        store.clock.advance(7200)
        store.settle()
        with store.metadata.read() as txn:
            assert (txn.count(GARBAGE.name), txn.count(INTENTS.name)) == (0, 0)


def test_intents_of_a_crashed_offload_become_garbage(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("s", b"abcd")

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("tierfs.tiering.offload.OffloadRecipe.link", die)
        with pytest.raises(Killed):
            store.offload()
    assert len(cold_names(store)) == 1
    store.offload()
    assert_layout(store, "s", local=[4], cold=[4])
    assert len(cold_names(store)) == 1


def test_a_second_holder_is_refused_by_name(store: TestStore) -> None:
    from tierfs.holder.lock import hold

    store.append("s", b"abcd")
    with hold(store.paths.holder, store.clock), pytest.raises(Conflict, match=f"process {os.getpid()}"):
        store.offload()


def test_a_missing_path_is_not_found(store: TestStore) -> None:
    with pytest.raises(NotFound):
        store.offload("nope")
    with pytest.raises(NotFound):
        store.evict("nope")


def test_a_dry_run_says_what_evict_would_drop(store: TestStore) -> None:
    store.append("s", b"abcdefgh")
    store.offload()
    assert store.cold_work().evict("", force=False, dry_run=True, report=quiet).bytes == 8
    assert_layout(store, "s", local=[4, 4], cold=[8])


def test_delete_removes_the_name_now_and_the_objects_after_the_grace_period(store: TestStore) -> None:
    store.append("a/s", b"abcdefgh")
    store.offload()
    grace_ms = store.clock.now_ms() + 3600_000
    assert store.engine.delete("a", recursive=True, cold_due_ms=grace_ms).cold_bytes == 8
    store.settle()
    assert list(store.files.names()) == []
    assert len(cold_names(store)) == 1
    store.clock.advance(3601)
    store.settle()
    assert cold_names(store) == []


@pytest.mark.parametrize("part", [b"de", b"defghij"])
@pytest.mark.parametrize("open_files", [0, 256])
def test_a_live_writer_goes_on_when_its_chunk_was_evicted(store: TestStore, part: bytes, open_files: int) -> None:
    store.engine._tools.descriptors.limit = open_files  # with 0 the writer has to open its file again
    writer = store.engine.open_writer("s")
    writer.append(b"abc")
    store.offload("s")
    store.evict("s")
    assert list(store.files.names()) == []
    writer.append(part)
    assert store.read("s") == b"abc" + part


def test_an_action_that_is_done_already_is_not_done_again(store: TestStore) -> None:
    store.append("s", b"abcdefgh", seal=True)
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    offload = store.cold_work().tools.offload
    assert offload.run(action) == 8
    with pytest.raises(ChunksMoved, match="cold meanwhile"):
        offload.run(action)
    assert len(cold_names(store)) == 1
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0


def test_an_upload_that_was_taken_for_a_dead_ones_is_not_linked(store: TestStore) -> None:
    store.append("s", b"abcdefgh", seal=True)
    offload = store.cold_work().tools.offload
    storage = store.cold

    def put_and_stall(*arguments: Any, **named: Any) -> StoredObject:
        stored = MemoryStorage.put(storage, *arguments, **named)
        assert objects.abandon_all(store.metadata) == 1  # what the next holder does first
        return stored

    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "put", put_and_stall)
        with pytest.raises(ChunksMoved, match="a dead process"):
            offload.run(action)
    assert_layout(store, "s", local=[4, 4], cold=[])
    store.cold_work().collect()
    assert cold_names(store) == []
    store.offload()
    assert store.read("s", Tier.COLD) == b"abcdefgh"


def test_deletions_are_noted_many_in_one_commit(store: TestStore) -> None:
    with store.metadata.write() as txn:
        for number in range(GARBAGE_ROWS):
            row = GarbageRecord(
                due_ms=txn.now_ms,
                tier=Tier.COLD,
                location_id=LOCATION,
                name=f"segments/x/1/chunk-{number:020d}-{number + 1:020d}-e1-aa",
            )
            chains.add_garbage(txn, row)
    before = store.metadata.last_transaction_id()
    assert store.cold_work().collect().deleted == GARBAGE_ROWS
    assert store.metadata.last_transaction_id() - before <= GARBAGE_ROWS // 50
