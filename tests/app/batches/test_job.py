"""Distributed writes: all segments of a batch at once, exactly once per application and version."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.app.batches.batch_writes import Driver, committed, contents, garbage, marked, upload, uploads
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, assert_layout
from tests.upkeep.check.looking import cold_findings, findings
from tests.upkeep.holder.holding import set_policy
from tierfs.app.batches.job import GivenUp
from tierfs.app.batches.upload import SegmentUpload
from tierfs.base.words import object_names
from tierfs.base.words.errors import AlreadyExists, Conflict, DataLoss, InvalidRequest, NotDirectory, Unavailable
from tierfs.base.words.types import MIB, PayloadEncoding, SegmentStatus
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.metadata.tables import INTENTS, OBJECTS
from tierfs.reading import compressed_objects

AN_HOUR_S = 3600
A_DAY_S = 24 * AN_HOUR_S


@pytest.fixture(autouse=True)
def sound(store: TestStore) -> Iterator[None]:
    yield
    assert (findings(store), cold_findings(store)) == ([], [])


@pytest.fixture
def driver(store: TestStore) -> Driver:
    return Driver(store)


def test_all_segments_of_a_batch_appear_at_once(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"0123456789abcdefghij", "out/k=1/b": b"xyz", "out/empty": b""})
    assert contents(store) == {}
    done = driver.commit(plan, uploaded)
    assert (done.segments, done.bytes, done.repeated) == (3, 23, False)
    assert contents(store) == {"out/a": b"0123456789abcdefghij", "out/empty": b"", "out/k=1/b": b"xyz"}
    assert_layout(store, "out/a", local=[], cold=[8, 8, 4])
    assert store.segment("out/a").status is SegmentStatus.SEALED
    assert committed(store) == [("nightly", "1", 0)]
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
        assert all(row.references == 1 and row.crc32c is not None for _, row in txn.scan(OBJECTS))


def test_a_repeated_version_changes_nothing_and_its_objects_go(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"first"})
    driver.commit(plan, uploaded)
    assert driver.commit(plan, uploaded).repeated, "an answer that was lost is asked for again"
    assert driver.jobs.abort(plan.job) == 0, "an abort after the commit must not take what was committed"
    before = uploads(store)
    assert driver.write({"out/b": b"again"}).repeated
    assert contents(store) == {"out/a": b"first"}
    store.settle()
    assert uploads(store) == before
    assert not driver.write({"out/b": b"next"}, version=2).repeated
    assert contents(store) == {"out/a": b"first", "out/b": b"next"}


def test_the_last_version_is_repeated_by_its_own_query_alone(store: TestStore, driver: Driver) -> None:
    """A new checkpoint counts from 0 too: its first batch would pass for a repeat, and be lost."""

    def write(query: str) -> bool:
        plan = driver.begin()
        uploaded = driver.upload(plan, {"out/a": b"rows"})
        return driver.jobs.commit(plan.job, "named", 0, uploaded, seal=True, writer=query).repeated

    assert not write("first")
    assert write("first")
    with pytest.raises(Conflict, match="batch 0 of named was committed by a query with another checkpoint"):
        write("second")
    assert write(""), "a write that is no stream"


def test_objects_of_attempts_that_lost_become_garbage(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    lost = upload(store, plan, 0, "out/a", b"slow")
    uploaded = [upload(store, plan, 0, "out/a", b"fast")]
    driver.commit(plan, uploaded)
    assert garbage(store) == {lost.objects[0].name}
    store.settle()
    assert contents(store) == {"out/a": b"fast"}
    assert len(uploads(store)) == 2, "the object and the manifest"


def test_an_aborted_job_leaves_nothing_and_cannot_be_committed(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"first", "out/b": b"second-longer"})
    assert driver.jobs.abort(plan.job) == 3
    assert driver.jobs.abort(plan.job) == 0
    store.settle()
    assert uploads(store) == set()
    with pytest.raises(GivenUp, match="was abandoned"):
        driver.commit(plan, uploaded)
    with pytest.raises(GivenUp):
        driver.commit(plan, [])
    assert (contents(store), committed(store)) == ({}, [])


def test_a_name_that_is_taken_commits_nothing(store: TestStore, driver: Driver) -> None:
    store.append("out/b", b"here")
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"1", "out/b": b"2"})
    with pytest.raises(AlreadyExists, match="out/b already exists, so nothing of the batch was committed"):
        driver.commit(plan, uploaded)
    assert (contents(store), committed(store)) == ({"out/b": b"here"}, [])
    store.engine.delete("out/b", recursive=False, cold_due_ms=0)
    assert driver.commit(plan, uploaded).segments == 2, "the same call succeeds later"


def test_names_of_a_batch_are_checked(store: TestStore, driver: Driver) -> None:
    store.append("out/file", b"here")
    for names, error in (
        (["out/a", "out/a"], InvalidRequest),
        (["out/a", "/out//a"], InvalidRequest),
        (["out/file/a"], NotDirectory),
        (["out/a", "out/a/b"], NotDirectory),
    ):
        plan = driver.begin()
        uploaded = [upload(store, plan, at, name, b"1") for at, name in enumerate(names)]
        with pytest.raises(error):
            driver.commit(plan, uploaded)
        driver.jobs.abort(plan.job)
    assert contents(store) == {"out/file": b"here"}
    with pytest.raises(NotDirectory, match="is a segment"):
        driver.begin("out/file/below")


def test_a_directory_that_is_read_from_the_disk_only_takes_no_write(store: TestStore) -> None:
    set_policy(store, read_priority="local-only")
    for ask in (Driver(store).begin, Driver(store).jobs.require_possible):
        with pytest.raises(InvalidRequest, match="is read only from the local disk"):
            ask("out")
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0


def test_an_object_that_is_missing_or_short_commits_nothing(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"first", "out/b": b"second"})
    name = uploaded[1].objects[0].name
    store.cold.delete(name)
    with pytest.raises(Unavailable, match="is missing in the bucket"):
        driver.commit(plan, uploaded)
    store.cold.put(name, BufferSource(b"sec"))
    with pytest.raises(DataLoss, match="has 3 of 6 bytes"):
        driver.commit(plan, uploaded)
    assert contents(store) == {}
    driver.jobs.abort(plan.job)


def test_uploads_take_the_form_that_the_policy_of_their_directory_asks_for(store: TestStore, driver: Driver) -> None:
    set_policy(store, chunk_bytes=str(MIB), object_bytes=str(2 * MIB), compression="auto")
    data = {"out/text": b"0123456789" * 300_000, "out/random": random.Random(1).randbytes(300_000)}
    plan = driver.begin()
    done = driver.commit(plan, driver.upload(plan, data, step_bytes=MIB))
    assert done.bytes == sum(map(len, data.values()))
    assert contents(store) == data
    stored = {one.name: one for one in store.cold.list("uploads/")}
    with store.metadata.read() as txn:
        records = [record for _, record in txn.scan(OBJECTS)]
    assert [record.encoding for record in records] == [PayloadEncoding.ZSTD_FRAMES] * 2 + [PayloadEncoding.RAW]
    for record in records:
        assert stored[record.name].length_bytes == record.stored_bytes
        assert object_names.is_ours(record.name)
        if record.encoding is PayloadEncoding.ZSTD_FRAMES:
            assert record.name.endswith(".zst")
            assert record.stored_bytes < record.length / 100
            assert record.crc32c is not None
            sums = compressed_objects.proved(store.cold, stored[record.name], record.length, record.crc32c)
            assert (sums.stored_crc32c, record.crc32c) == (record.stored_crc32c, sums.crc32c)


@pytest.mark.parametrize("lost", ["lengths", "stored_length"])
def test_frames_that_are_not_those_of_the_object_commit_nothing(store: TestStore, driver: Driver, lost: str) -> None:
    set_policy(store, compression="zstd")
    plan = driver.begin()
    (uploaded,) = driver.upload(plan, {"out/a": b"first"})
    (made,) = uploaded.objects
    assert made.frames is not None
    frames = replace(made.frames, **{lost: b"" if lost == "lengths" else made.frames.stored_length + 1})
    with pytest.raises(DataLoss, match=r"has \d+ of \d+ bytes"):
        driver.commit(plan, [replace(uploaded, objects=(replace(made, frames=frames),))])
    assert contents(store) == {}
    driver.jobs.abort(plan.job)


def test_an_upload_holds_one_object_in_memory(store: TestStore) -> None:
    plan = Driver(store).begin()
    with SegmentUpload(store.cold, plan, 0, "out/a") as segment:
        for _ in range(5):
            segment.write(b"0123456789")
            assert len(segment._gathered) < plan.object_bytes == 8
        assert segment.length == 50


def test_a_new_holder_and_gc_leave_a_living_job_alone(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"first"})
    store.cold_work().resolve_crashed()
    store.clock.advance(A_DAY_S - 1)
    uploaded.append(upload(store, plan, 1, "out/b", b"second"))
    store.clock.advance(A_DAY_S - 1)
    store.cold_work().collect_all(grace_s=0)
    driver.commit(plan, uploaded)
    assert contents(store) == {"out/a": b"first", "out/b": b"second"}


def test_gc_ends_the_job_of_a_driver_that_died(store: TestStore, driver: Driver) -> None:
    silent, plan = driver.begin(), driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"first"})
    store.clock.advance(A_DAY_S)
    found = {one.name for one in store.cold_work().dead_uploads(grace_s=AN_HOUR_S)}
    assert found == {silent.prefix, plan.prefix, uploaded[0].objects[0].name}
    store.cold_work().collect_all(grace_s=AN_HOUR_S)
    assert uploads(store) == set()
    with store.metadata.read() as txn:
        assert txn.count(INTENTS.name) == 0
    with pytest.raises(GivenUp):
        driver.commit(plan, uploaded)


def test_gc_does_not_end_a_job_that_is_committed_meanwhile(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"first"})
    store.clock.advance(A_DAY_S)
    dead = store.cold_work().dead_uploads(grace_s=AN_HOUR_S)
    driver.commit(plan, uploaded)
    store.cold_work()._dead_uploads().abort(dead)
    store.settle()
    assert contents(store) == {"out/a": b"first"}


def test_a_manifest_and_its_marker_go_with_the_last_object_of_their_job(store: TestStore, driver: Driver) -> None:
    """The marker of an application's last commit stays, as it tells the versions of all."""
    for version in (1, 2, 3):
        driver.write({f"out/{version}a": b"0123456789", f"out/{version}b": b"xyz"}, version)
    store.settle()
    assert (marked(store), len(uploads(store))) == ([1, 2, 3], 12)
    for name in ("out/1a", "out/2a", "out/2b", "out/3a", "out/3b"):
        store.engine.delete(name, recursive=False, cold_due_ms=0)
    store.settle()
    store.settle()
    assert (marked(store), len(uploads(store))) == ([1, 3], 2), "an object of 1 is in use, and 3 is the last commit"
    driver.write({"out/4": b"4"}, 4)
    store.settle()
    assert marked(store) == [1, 3, 4]
    store.clock.advance(A_DAY_S)
    store.settle()
    assert marked(store) == [1, 4]
    store.collect()
    assert (marked(store), contents(store)) == ([1, 4], {"out/1b": b"xyz", "out/4": b"4"})


