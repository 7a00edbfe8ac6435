"""What is deleted, when, and what is not: garbage, orphans and dead uploads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.batches.batch_writes import Driver
from tests.doubles.manual_clock import ManualClock
from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage
from tests.safety.refused import refused
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.errors import Fenced, TierfsError, Unavailable
from tierfs.base.words.types import AttemptId, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.local_files import file_name
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.frames.seek_table import FrameSize, seek_table
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import GarbageRecord, LocationRecord, ObjectRecord
from tierfs.engine.metadata.tables import GARBAGE, INTENTS, LOCATIONS, OBJECTS
from tierfs.tiering.garbage.collect import Collector
from tierfs.tiering.garbage.dead_uploads import DeadUploads
from tierfs.tiering.garbage.orphans import Orphan, OrphanFinder
from tierfs.tiering.objects import JOB_REST_MS
from tierfs.tiering.packs import format as packs

MINUTE_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cold(clock: ManualClock) -> ScriptedStorage:
    return ScriptedStorage(MemoryStorage(clock))


@pytest.fixture
def store(tmp_path: Path, cold: ScriptedStorage, clock: ManualClock) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=cold, clock=clock) as opened:
        opened.append("s", b"abcd", seal=True)
        yield opened


def chunk_name(number: int = 1) -> str:
    return f"segments/gone/9/chunk-{0:020d}-{4:020d}-e1-{number:032x}"


def put_garbage(store: TestStore, name: str, tier: Tier = Tier.COLD, due_ms: int = 0, object_id: int = 0) -> None:
    with store.metadata.write() as txn:
        sequence = txn.store.next_garbage
        txn.update_store(next_garbage=sequence + 1)
        row = GarbageRecord(
            due_ms=due_ms,
            tier=tier,
            location_id=LOCATION,
            name=name,
            length=4,
            sequence=sequence,
            object_id=ObjectId(object_id),
        )
        txn.put(GARBAGE, tables.pair(due_ms, sequence), row)


def garbage(store: TestStore) -> list[GarbageRecord]:
    with store.metadata.read() as txn:
        return [row for _, row in txn.scan(GARBAGE)]


def cold_names(store: TestStore) -> set[str]:
    return {stored.name for stored in store.cold.list("")}


def collector(store: TestStore, error: TierfsError | None = None) -> Collector:
    """A collector whose proof of ownership fails with an error."""

    def prove() -> None:
        if error is not None:
            raise error

    return Collector(store.metadata, store.files, lambda _: store.cold, prove)


def test_an_object_with_a_record_is_no_garbage(store: TestStore) -> None:
    store.offload("s")
    (placed,) = store.layout("s").cold
    put_garbage(store, placed.object.name, object_id=placed.object.id)
    collector(store).collect()
    assert placed.object.name in cold_names(store)
    assert not garbage(store)


def test_a_replica_deletes_nothing(store: TestStore) -> None:
    (placed,) = store.layout("s").local
    put_garbage(store, placed.object.name, Tier.LOCAL, object_id=10**6)
    with store.metadata.write() as txn:
        txn.update_store(replica=True)
    with pytest.raises(Fenced):
        collector(store).collect()
    assert placed.object.name in set(store.files.names())


@pytest.mark.parametrize("error", [None, Unavailable("no answer"), Fenced("another owner")])
def test_objects_go_only_while_the_bucket_is_proven_ours(store: TestStore, error: TierfsError | None) -> None:
    store.cold.put(chunk_name(), BufferSource(b"gone"))
    put_garbage(store, chunk_name())
    with refused(isinstance(error, Fenced), Fenced):
        collector(store, error).collect()
    assert (chunk_name() in cold_names(store)) is (error is not None)
    assert len(garbage(store)) == (error is not None)


def test_a_deletion_that_fails_is_kept_and_tried_later_each_time(
    store: TestStore, cold: ScriptedStorage, clock: ManualClock
) -> None:
    cold.put(chunk_name(), BufferSource(b"gone"))
    put_garbage(store, chunk_name())
    cold.fail("delete", Unavailable("no answer"), on=ALWAYS)
    for attempt, pause_ms in enumerate([1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360], 1):
        collector(store).collect()
        (row,) = garbage(store)
        assert (row.attempts, row.due_ms - clock.now_ms()) == (attempt, pause_ms * MINUTE_MS)
        assert "no answer" in row.last_error
        clock.advance(pause_ms * MINUTE_MS / 1000)


@pytest.mark.parametrize("early_ms", [-1, 0, 1])
def test_garbage_stays_until_it_is_due(store: TestStore, early_ms: int) -> None:
    store.cold.put(chunk_name(), BufferSource(b"gone"))
    put_garbage(store, chunk_name(), due_ms=store.clock.now_ms() + early_ms)
    collector(store).collect()
    assert (chunk_name() in cold_names(store)) is (early_ms > 0)


def test_the_manifest_of_a_job_goes_with_the_last_of_its_objects(store: TestStore) -> None:
    driver = Driver(store)
    driver.write({"out/a": b"a", "out/b": b"b"})
    store.settle()
    for name, left in (("out/a", 1), ("out/b", 0)):
        store.engine.delete(name, recursive=False, cold_due_ms=0)
        with store.holding() as work:
            work.publish()
            work._dismantle()
        store.settle()
        store.settle()
        found = cold_names(store)
        assert len([one for one in found if "manifest-" in one]) == left, "a recovery from objects needs it for out/b"
        assert len([one for one in found if "committed-" in one]) == 1, "else the version would be written again"


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("writer", ["ours", "0" * 32])
def test_an_object_or_a_pack_is_an_orphan_only_if_this_store_made_it_in_this_epoch(
    store: TestStore, epoch: int, writer: str
) -> None:
    store_id = store.metadata.store_id if writer == "ours" else writer
    attempt = AttemptId("a" * 32)
    data = packs.index_and_trailer(packs.PackIndex(store_id, epoch, attempt, 0, ()), 0)
    name = packs.pack_name(ObjectId(10**6), epoch, attempt, crc32c(data))
    store.cold.put(name, BufferSource(data))
    frame = packs.index_frame(packs.PackIndex(store_id, epoch, attempt, 0, ()), 0)
    compressed = packs.pack_name(ObjectId(10**6), epoch, attempt, 0, is_compressed=True)
    store.cold.put(compressed, BufferSource(frame + seek_table([FrameSize(len(frame), 0)])))
    alone = f"segments/s/1/chunk-{0:020d}-{4:020d}-e{epoch}-{attempt}"
    store.cold.put(alone, BufferSource(b"lost"), metadata={"store": store_id})
    found = {orphan.name for orphan in store.cold_work().orphans(grace_s=0)}
    ours = epoch == 1 and writer == "ours"
    assert (name in found, compressed in found, alone in found) == (ours, ours, ours)


@pytest.mark.parametrize("writable", [False, True])
def test_an_adopted_object_in_our_own_place_is_no_orphan(store: TestStore, writable: bool) -> None:
    other, name = LocationId(LOCATION + 1), chunk_name()
    store.cold.put(name, BufferSource(b"gone"), metadata={"store": store.metadata.store_id})
    with store.metadata.write() as txn:
        txn.put(LOCATIONS, tables.u32(other), LocationRecord(id=other, url="memory:/segments", writable=writable))
        holder = ObjectRecord(
            id=ObjectId(txn.allocate_id()),
            tier=Tier.COLD,
            location_id=other,
            name=name.removeprefix("segments/"),
            length=4,
            etag="e",
            foreign=True,
        )
        txn.put(OBJECTS, tables.u64(holder.id), holder)
    found = {orphan.name for orphan in store.cold_work().orphans(grace_s=0)}
    assert (name in found) is writable


def test_a_file_that_a_record_names_by_now_is_not_unlinked(store: TestStore) -> None:
    (placed,) = store.layout("s").local
    stray = file_name(SegmentId(77), 0, AttemptId("f" * 32))
    os.close(store.files.create_file(stray))
    found = [Orphan(Tier.LOCAL, name, 4, next_id=0) for name in (placed.object.name, stray)]
    OrphanFinder(store.metadata, store.files, None, LOCATION).discard(found)
    assert set(store.files.names()) == {placed.object.name}


@pytest.mark.parametrize("commits_first", [True, False])
def test_of_a_commit_and_the_end_of_a_dead_job_the_first_counts(
    store: TestStore, clock: ManualClock, commits_first: bool
) -> None:
    driver = Driver(store)
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"abc"})
    clock.advance(JOB_REST_MS / 1000)
    found = store.cold_work().dead_uploads(grace_s=0)
    assert found
    if commits_first:
        driver.commit(plan, uploaded)
    assert bool(DeadUploads(store.metadata, store.cold, LOCATION).abort(found).aborted) is not commits_first
    with refused(not commits_first, TierfsError):
        store.settle() if commits_first else driver.commit(plan, uploaded)
        assert store.read("out/a") == b"abc"
    with store.metadata.read() as txn:
        assert not list(txn.scan(INTENTS))


@pytest.mark.parametrize("rest_ms", [JOB_REST_MS - 1, JOB_REST_MS])
def test_a_job_lives_as_long_as_objects_are_added(store: TestStore, clock: ManualClock, rest_ms: int) -> None:
    driver = Driver(store)
    plan = driver.begin()
    for number in range(3):
        driver.upload(plan, {f"out/{number}": b"abc"})
        clock.advance(rest_ms / 1000)
        assert bool(store.cold_work().dead_uploads(grace_s=0)) is (rest_ms >= JOB_REST_MS)


def test_objects_of_a_committed_job_are_no_dead_uploads(store: TestStore, clock: ManualClock) -> None:
    driver = Driver(store)
    driver.write({"out/a": b"abc"})
    store.settle()
    clock.advance(2 * JOB_REST_MS / 1000)
    assert not store.cold_work().dead_uploads(grace_s=0)
