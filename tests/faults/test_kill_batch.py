"""kill -9 of the driver of a distributed write in each phase: all of a batch or nothing, once, and no garbage."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked, verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.disks import disk, fill
from tests.faults.batch_driver import TAIL
from tests.mount.waiting import eventually
from tierfs.app import batch_write
from tierfs.app import store as app
from tierfs.app.verbs import accept_clock
from tierfs.clock import ManualClock, SystemClock
from tierfs.errors import StorageFull
from tierfs.metadata import directories
from tierfs.metadata.tables import GARBAGE, INTENTS, OBJECTS
from tierfs.setup.create import ColdChoice, init_store
from tierfs.tiering.batch_job import is_about_job

DRIVER = "tests.faults.batch_driver"
TWO_DAYS_S = 48 * 3600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    init_store(tmp_path / "store", ColdChoice())
    with app.open_store(tmp_path / "store") as opened:
        yield opened


def paused(store: app.Store, phase: str) -> forked.Talking:
    """A driver that stopped in a phase."""
    driver = forked.Talking(DRIVER, store.path, phase)
    assert driver.line() == f"{phase}\n"
    return driver


def let_go(driver: forked.Talking) -> str:
    """Continue a driver to its end; return its output."""
    driver.send_signal(signal.SIGUSR1)
    said = driver.line()
    assert driver.wait(60) == 0
    assert driver.end()[1] == ""
    return said.strip()


def whole_run(store: app.Store) -> str:
    """A driver that is not stopped."""
    driver = forked.Talking(DRIVER, store.path, "none")
    said = driver.line()
    assert driver.wait(60) == 0
    assert driver.end()[1] == ""
    return said.strip()


def writers(store: app.Store) -> set[str]:
    """Return the writers of the segments, which are whole: both exist or none."""
    with store.metadata.read() as txn:
        entry = directories.find(txn, "out")
        names = [name for name, _ in directories.segments_below(txn, entry, "out")] if entry else []
    assert names in ([], ["out/part-0", "out/part-1"])
    found = set()
    for name in names:
        content = bytearray()
        verbs.cat(store, name, None, None, None, content.extend)
        pid, _, tail = bytes(content).partition(b" ")
        assert tail == TAIL
        found.add(pid.decode())
    return found


def check_nothing_is_left(path: Path) -> None:
    """Two days later `gc` leaves the objects of the batch, its manifest and its marker, and nothing else."""
    later = ManualClock(SystemClock().now_ms())
    later.advance(TWO_DAYS_S)
    with app.open_store(path, later) as store:
        accept_clock(store)
        verbs.collect(store)
        with store.metadata.read() as txn:
            assert (txn.count(INTENTS.name), txn.count(GARBAGE.name)) == (0, 0)
            named = {row.name for _, row in txn.scan(OBJECTS)}
        location_id = store.cold_location_id
        assert location_id is not None
        listed = {one.name for one in store.storage_of(location_id).list("uploads/")}
        assert {name for name in listed if not is_about_job(name)} == named
        assert len(listed) == len(named) + 2
        assert list((path / "cold" / ".tmp").glob("*")) == []
    assert tierfs("fsck", "--deep", store=path).code == 0


@pytest.mark.parametrize("phase", ["upload", "manifest", "transaction"])
def test_a_driver_killed_before_its_commit_wrote_nothing_and_the_next_writes_it(store: app.Store, phase: str) -> None:
    paused(store, phase).end()
    assert writers(store) == set()
    assert whole_run(store) == "written"
    assert len(writers(store)) == 1
    assert whole_run(store) == "repeated"
    check_nothing_is_left(store.path)


def test_a_driver_killed_after_its_commit_wrote_all_and_the_next_repeats_it(store: app.Store) -> None:
    driver = paused(store, "publish")
    driver.end()
    assert writers(store) == {str(driver.pid)}
    assert whole_run(store) == "repeated"
    assert writers(store) == {str(driver.pid)}
    check_nothing_is_left(store.path)


def test_of_two_that_commit_one_version_at_once_one_wrote_it(store: app.Store) -> None:
    drivers = [paused(store, "manifest") for _ in range(2)]  # both found the version not committed
    for driver in drivers:
        driver.send_signal(signal.SIGUSR1)
    said = {str(driver.pid): driver.line().strip() for driver in drivers}
    for driver in drivers:
        assert driver.wait(60) == 0
        assert driver.end()[1] == ""
    assert sorted(said.values()) == ["repeated", "written"]
    assert writers(store) == {pid for pid, word in said.items() if word == "written"}
    check_nothing_is_left(store.path)


def test_holders_that_come_and_go_leave_a_running_job_alone(store: app.Store) -> None:
    driver = paused(store, "manifest")
    for _ in range(2):
        holder = forked.Talking("tests.faults.holder", store.path, "publish")
        assert eventually(lambda: verbs.status(store).holder is not None, 30)
        holder.end()
    holder = forked.Talking("tests.faults.holder", store.path, "publish")
    assert eventually(lambda: verbs.status(store).holder is not None, 30)
    assert let_go(driver) == "written"
    assert writers(store) == {str(driver.pid)}
    holder.end()
    check_nothing_is_left(store.path)


@pytest.mark.s3
def test_parts_of_an_upload_that_was_killed_are_freed(tmp_path: Path, rgw_bucket: Bucket) -> None:
    endpoint, bucket = rgw_bucket
    choice = ColdChoice(bucket_url=f"s3://{bucket}/p", endpoint_url=endpoint.endpoint_url)
    init_store(tmp_path / "store", choice)
    driver = forked.Talking(DRIVER, tmp_path / "store", "upload", 10)
    assert driver.line() == "upload\n"
    driver.end()
    later = ManualClock(SystemClock().now_ms())
    with app.open_store(tmp_path / "store", later) as store:
        location_id = store.cold_location_id
        assert location_id is not None
        storage = store.storage_of(location_id)
        assert len(list(storage.uploads("uploads/"))) == 1
        store.cold_work().collect_all(grace_s=0)
        assert len(list(storage.uploads("uploads/"))) == 1, "somebody may finish it"
        later.advance(TWO_DAYS_S)
        store.cold_work().collect_all(grace_s=0)
        assert list(storage.uploads("uploads/")) == []
        with store.metadata.read() as txn:
            assert txn.count(INTENTS.name) == 0


def test_a_full_disk_at_the_commit_leaves_nothing_half_made(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    with disk(tmp_path / "disk", 200 << 20) as path:
        tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=path / "store")
        with app.open_store(path / "store") as store:
            job = batch_write.begin(store, "nightly", "out")
            uploaded = []
            for partition in range(2000):
                with job.upload.task(partition) as task:
                    task.open(f"part-{partition}").write(b"%d" % partition)
                    uploaded += task.finish()
            fill(path / "fill")
            with pytest.raises(StorageFull):
                batch_write.commit(store, job, uploaded, 1)
            assert not batch_write.is_committed(store, "nightly", 1)
            (path / "fill").unlink()
            assert batch_write.commit(store, job, uploaded, 1).segments == 2000
        assert tierfs("fsck", store=path / "store").code == 0
