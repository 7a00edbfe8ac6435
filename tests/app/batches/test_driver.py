"""Distributed writes through the store's own face: executors in processes of their own, and what `begin` refuses."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.stores import Pauses
from tierfs.app import store as app
from tierfs.app.batches import driver
from tierfs.app.batches.executor import Acknowledge, WriteJob
from tierfs.app.batches.job import Written
from tierfs.app.setup.create import init_store
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words.errors import Fenced, InvalidRequest, NoColdTier, PermissionDenied, Unavailable
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata.batch_records import UploadedSegment
from tierfs.upkeep.holder import lock

LARGE = os.urandom(MIB) * 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def s3_store(tmp_path: Path, rgw_bucket: Bucket) -> Iterator[app.Store]:
    endpoint, bucket = rgw_bucket
    place = Place.parsed(f"s3://{bucket}/p", Server(endpoint.endpoint_url))
    init_store(tmp_path / "store", place)
    with app.open_store(tmp_path / "store") as opened:
        yield opened


def run_task(job: WriteJob, partition: int, data: bytes) -> tuple[UploadedSegment, ...]:
    """Upload as an executor does: another process, with the job alone."""
    with job.task(partition) as task:
        upload = task.open(f"part-{partition:05d}")
        for at in range(0, len(data), 100_000):
            upload.write(data[at : at + 100_000])
        return task.finish()


def failing_task(job: WriteJob) -> None:
    """Upload as an executor whose data ends in an error, one segment being finished."""
    with job.task(7) as task:
        task.open("a").write(b"finished")
        task.finish()
        raise ValueError("bad row")


def in_executors(job: WriteJob, *data: bytes) -> list[UploadedSegment]:
    """Run the tasks in processes that are forked from one which knows of no store, and has imported what they need."""
    context = get_context("forkserver")
    context.set_forkserver_preload([run_task.__module__])
    with ProcessPoolExecutor(2, context) as pool:
        running = [pool.submit(run_task, job, number, one) for number, one in enumerate(data)]
        return [segment for task in running for segment in task.result()]


def read(store: app.Store, name: str) -> bytes:
    found: list[bytes] = []
    verbs.cat(store, name, None, None, None, lambda data: found.append(bytes(data)))
    return b"".join(found)


def objects(store: app.Store) -> list[str]:
    location_id = store.cold_location_id
    assert location_id is not None
    return [one.name for one in store.storage_of(location_id).list("uploads/")]


def write(store: app.Store, version: int) -> Written:
    """Begin in one process, upload in two others, commit in the first with what was pickled between."""
    job: WriteJob = pickle.loads(pickle.dumps(driver.begin(store, "nightly", "tables/orders")))
    return driver.commit(store, job, in_executors(job, b"one\n", LARGE), version)


def test_executors_without_a_store_write_what_the_driver_commits(store: app.Store) -> None:
    done = write(store, 1)
    assert (done.segments, done.bytes, done.repeated, done.published) == (2, 4 + len(LARGE), False, True)
    assert read(store, "tables/orders/part-00000") == b"one\n"
    assert read(store, "tables/orders/part-00001") == LARGE
    assert driver.is_committed(store, "nightly", 1)
    assert not driver.is_committed(store, "nightly", 2)


@pytest.mark.s3
def test_executors_write_to_a_bucket_and_a_repeat_changes_nothing(s3_store: app.Store) -> None:
    assert write(s3_store, 1).published
    assert read(s3_store, "tables/orders/part-00001") == LARGE
    before = objects(s3_store)
    assert write(s3_store, 1).repeated
    assert verbs.settle(s3_store) is None
    assert objects(s3_store) == before
    assert tierfs("check", "--read", "--json", store=s3_store.path).code == 0


def test_a_task_that_fails_leaves_no_object(store: app.Store) -> None:
    job = driver.begin(store, "nightly", "out")
    with pytest.raises(ValueError, match="bad row"):
        failing_task(job)
    assert objects(store) == []
    assert driver.abort(store, job) == 0


def test_what_is_not_below_the_directory_is_refused(store: app.Store) -> None:
    job = driver.begin(store, "nightly", "out")
    with pytest.raises(InvalidRequest, match="elsewhere/x is not below out"):
        driver.commit(store, job, [UploadedSegment("elsewhere/x", ())], 1)


def test_a_write_needs_a_cold_tier(tmp_path: Path) -> None:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "store")
    with app.open_store(tmp_path / "store") as store, pytest.raises(NoColdTier):
        driver.begin(store, "nightly", "out")


def test_a_replica_refuses_a_write(store: app.Store, tmp_path: Path) -> None:
    assert verbs.settle(store) is None
    tierfs("-q", "replica", "--cold-dir", store.path / "cold", store=tmp_path / "copy")
    with app.open_store(tmp_path / "copy") as copy, pytest.raises(Fenced, match="replica"):
        driver.begin(copy, "nightly", "out")


def test_a_store_that_was_superseded_refuses_a_write(store: app.Store, tmp_path: Path) -> None:
    assert verbs.settle(store) is None
    tierfs("-q", "recover", "--cold-dir", store.path / "cold", store=tmp_path / "new")
    with pytest.raises(Fenced, match="another store owns the bucket"):
        driver.begin(store, "nightly", "out")
    with app.open_store(tmp_path / "new") as owner:
        assert driver.begin(owner, "nightly", "out").id


def test_a_write_that_is_superseded_before_its_commit_fails(store: app.Store, tmp_path: Path) -> None:
    job = driver.begin(store, "nightly", "out")
    uploaded = run_task(job, 0, b"late")
    tierfs("-q", "recover", "--cold-dir", store.path / "cold", store=tmp_path / "new")
    with pytest.raises(Fenced):
        driver.commit(store, job, uploaded, 1)
    with app.open_store(tmp_path / "new") as owner:
        assert not driver.is_committed(owner, "nightly", 1)


@contextmanager
def silent_journal(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every PUT of a slot fail, and the pauses of the commit's deadline pass at once."""
    with monkeypatch.context() as patch:
        pauses = Pauses()
        patch.setattr(driver, "_deadline", lambda _: Deadline.after(60, "ack.deadline_s", pauses))
        patch.setattr(driver, "sleep", pauses.sleep)
        patch.setattr(Publisher, "_create", lambda *_: (_ for _ in ()).throw(Unavailable("503")))
        yield


