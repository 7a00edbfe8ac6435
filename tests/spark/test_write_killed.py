"""Exactly once on two workers: an executor is killed, a task is run twice; no line is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Bucket
from tests.mount.waiting import eventually
from tests.spark.write_jobs import GO_S, Gate, freeze_executor, kill_executor, line, rows_that_wait
from tests.spark.written import assert_nothing_else_is_there, bucket_store, contents, garbage, named, uploads
from tierfs.app import store as app
from tierfs.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.timeout(420, method="thread")]

ROWS = 4_000
"""Of a task: 4 MB, in objects of 1 MiB."""


class Write:
    """Two partitions on their way into a store; the first waits at a gate."""

    def __init__(self, spark: SparkSession, pool: ThreadPoolExecutor, store: app.Store, gate: Gate) -> None:
        self._saving = pool.submit(self._save, spark, store, gate)

    @staticmethod
    def _save(spark: SparkSession, store: app.Store, gate: Gate) -> None:
        register(spark)
        # Objects are sent while the task still waits for rows.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        rows = spark.sparkContext.parallelize(range(2), 2).flatMap(partial(rows_that_wait, gate, count=ROWS))
        table = spark.createDataFrame(rows, "value string")
        table.write.format("tierfs").mode("append").option("store", str(store.path)).save("out")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, with the write under way."""
        assert eventually(lambda: self._saving.done() or condition(), GO_S)
        if self._saving.done():
            pytest.fail(f"it ended too soon: {self._saving.exception()}")

    def end(self) -> None:
        """Wait for the commit."""
        self._saving.result(GO_S)


@pytest.fixture
def store(tmp_path: Path, rgw_bucket: Bucket) -> Iterator[app.Store]:
    with bucket_store(tmp_path / "store", rgw_bucket) as opened:
        yield opened


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def test_an_executor_that_is_killed_in_the_middle(cluster_spark: SparkSession, store: app.Store, gate: Gate) -> None:
    """Its whole machine, so that nothing of it cleans up."""
    with ThreadPoolExecutor(1) as pool:
        write = Write(cluster_spark, pool, store, gate)
        write.until(lambda: gate.has("waiting-0") and bool(attempts(store)))
        lost = attempts(store)
        kill_executor(gate.executor("waiting-0"))
        gate.arrive("go")
        gate.arrive("go-1")
        write.end()
    assert len(lost) == 1
    assert_written_once(store)
    assert attempts(store).isdisjoint(lost)


def test_two_attempts_write_and_one_wins(cluster_spark: SparkSession, store: app.Store, gate: Gate) -> None:
    """The first one hangs, with objects in the bucket, when the second one ends.

    It is frozen, not only waiting: when Spark kills it, its input ends, and it may send its rest after the commit.
    """
    gate.arrive("go")
    with ThreadPoolExecutor(1) as pool:
        write = Write(cluster_spark, pool, store, gate)
        write.until(lambda: gate.has("waiting-0") and gate.has("waiting-1") and len(attempts(store)) == 2)
        freeze_executor(gate.executor("waiting-0"))
        gate.arrive("go-1")
        write.end()
        kill_executor(gate.executor("waiting-0"))
    assert_written_once(store)
    assert len(attempts(store)) == 1


def assert_written_once(store: app.Store) -> None:
    """Both tasks' bytes are there once, and what else was uploaded is garbage, which goes."""
    assert uploads(store) - named(store) <= garbage(store)
    assert contents(store) == [
        b"".join(f"{line(part, number)}\n".encode() for number in range(ROWS)) for part in range(2)
    ]
    assert_nothing_else_is_there(store)


def attempts(store: app.Store) -> set[str]:
    """Attempts of the first partition that have objects in the bucket."""
    names = (name.rpartition("/")[2] for name in uploads(store))
    return {name.split("-")[1] for name in names if name.startswith("00000000-")}
