"""A Java for processes of Spark that live for minutes: with kept classes a session and ten queries take 15 s.

    python -m tests.servers.quick_java

parses the classes of Spark once and keeps them beside the environment (180 MB; `make test-deps`). A JVM of another
Java or PySpark does not take them, and without them reads Spark's jars.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

KEPT = Path(__file__).parents[2] / ".venv" / "spark-classes"
CONF = KEPT / "conf"
"""Spark's configuration, which is empty: the first entry of the class path, to which the classes are bound."""

_CLASSES = KEPT / "classes.jsa"
# Compiling for longer lives takes two cores for more than it gives back; classes of releases need no verification.
OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


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
    program.write_text(f'#!/bin/sh\nexec {java} {OPTIONS} {kept} "$@"\n')
    program.chmod(0o755)
    return {"SPARK_CONF_DIR": str(CONF), "JAVA_HOME": str(home)}


def main() -> None:
    """Keep the classes of a session that reads, writes, streams and runs Python."""
    from pyspark import SparkContext  # tests without Spark import this module
    from pyspark.sql import SparkSession

    with TemporaryDirectory() as work:
        _CLASSES.unlink(missing_ok=True)
        os.environ.update(install(Path(work)), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
        new = _CLASSES.with_suffix(".new")
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config(
            "spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={new} -Xlog:disable"
        ).getOrCreate()
        rows = session.createDataFrame(session.sparkContext.parallelize([("a", 1), ("b", 2)], 2), "k string, v int")
        for kind in ("json", "csv", "parquet"):
            rows.write.format(kind).save(f"{work}/{kind}")
            session.read.schema("k string, v int").format(kind).load(f"{work}/{kind}").groupBy("k").count().collect()
        lines = session.readStream.text(f"{work}/json").writeStream.format("parquet")
        lines = lines.option("path", f"{work}/out").option("checkpointLocation", f"{work}/checkpoint")
        lines.trigger(availableNow=True).start().awaitTermination()
        gateway = SparkContext._gateway
        session.stop()
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        new.replace(_CLASSES)


if __name__ == "__main__":
    main()
