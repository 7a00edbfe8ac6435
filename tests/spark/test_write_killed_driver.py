"""Exactly once: the driver of a stream is killed before and after its commit, and the next one repeats the batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.mount.waiting import eventually
from tests.servers.spark_cluster import ROOT
from tests.spark.write_jobs import GO_S, Gate
from tests.spark.written import assert_written_once, bucket_store, contents
from tierfs.app import store as app
from tierfs.metadata.tables import BATCHES

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.timeout(420, method="thread")]


class Driver:
    """A process that runs the stream of write_jobs; `kill` ends it with its JVM and all its workers."""

    def __init__(self, store: app.Store, work: Path) -> None:
        words = [sys.executable, "-m", "tests.spark.write_jobs", str(store.path), str(work)]
        (work / "spark").mkdir(exist_ok=True)
        self._process = subprocess.Popen(words, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> int:
        return self._process.wait(2 * GO_S)


@pytest.fixture
def start(store: app.Store, tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    """Starts drivers of one stream, one after another."""
    started: list[Driver] = []

    def begin() -> Driver:
        started.append(Driver(store, tmp_path))
        return started[-1]

    yield begin
    for one in started:
        if one._process.poll() is None:
            one.kill()


@pytest.fixture
def store(tmp_path: Path, rgw_bucket: Bucket) -> Iterator[app.Store]:
    with bucket_store(tmp_path / "store", rgw_bucket) as opened:
        yield opened


def committed(store: app.Store) -> bool:
    with store.metadata.read() as txn:
        return any(True for _ in txn.scan(BATCHES))


def test_drivers_that_are_killed(start: Callable[[], Driver], store: app.Store, tmp_path: Path) -> None:
    """The first before its commit, the second after it; the third finds nothing to do."""
    files, gate = tmp_path / "files", Gate(tmp_path / "gate")
    files.mkdir()
    (files / "a").write_text("one\ntwo\n")
    first = start()
    assert eventually(lambda: gate.has("waiting"), GO_S)
    first.kill()
    assert not committed(store)
    gate.arrive("go")
    second = start()
    assert eventually(lambda: committed(store), GO_S)
    second.kill()
    assert contents(store) == [b"one\ntwo\n"]
    assert start().end() == 0
    assert_written_once(store, [b"one\ntwo\n"])
