"""A Java for processes of Spark that live for minutes: with kept classes a session and ten queries take 15 s.

    python -m tests.servers.quick_java

parses the classes of Spark once and keeps them beside the environment (225 MB; `make test-deps`). A JVM of another
Java or PySpark does not take them, and without them reads Spark's jars.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

KEPT = Path(__file__).parents[2] / ".venv" / "spark-classes"
CONF = KEPT / "conf"
"""Spark's configuration, which is empty: the first entry of the class path, to which the classes are bound."""

_CLASSES = KEPT / "classes.jsa"
_OF_EXECUTORS = (
    "org.apache.spark.deploy.worker.ExecutorRunner",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
)

_CONNECTED = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = session.createDataFrame([("a", 1), ("b", 2)], "k string, v int")
rows.write.format("json").save(sys.argv[2] + "/by-connect")
session.read.format("json").load(sys.argv[2] + "/by-connect").count()
lines = session.readStream.text(sys.argv[2] + "/json").writeStream.format("parquet")
lines = lines.option("path", sys.argv[2] + "/connected").option("checkpointLocation", sys.argv[2] + "/check-connected")
lines.trigger(availableNow=True).start().awaitTermination()
session.stop()
"""

# Compiling for longer lives takes two cores for more than it gives back; classes of releases need no verification.
OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"

# For sessions that set nothing, as those of the documents: a query of a test runs once, so compiling it, and
# planning it again while it runs, takes longer.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def install(home: Path) -> dict[str, str]:
    """Make a JAVA_HOME of the Java that is there; returns variables for Spark. Without Java they name none."""
    kept = f"-XX:SharedArchiveFile={_CLASSES} -Xlog:disable" if _CLASSES.exists() else ""
    CONF.mkdir(parents=True, exist_ok=True)
    theirs = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{theirs}/bin/java" if theirs else "java")
    if java is None:
        return {"SPARK_CONF_DIR": str(CONF)}
    program = home / "bin" / "java"
    program.parent.mkdir()
    settings = " ".join(f"-D{name}={value}" for name, value in _SETTINGS.items())
    program.write_text(f'#!/bin/sh\nexec {java} {OPTIONS} {kept} {settings} "$@"\n')
    program.chmod(0o755)
    return {"SPARK_CONF_DIR": str(CONF), "JAVA_HOME": str(home)}


def main() -> None:
    """Keep the classes of a cluster, and of a session that reads, writes, streams, runs Python and serves Connect."""
    import pyspark  # tests without Spark import this module
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with TemporaryDirectory() as work:
        _CLASSES.unlink(missing_ok=True)
        os.environ.update(install(Path(work)), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
        new = _CLASSES.with_suffix(".new")
        # Master and worker are in this JVM; executors are not.
        cluster = SparkSession.builder.master("local-cluster[1,1,512]").config("spark.ui.enabled", "false")
        cluster = cluster.config("spark.executor.memory", "512m").config(
            "spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={new} -Xlog:disable"
        )
        session = cluster.getOrCreate()
        session.range(2).count()
        gateway = SparkContext._gateway
        assert gateway is not None
        for name in _OF_EXECUTORS:
            gateway.jvm.java.lang.Class.forName(name)
        session.stop()
        shutil.rmtree(Path(pyspark.__file__).parent / "work")  # of the worker, which takes no other place
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        session = builder.config("spark.connect.grpc.binding.port", str(port)).getOrCreate()
        rows = session.createDataFrame(session.sparkContext.parallelize([("a", 1), ("b", 2)], 2), "k string, v int")
        for kind in ("json", "csv", "parquet"):
            rows.write.format(kind).save(f"{work}/{kind}")
            session.read.schema("k string, v int").format(kind).load(f"{work}/{kind}").groupBy("k").count().collect()
        lines = session.readStream.text(f"{work}/json").writeStream.format("parquet")
        lines = lines.option("path", f"{work}/out").option("checkpointLocation", f"{work}/checkpoint")
        lines.trigger(availableNow=True).start().awaitTermination()
        if find_spec("grpc") is not None:  # of PySpark's extra `connect`
            subprocess.run([sys.executable, "-c", _CONNECTED, f"sc://127.0.0.1:{port}", work], check=True)
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        new.replace(_CLASSES)


if __name__ == "__main__":
    main()
