"""Exactly once on two workers: an executor is killed, a task is run twice; no line is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Bucket
from tests.mount.waiting import eventually
from tests.servers.spark_cluster import SparkCluster
from tests.spark.conftest import ON_A_CLUSTER, SETTINGS, open_session
from tests.spark.write_jobs import GO_S, Gate, freeze_executor, kill_executor, line, rows_that_wait
from tests.spark.written import assert_written_once, bucket_store, garbage, named, uploads
from tierfs.app import store as app
from tierfs.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.timeout(420, method="thread")]

ROWS = 4_000
"""Of a task: 4 MB, in objects of 1 MiB."""

REPEATING = {
    "spark.task.maxFailures": "4",
    # Objects are sent while the task still waits for rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}

SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    # Time alone makes a task slow, not rows per second.
    "spark.speculation.efficiency.enabled": "false",
}


class Write:
    """Two partitions on their way into a store; the first waits at a gate."""

    def __init__(self, spark: SparkSession, pool: ThreadPoolExecutor, store: app.Store, gate: Gate) -> None:
        self._saving = pool.submit(self._save, spark, store, gate)

    @staticmethod
    def _save(spark: SparkSession, store: app.Store, gate: Gate) -> None:
        register(spark)
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
def start(
    spark_cluster: SparkCluster, store: app.Store, gate: Gate, tmp_path: Path
) -> Iterator[Callable[[dict[str, str]], Write]]:
    """Starts a write in a session of its own; both end with the test."""
    (tmp_path / "spark").mkdir()
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:

        def begin(settings: dict[str, str]) -> Write:
            settings = SETTINGS | ON_A_CLUSTER | settings
            session = stack.enter_context(open_session(spark_cluster.master, tmp_path / "spark", settings))
            return Write(session, pool, store, gate)

        yield begin


@pytest.fixture
def store(tmp_path: Path, rgw_bucket: Bucket) -> Iterator[app.Store]:
    with bucket_store(tmp_path / "store", rgw_bucket) as opened:
        yield opened


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def test_an_executor_that_is_killed_in_the_middle(
    start: Callable[[dict[str, str]], Write], store: app.Store, gate: Gate
) -> None:
    """Its whole machine, so that nothing of it cleans up."""
    write = start(REPEATING)
    write.until(lambda: gate.has("waiting-0") and bool(attempts(store)))
    lost = attempts(store)
    kill_executor(gate.executor("waiting-0"))
    gate.arrive("go-1")
    write.end()
    assert len(lost) == 1
    assert uploads(store) - named(store) <= garbage(store)
    assert_written_once(store, whole())
    assert attempts(store).isdisjoint(lost)


def test_two_attempts_write_and_one_wins(
    start: Callable[[dict[str, str]], Write], store: app.Store, gate: Gate
) -> None:
    """The first one hangs, with objects in the bucket, when the second one ends.

    It is frozen, not only waiting: when Spark kills it, its input ends, and it may send its rest after the commit.
    """
    write = start(REPEATING | SPECULATING)
    write.until(lambda: gate.has("waiting-0") and gate.has("waiting-1") and len(attempts(store)) == 2)
    freeze_executor(gate.executor("waiting-0"))
    gate.arrive("go-1")
    write.end()
    kill_executor(gate.executor("waiting-0"))
    assert uploads(store) - named(store) <= garbage(store)
    assert_written_once(store, whole())
    assert len(attempts(store)) == 1


def attempts(store: app.Store) -> set[str]:
    """Attempts of the first partition that have objects in the bucket."""
    names = (name.rpartition("/")[2] for name in uploads(store))
    return {name.split("-")[1] for name in names if name.startswith("00000000-")}


def whole() -> list[bytes]:
    """Return the bytes that both tasks write."""
    return [b"".join(f"{line(part, number)}\n".encode() for number in range(ROWS)) for part in range(2)]
