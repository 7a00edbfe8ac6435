"""Checks of Java and PySpark. Neither is started or imported but for `java -version`."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tierfs.base.system import extras, processes
from tierfs.faces.doctor.findings import DoctorFinding, fail, ok

_MIN_JAVA = 17

# As setup.py asks for; it needs that Java.
_MIN_PYSPARK = (4, 0)

_JAVA_ANSWERS_S = 30
_INSTALL_JAVA = "as root: apt-get install default-jre-headless"

# Java 8 calls itself 1.8.
_OLD_SCHEME = "1"


def check_spark() -> Iterator[DoctorFinding]:
    """Check Java and PySpark, as a Spark session started here would find them."""
    yield java(java_answer(os.environ))
    try:
        pyspark_version: str | None = version("pyspark")
    except PackageNotFoundError:
        pyspark_version = None
    yield pyspark(pyspark_version)


def java_answer(environ: Mapping[str, str]) -> str | None:
    """Run `java -version`, of JAVA_HOME first as Spark does; None where there is no Java."""
    home = environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environ.get("PATH"))
    if program is None:
        return None
    try:
        done = processes.run([Path(program), "-version"], timeout_s=_JAVA_ANSWERS_S)
    except (OSError, processes.TimeoutExpired):
        return None
    return done.stderr + done.stdout


def java(answer: str | None) -> DoctorFinding:
    """Check whether Java is there and new enough, from the output of `java -version`."""
    if answer is None:
        return fail("java", f"missing; Spark needs Java {_MIN_JAVA} or newer", _INSTALL_JAVA)
    match = re.search(r'version "([0-9]+)(?:\.([0-9]+))?[^"]*"', answer)
    if match is None:
        return fail("java", "`java -version` does not print a version", _INSTALL_JAVA)
    major = int(match[2] if match[1] == _OLD_SCHEME and match[2] else match[1])
    if major < _MIN_JAVA:
        return fail("java", f"Java {major}; Spark needs {_MIN_JAVA} or newer", _INSTALL_JAVA)
    return ok("java", f"Java {major}")


def pyspark(installed: str | None) -> DoctorFinding:
    """Check whether PySpark is there and new enough, from its version."""
    wanted = ".".join(map(str, _MIN_PYSPARK))
    if installed is None:
        return fail("pyspark", f"missing; tierfs needs {wanted} or newer", extras.install("spark"))
    parts = re.match(r"([0-9]+)\.([0-9]+)", installed)
    if parts is None or (int(parts[1]), int(parts[2])) < _MIN_PYSPARK:
        return fail("pyspark", f"PySpark {installed}; tierfs needs {wanted} or newer", extras.install("spark"))
    return ok("pyspark", f"PySpark {installed}")
