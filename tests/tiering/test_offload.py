"""Offload and evict: what becomes cold, what may go, and what every crash and fault leaves."""

from __future__ import annotations

import os

import pytest

from tests.doubles.scripted_storage import ScriptedStorage, When
from tests.fsck.looking import flip_local
from tests.stores import LOCATION, TestStore, assert_layout, quiet
from tierfs.errors import Conflict, DataLoss, NotFound, Unavailable
from tierfs.holder.lock import hold
from tierfs.metadata import chains, policies
from tierfs.metadata.records import GarbageRecord
from tierfs.metadata.tables import GARBAGE, INTENTS
from tierfs.tiering import evict, objects
from tierfs.tiering.candidates import objects_to_make
from tierfs.tiering.objects import ChunksMoved
from tierfs.types import ROOT_DIRECTORY, ChunkState, Tier

GARBAGE_ROWS = 250


def cold_names(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("segments/")]


@pytest.mark.parametrize(
    ("parts", "local", "cold"),
    [
        ([0], [], []),
        ([1], [1], [1]),
        ([4], [4], [4]),
        ([7], [4, 3], [7]),
        ([8], [4, 4], [8]),
        ([9], [4, 4, 1], [8, 1]),
        ([15], [4, 4, 4, 3], [8, 7]),
        ([8, 3, 5], [4, 4, 3, 4, 1], [8, 3, 5]),
        ([3, 3, 9], [3, 3, 4, 4, 1], [3, 3, 8, 1]),
    ],
)
def test_offload_rolls_joins_up_to_the_object_limit_and_goes_on_behind_what_is_cold(
    store: TestStore, parts: list[int], local: list[int], cold: list[int]
) -> None:
    """An offload after each part, again when nothing is left, and an evict of all of it but what came later."""
    data = b""
    for length in parts:
        part = b"abcdefghijklmno"[:length]
        before = len(store.layout("s").cold) if data else 0
        store.append("s", part)
        report = store.offload()
        data += part
        assert (report.objects, report.bytes) == (len(store.layout("s").cold) - before, length)
    assert_layout(store, "s", local=local, cold=cold)
    assert store.read("s", Tier.COLD) == data
    report = store.offload("s")
    assert (report.objects, report.bytes, report.already_cold_bytes) == (0, 0, len(data))
    assert len(cold_names(store)) == len(cold)
    store.append("s", b"ij")
    dry = store.cold_work().evict("", force=False, dry_run=True, report=quiet)
    assert_layout(store, "s", local=[*local, 2], cold=cold)
    report = store.evict()
    assert (report.chunks, report.bytes, report.kept_bytes) == (len(local), len(data), 2)
    assert (dry.chunks, dry.bytes, dry.kept_bytes) == (report.chunks, report.bytes, report.kept_bytes)
    assert_layout(store, "s", local=[2], cold=cold)
    assert len(list(store.files.names())) == 1
    assert store.read("s") == data + b"ij"


def test_objects_describe_themselves(store: TestStore) -> None:
    store.append("logs/ü", b"abc")
    store.offload()
    (name,) = cold_names(store)
    metadata = store.cold.stat(name).metadata
    assert name.startswith("segments/logs/ü/")
    assert (metadata["start"], metadata["end"], metadata["epoch"]) == ("0", "3", "1")
    assert metadata["store"] == store.metadata.store_id
    assert all(value.isascii() for value in metadata.values())


def test_evict_keeps_what_the_journal_does_not_name(store: TestStore) -> None:
    store.append("s", b"abcd")
    store.offload()
    with store.metadata.write() as txn:
        journal = txn.store.journal
        txn.update_store(journal=type(journal)(next_slot=journal.next_slot, published_sequence=0))
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


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_short_source_is_data_loss(store: TestStore, kept: int) -> None:
    store.append("s", b"abcd", seal=True)
    os.truncate(store.files.root / store.layout("s").local[0].object.name, kept)
    with pytest.raises(DataLoss, match=f"ends at {kept}"):
        store.offload()


class Killed(BaseException):
    pass


@pytest.mark.parametrize("ends", [Unavailable("the connection was lost"), Killed()], ids=["unknown", "killed"])
def test_an_upload_that_ended_somehow_leaves_no_orphan(
    store: TestStore, storage: ScriptedStorage, ends: Exception
) -> None:
    storage.fail("put", ends, of="segments/", when=When.AFTER)
    store.append("s", b"abcd")
    with pytest.raises(type(ends)):
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


def test_a_second_holder_is_refused_by_name(store: TestStore) -> None:
    store.append("s", b"abcd")
    with hold(store.paths.holder, store.clock), pytest.raises(Conflict, match=f"process {os.getpid()}"):
        store.offload()


def test_a_missing_path_is_not_found(store: TestStore) -> None:
    with pytest.raises(NotFound):
        store.offload("nope")
    with pytest.raises(NotFound):
        store.evict("nope")


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


def test_an_upload_that_was_taken_for_a_dead_ones_is_not_linked(store: TestStore, storage: ScriptedStorage) -> None:
    store.append("s", b"abcdefgh", seal=True)
    # What the next holder does first.
    storage.do("put", lambda: objects.abandon_all(store.metadata), when=When.AFTER, of="segments/")
    with store.metadata.read() as txn:
        (action,) = objects_to_make(txn, store.segment("s"))
    with pytest.raises(ChunksMoved, match="a dead process"):
        store.cold_work().tools.offload.run(action)
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
