"""The jar of Apache Iceberg's runtime for Spark, which has the library that writes its tables.

    python -m tests.servers.iceberg_jar

lets Spark fetch it as users do, once (`make test-deps`; 48 MB).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

KEPT = Path(__file__).parents[2] / ".venv" / "iceberg"
JAR = KEPT / "jars" / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
DONE = KEPT / "done"

_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_SHA256 = "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"


def main() -> None:
    """Fetch the jar. Raises ValueError for another jar, and what Spark raises when it cannot be fetched."""
    shutil.rmtree(KEPT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        fetched = _fetched(Path(directory))
        found = hashlib.sha256(fetched.read_bytes()).hexdigest()
        if found != _SHA256:
            raise ValueError(f"{fetched.name} has the checksum {found}")
        JAR.parent.mkdir(parents=True)
        shutil.copyfile(fetched, JAR)
    DONE.touch()


def _fetched(directory: Path) -> Path:
    from pyspark.sql import SparkSession  # the tests that ask for the jar's place need no Spark

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.jars.packages", _PACKAGE).config("spark.jars.ivy", str(directory)).getOrCreate().stop()
    (fetched,) = directory.glob("jars/*.jar")
    return fetched


if __name__ == "__main__":
    main()
