"""One Spark session for a module, with its own JVM, on stores and mounts as in tests/mount."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.mount.conftest import mount, store

__all__ = ["mount", "spark", "store"]

STOP_S = 30

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Splits smaller than a source file: Spark's tasks begin in the middle of segments.
    "spark.sql.files.maxPartitionBytes": "512k",
    # Task attempts on one machine are not repeated, so that an error is the first one.
    "spark.task.maxFailures": "1",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two threads; its JVM ends with it."""
    if shutil.which("java") is None:
        pytest.fail("Spark needs Java: mount_helpers/install-deps spark", pytrace=False)
    work = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LOCAL_DIRS", str(work))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
        patch.delenv("SPARK_HOME", raising=False)
        builder = SparkSession.builder.master("local[2]").appName("tierfs")
        for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(work / "warehouse")}.items():
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
