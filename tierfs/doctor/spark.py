"""Checks of what Spark needs: Java and PySpark. Neither is started or imported but for `java -version`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tierfs.doctor.findings import Finding, fail, ok

_MIN_JAVA = 17
_MIN_PYSPARK = (4, 2)
"""As setup.py asks for; it needs that Java."""

_JAVA_ANSWERS_S = 30
_INSTALL_JAVA = "as root: apt-get install default-jre-headless"
INSTALL_PYSPARK = "pip install 'pyspark>=4.2,<5' 'pyarrow>=18,<27' 'pandas>=2.2,<3'"
"""The extra `spark` of setup.py."""

_OLD_SCHEME = "1"
"""Java 8 calls itself 1.8."""


def check_spark() -> Iterator[Finding]:
    """Java and PySpark, as a Spark session started here would find them."""
    yield java(java_answer(os.environ))
    try:
        found: str | None = version("pyspark")
    except PackageNotFoundError:
        found = None
    yield pyspark(found)


def java_answer(environ: Mapping[str, str]) -> str | None:
    """What `java -version` says, of JAVA_HOME first as Spark does; None where there is no Java."""
    home = environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_JAVA_ANSWERS_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr + done.stdout


def java(answer: str | None) -> Finding:
    """Whether Java is there and new enough, from what `java -version` answered."""
    if answer is None:
        return fail("java", f"missing; Spark needs Java {_MIN_JAVA} or newer", _INSTALL_JAVA)
    found = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', answer)
    if found is None:
        return fail("java", "`java -version` does not tell its version", _INSTALL_JAVA)
    major = int(found[2] if found[1] == _OLD_SCHEME and found[2] else found[1])
    if major < _MIN_JAVA:
        return fail("java", f"Java {major}; Spark needs {_MIN_JAVA} or newer", _INSTALL_JAVA)
    return ok("java", f"Java {major}")


def pyspark(found: str | None) -> Finding:
    """Whether PySpark is there and new enough, from its version."""
    wanted = ".".join(map(str, _MIN_PYSPARK))
    if found is None:
        return fail("pyspark", f"missing; tierfs needs {wanted} or newer", INSTALL_PYSPARK)
    parts = re.match(r"(\d+)\.(\d+)", found)
    if parts is None or (int(parts[1]), int(parts[2])) < _MIN_PYSPARK:
        return fail("pyspark", f"PySpark {found}; tierfs needs {wanted} or newer", INSTALL_PYSPARK)
    return ok("pyspark", f"PySpark {found}")
