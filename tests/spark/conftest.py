"""One Spark session in a process at a time, with its own JVM, on stores and mounts as in tests/mount.

A module uses `spark`, with two threads of its own, or `cluster_spark`, on two workers. The session is kept for the next
module that wants its like: a JVM is warm after 10 s. A test that sets what a session keeps takes a `newSession`.
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

__all__ = ["cluster_spark", "kept_session", "mount", "spark", "spark_cluster", "store"]

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


class KeptSession:
    """The session that is open in this process, if one is."""

    def __init__(self) -> None:
        self._master = ""
        self._session: SparkSession | None = None

    def on(self, master: str, work: Path, settings: Mapping[str, str]) -> SparkSession:
        """Return the one on a master; another one ends."""
        if self._session is None or self._master != master:
            self.end()
            self._master, self._session = master, start(master, work, settings)
        return self._session

    def end(self) -> None:
        """End it; idempotent."""
        if self._session is not None:
            session, self._session = self._session, None
            end(session)


KEPT = KeptSession()


@pytest.fixture(scope="session")
def kept_session() -> Iterator[KeptSession]:
    """It ends with the run."""
    yield KEPT
    KEPT.end()


@pytest.fixture(scope="module")
def spark(kept_session: KeptSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with two threads."""
    return kept_session.on("local[2]", tmp_path_factory.mktemp("spark"), SETTINGS)


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
    KEPT.end()
    server.stop()


@pytest.fixture(scope="module")
def cluster_spark(
    kept_session: KeptSession, spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> SparkSession:
    """A session with an executor on each worker."""
    return kept_session.on(spark_cluster.master, tmp_path_factory.mktemp("spark"), SETTINGS | ON_A_CLUSTER)


def require_java() -> None:
    """Fail the test, with the remedy, if there is no Java."""
    if shutil.which("java") is None:
        pytest.fail("Spark needs Java: mount_helpers/install-deps spark", pytrace=False)


@contextmanager
def open_session(master: str, work: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with a JVM of its own that keeps its files in `work`; both end with the block."""
    KEPT.end()
    session = start(master, work, settings)
    try:
        yield session
    finally:
        end(session)


def start(master: str, work: Path, settings: Mapping[str, str]) -> SparkSession:
    """Start a session and a JVM, where none is."""
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
    return session


def end(session: SparkSession) -> None:
    """Stop the session and the JVM, which Spark would leave to the interpreter's end."""
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    gateway.proc.stdin.close()
    gateway.proc.wait(STOP_S)
