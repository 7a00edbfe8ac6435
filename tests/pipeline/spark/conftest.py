"""A process has one JVM of Spark at a time, and a module a session of it, on stores and mounts as in tests/mount.

A module uses `spark`, with two threads of its own, or `cluster_spark`, on two workers. The JVM is kept for the next
module: it is warm after 20 s, as the first job of each kind takes ten times as long as the next.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tests.mount.conftest import mount, store
from tests.pipeline.spark import warm_python
from tests.servers.spark_cluster import ROOT
from tests.servers.spark_within import ClusterWithin

if TYPE_CHECKING:
    from tests.pipeline.spark.tables import Lake
    from tierfs.app.store import Store

__all__ = ["cluster_spark", "kept_jvm", "mount", "spark", "spark_cluster", "store"]

STOP_S = 90

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # A query of a test runs once: compiling it, and planning it again while it runs, takes longer.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Splits smaller than a source file: Spark's tasks begin in the middle of segments.
    "spark.sql.files.maxPartitionBytes": "128k",
    # Task attempts on one machine are not repeated, so that an error is the first one.
    "spark.task.maxFailures": "1",
}


ON_A_CLUSTER = {
    # Tasks are repeated, and run twice, as on any cluster.
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    # Time alone makes a task slow, not rows per second.
    "spark.speculation.efficiency.enabled": "false",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    # Tasks import tierfs, and functions of these tests.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    # The first task waits for both executors, so that both get some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


class Jvm:
    """The JVM of this process, if it has one."""

    def __init__(self) -> None:
        self._gateway: Any = None

    def started(self, work: Path) -> Any:
        """Its packages. It is started, with files in `work`, unless it runs."""
        if self._gateway is None:
            require_java()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
                patch.setenv("SPARK_LOCAL_DIRS", str(work))
                patch.setenv("TMPDIR", str(work))  # replicas of buckets lie in the directory of temporary files
                patch.setenv("PYSPARK_PYTHON", warm_python.program())  # for what the JVM itself asks Python
                patch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
                patch.delenv("SPARK_HOME", raising=False)
                self._gateway = launch_gateway(SparkConf(loadDefaults=False).setAll([*SETTINGS.items()]))
            SparkContext._ensure_initialized(gateway=self._gateway)
        return self._gateway.jvm

    def end(self) -> None:
        """Stop it, which Spark would leave to the interpreter's end; idempotent."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None
            gateway.proc.stdin.close()
            gateway.proc.wait(STOP_S)


JVM = Jvm()


class KeptJvm:
    """A context in the JVM, if there is one."""

    def __init__(self) -> None:
        self._master = ""
        self._first: SparkSession | None = None

    @contextmanager
    def session(self, master: str, work: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        """A session on a master, in the JVM that is there: its configuration, views and queries are its own."""
        if self._first is None or self._master != master:
            self.leave()
            self._master, self._first = master, start(master, work, settings)
        first, session = self._first, self._first.newSession()
        yield session
        if self._first is not first:  # a test ended it
            return
        assert not session.streams.active, "a query was left"
        for table in session.sql("SHOW TABLES").collect():  # tables are there for all sessions of a context
            session.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.tableName}")

    def leave(self) -> None:
        """End the context; idempotent."""
        first, self._first = self._first, None
        if first is not None:
            first.stop()

    def end(self) -> None:
        """End the JVM; idempotent."""
        self.leave()
        JVM.end()


KEPT = KeptJvm()


@pytest.fixture(scope="session")
def kept_jvm() -> Iterator[KeptJvm]:
    """It ends with the run."""
    yield KEPT
    KEPT.end()


@pytest.fixture(scope="module")
def spark(kept_jvm: KeptJvm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads."""
    with kept_jvm.session("local[2]", tmp_path_factory.mktemp("spark"), SETTINGS) as session:
        yield session


@pytest.fixture(scope="module")
def spark_cluster(kept_jvm: KeptJvm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWithin]:
    """A master and two workers of one core."""
    kept_jvm.leave()
    server = ClusterWithin(JVM.started(tmp_path_factory.mktemp("spark")), tmp_path_factory.mktemp("cluster"))
    try:
        server.start()
        yield server
    finally:
        kept_jvm.leave()
        server.stop()


@pytest.fixture(scope="module")
def cluster_spark(
    kept_jvm: KeptJvm, spark_cluster: ClusterWithin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session with an executor on each worker."""
    settings = SETTINGS | ON_A_CLUSTER
    with kept_jvm.session(spark_cluster.master, tmp_path_factory.mktemp("spark"), settings) as session:
        yield session


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Store]:
    """An empty store, without a mount."""
    from tierfs.app.setup.create import init_store
    from tierfs.app.store import open_store

    init_store(tmp_path / "store")
    with open_store(tmp_path / "store") as made:
        yield made


@pytest.fixture(params=["iceberg", "parquet", "delta"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, opened: Store, tmp_path: Path) -> Lake:
    """Tables of each format. What writes them takes a second to import, and only these tests need it."""
    from tests.pipeline.spark.tables import Lake

    return Lake.of(spark, opened, tmp_path / "lake", request.param)


def require_java() -> None:
    """Fail the test, with the remedy, if there is no Java."""
    if shutil.which("java") is None:
        pytest.fail("Spark needs Java: mount_helpers/install-deps spark", pytrace=False)


@contextmanager
def open_session(master: str, work: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with a JVM of its own, with files in `work`; both end with the block. The kept one ends before."""
    KEPT.end()
    session = start(master, work, settings)
    try:
        yield session
    finally:
        session.stop()
        JVM.end()


def start(master: str, work: Path, settings: Mapping[str, str]) -> SparkSession:
    """Start the first session of a context, in the JVM that is there or a new one."""
    JVM.started(work)
    builder = SparkSession.builder.master(master).appName("tierfs")
    for name, value in {**settings, "spark.sql.warehouse.dir": str(work / "warehouse")}.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", warm_python.program())
        interrupt = signal.getsignal(signal.SIGINT)
        session = builder.getOrCreate()
        # PySpark's handler cancels jobs of its context, and fails in later tests of this process, when that is stopped.
        signal.signal(signal.SIGINT, interrupt)
    session.sparkContext.setLogLevel("OFF")  # a test that provokes an error sees it as an exception
    return session
