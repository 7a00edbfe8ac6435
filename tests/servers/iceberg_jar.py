"""The jar of Apache Iceberg's runtime for Spark, which has the library that writes its tables.

    python -m tests.servers.iceberg_jar

fetches it with Maven, once (`make test-deps`).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

KEPT = Path(__file__).parents[2] / ".venv" / "iceberg"
JAR = KEPT / "jars" / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
DONE = KEPT / "done"

_POM = Path(__file__).with_name("iceberg") / "pom.xml"
_SHA256 = "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
_FETCH_S = 600


def main() -> None:
    """Fetch the jar; nothing where Maven is missing. Raises ValueError for another jar."""
    if shutil.which("mvn") is None:
        return
    shutil.rmtree(KEPT, ignore_errors=True)
    fetch = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={JAR.parent}"]
    subprocess.run(fetch, check=True, timeout=_FETCH_S)
    found = hashlib.sha256(JAR.read_bytes()).hexdigest()
    if found != _SHA256:
        raise ValueError(f"{JAR.name} has the checksum {found}")
    DONE.touch()


if __name__ == "__main__":
    main()
