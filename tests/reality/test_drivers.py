"""Drivers of a distributed write that meet others: one of them wrote it, and no garbage stays."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked, verbs
from tests.commands import tierfs
from tests.conftest import Bucket
from tests.doubles.manual_clock import ManualClock
from tests.faces.cli.commands.test_daemon import daemon
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.app.verbs import accept_clock
from tierfs.base.system.clock import SystemClock
from tierfs.base.words.object_names import is_about_job
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata.tables import GARBAGE, INTENTS, OBJECTS

DRIVER = "tests.reality.batch_driver"
TWO_DAYS_S = 48 * 3600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store") as opened:
        yield opened


def paused(path: Path, label: str, phase: str = "manifest", rest_bytes: int = 0) -> forked.Talking:
    """A driver that stopped in a phase."""
    driver = forked.Talking(DRIVER, path, phase, "out", label, rest_bytes)
    assert driver.line() == f"{phase}\n"
    return driver


def let_go(driver: forked.Talking) -> str:
    """Continue a driver to its end; return its output."""
    driver.send_signal(signal.SIGUSR1)
    said = driver.line()
    assert driver.wait(60) == 0
    assert driver.end()[1] == ""
    return said.strip()


def labels(store: app.Store) -> set[str]:
    """Return the labels of the drivers that wrote the segments."""
    written = set()
    for part in range(2):
        content = bytearray()
        verbs.cat(store, f"out/part-{part}", None, None, None, content.extend)
        label, _, number = content.decode().partition(" ")
        assert number == str(part)
        written.add(label)
    return written


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
    assert tierfs("check", "--read", store=path).code == 0


def test_of_two_that_commit_one_version_at_once_one_wrote_it(store: app.Store) -> None:
    drivers = {label: paused(store.path, label) for label in "ab"}  # both found the version not committed
    for driver in drivers.values():
        driver.send_signal(signal.SIGUSR1)
    said = {label: let_go(driver) for label, driver in drivers.items()}
    assert sorted(said.values()) == ["repeated", "written"]
    assert labels(store) == {label for label, word in said.items() if word == "written"}
    check_nothing_is_left(store.path)


def test_holders_that_come_and_go_leave_a_running_job_alone(store: app.Store) -> None:
    driver = paused(store.path, "a")
    for _ in range(3):
        with daemon(store.path) as holder:
            os.kill(holder, signal.SIGKILL)
    with daemon(store.path):
        assert let_go(driver) == "written"
    assert labels(store) == {"a"}
    check_nothing_is_left(store.path)


@pytest.mark.s3
def test_parts_of_an_upload_that_was_killed_are_freed(
    tmp_path: Path, rgw_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, bucket = rgw_bucket
    place = Place.parsed(f"s3://{bucket}/p", Server(endpoint.endpoint_url))
    init_store(tmp_path / "store", place)
    paused(tmp_path / "store", "a", "upload", 30 << 20).end()
    later = ManualClock(SystemClock().now_ms())
    with app.open_store(tmp_path / "store", later) as store:
        monkeypatch.setattr(store, "_server_time_ms", lambda _: later.now_ms())  # two days pass for the server, too
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