def upload_of(store: app.Store, application: str | None = "nightly") -> tuple[WriteJob, tuple[UploadedSegment, ...]]:
    job = driver.begin(store, application, "out")
    return job, run_task(job, 0, b"one\n")


def test_a_commit_that_the_journal_does_not_name_fails_and_its_repeat_is_safe(
    store: app.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, uploaded = upload_of(store)
    with silent_journal(store, monkeypatch):
        for _ in range(2):
            with pytest.raises(Unavailable, match="version 1 of nightly is not in the bucket's journal yet: 503"):
                driver.commit(store, job, uploaded, 1)
        with pytest.raises(Unavailable, match="not in the bucket's journal"):
            driver.repeated(store, "nightly", 1)
    assert driver.abort(store, job) == 0, "an abort after the failure takes nothing"
    again, others = upload_of(store)
    done = driver.commit(store, again, others, 1)
    assert (done.segments, done.bytes, done.repeated, done.published) == (0, 0, True, True)
    assert driver.repeated(store, "nightly", 2) is None
    shutil.rmtree(store.path / "metadata")
    tierfs("-q", "recover", "--cold-dir", store.path / "cold", store=tmp_path / "new")
    with app.open_store(tmp_path / "new") as owner:
        assert driver.is_committed(owner, "nightly", 1)
        assert read(owner, "out/part-00000") == b"one\n"


def test_a_commit_that_is_acknowledged_locally_does_not_wait(
    store: app.Store, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append("version 1 of nightly is committed, but not yet in the bucket's journal: 503")
    job, uploaded = upload_of(store)
    with silent_journal(store, monkeypatch):
        done = driver.commit(store, job, uploaded, 1, acknowledge=Acknowledge.LOCAL)
    assert (done.segments, done.published) == (1, False)
    again = driver.repeated(store, "nightly", 1)
    assert again is not None
    assert (again.segments, again.bytes, again.repeated, again.published) == (0, 0, True, True)


def test_a_commit_waits_for_a_holder_that_cannot_publish_and_fails(
    store: app.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, uploaded = upload_of(store)
    pauses = Pauses()
    monkeypatch.setattr(driver, "_deadline", lambda _: Deadline.after(60, "ack.deadline_s", pauses))
    monkeypatch.setattr(driver, "sleep", pauses.sleep)
    with lock.hold(store.paths.holder, store.clock), pytest.raises(Unavailable, match="the holder has not published"):
        driver.commit(store, job, uploaded, 1)
    assert driver.commit(store, job, uploaded, 1).published


def test_another_error_of_the_bucket_is_raised_as_itself(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job, uploaded = upload_of(store)
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "_create", lambda *_: (_ for _ in ()).throw(PermissionDenied("403")))
        with pytest.raises(PermissionDenied, match="403"):
            driver.commit(store, job, uploaded, 1)
    assert driver.commit(store, job, uploaded, 1).repeated
