"""One Spark session for a module, with its own JVM, on stores and mounts as in tests/mount.

One session at a time: a module uses `spark`, with two threads of its own, or `cluster_spark`, on two workers.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.mount.conftest import mount, store
from tests.servers.process import ServerError
from tests.servers.spark_cluster import ROOT, SparkCluster

__all__ = ["cluster_spark", "mount", "spark", "spark_cluster", "store"]

STOP_S = 90

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Splits smaller than a source file: Spark's tasks begin in the middle of segments.
    "spark.sql.files.maxPartitionBytes": "512k",
    # Task attempts on one machine are not repeated, so that an error is the first one.
    "spark.task.maxFailures": "1",
}


ON_A_CLUSTER = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    # Tasks import tierfs, and functions of these tests.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    # The first task waits for both executors, so that both get some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads; its JVM ends with it."""
    with open_session("local[2]", tmp_path_factory.mktemp("spark"), SETTINGS) as session:
        yield session


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers of one core, started once for the run."""
    require_java()
    server = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        server.start()
    except ServerError as exc:
        pytest.fail(str(exc), pytrace=False)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster_spark(spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with an executor on each worker."""
    with open_session(spark_cluster.master, tmp_path_factory.mktemp("spark"), SETTINGS | ON_A_CLUSTER) as session:
        yield session


def require_java() -> None:
    """Fail the test, with the remedy, if there is no Java."""
    if shutil.which("java") is None:
        pytest.fail("Spark needs Java: mount_helpers/install-deps spark", pytrace=False)


@contextmanager
def open_session(master: str, work: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with a JVM of its own that keeps its files in `work`; both end with the block."""
    require_java()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LOCAL_DIRS", str(work))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
        patch.delenv("SPARK_HOME", raising=False)
        builder = SparkSession.builder.master(master).appName("tierfs")
        for name, value in {**settings, "spark.sql.warehouse.dir": str(work / "warehouse")}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # a test that provokes an error sees it as an exception
    try:
        yield session
    finally:
        end(session)


def end(session: SparkSession) -> None:
    """Stop the session and the JVM, which Spark would leave to the interpreter's end."""
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()
    gateway.proc.wait(STOP_S)
