"""Exactly once: the driver of a stream from a store to a store is killed, and the next one goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Bucket
from tests.mount.conftest import append
from tests.mount.waiting import eventually
from tests.pipeline.spark import warm_python
from tests.pipeline.spark.reading import lines_of, text
from tests.pipeline.spark.write_jobs import DRIVER, GO_S, Gate, run_stream
from tests.pipeline.spark.written import assert_nothing_else_is_there, bucket_store, contents, segments
from tests.servers.spark_cluster import ROOT
from tierfs.app import store as app

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.timeout(420, method="thread")]


@pytest.fixture
def store(tmp_path: Path, rgw_bucket: Bucket) -> Iterator[app.Store]:
    with bucket_store(tmp_path / "store", rgw_bucket) as opened:
        yield opened


def test_a_killed_driver(spark: SparkSession, store: app.Store, tmp_path: Path) -> None:
    """Batches are committed, and one is not: the next driver reads it again, and what came meanwhile."""
    truth = {"in/a": text(1, 100) + b"wait\n" + text(2, 100), "in/b": text(3, 20)}
    append(store, "in/a", truth["in/a"])
    gate = Gate(tmp_path / "gate")
    (tmp_path / "spark").mkdir()
    program = warm_python.program()
    words = [program, "-m", "tests.pipeline.spark.write_jobs", str(store.path), str(tmp_path)]
    driver = subprocess.Popen(words, cwd=ROOT, env=os.environ | {warm_python.GIVEN: program}, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: gate.has("waiting"), GO_S)
    finally:
        os.killpg(int((tmp_path / DRIVER).read_text()), signal.SIGKILL)  # with its JVM
        driver.wait()
    before = segments(store, "out")
    assert before
    truth["in/a"] += b"more\n"
    append(store, "in/a", b"more\n", seal=True)
    append(store, "in/b", truth["in/b"])
    run_stream(spark, store.path, tmp_path)
    assert set(before) < set(segments(store, "out"))
    found = [line for data in contents(store, "out") for line in lines_of(data)]
    assert sorted(found) == sorted(line for data in truth.values() for line in lines_of(data))
    last = max((tmp_path / "checkpoint/offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(json.loads(last.read_text().splitlines()[-1])["open"]) == 1
    assert_nothing_else_is_there(store)