def test_versions_without_objects_leave_one_marker(store: TestStore) -> None:
    for version in range(1, 30):
        Driver(store).write({"out/empty": b""} if version == 1 else {}, version)
    store.settle()
    store.settle()
    assert (marked(store), uploads(store)) == ([29], set())
    assert Driver(store).write({"out/a": b"1"}, 7).repeated


def test_a_write_without_an_application_leaves_nothing_behind_its_data(store: TestStore, driver: Driver) -> None:
    plan = driver.begin()
    uploaded = driver.upload(plan, {"out/a": b"0123456789"})
    driver.jobs.commit(plan.job, f"job {plan.job}", 0, uploaded, seal=True)
    store.settle()
    assert marked(store) == [0]
    store.engine.delete("out/a", recursive=False, cold_due_ms=0)
    store.settle()
    store.settle()
    assert (marked(store), uploads(store)) == ([], set())


def test_a_bucket_that_cannot_be_listed_keeps_the_last_object_in_the_queue(
    store: TestStore, storage: ScriptedStorage, driver: Driver
) -> None:
    """Else nothing would lead to the manifest any more."""
    driver.write({"out/a": b"01234"})
    driver.write({"out/b": b"01234"}, 2)
    store.settle()
    store.engine.delete("out/a", recursive=False, cold_due_ms=0)
    with store.holding() as work:
        work.publish()
        storage.fail("list", Unavailable("no answer"), of="uploads/")
        assert work.collect().failed == 1
    store.clock.advance(AN_HOUR_S)
    store.settle()
    store.settle()
    assert (marked(store), len(uploads(store))) == ([2], 2)


def test_of_two_jobs_of_one_version_at_once_one_commits(
    store: TestStore, storage: ScriptedStorage, driver: Driver
) -> None:
    jobs = [(plan, driver.upload(plan, {f"out/{number}": b"abc"})) for number in (1, 2) for plan in [driver.begin()]]
    storage.do("put", lambda: driver.commit(*jobs[1]), of="manifest-")
    assert driver.commit(*jobs[0]).repeated
    assert contents(store) == {"out/2": b"abc"}
    store.settle()
    assert len(uploads(store)) == 2, "the object of the one, and its manifest"
