"""The Spark session of a job: made for it, quiet, and ended with its JVM."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tierfs.base.system import processes
from tierfs.base.words import units
from tierfs.base.words.errors import InvalidRequest, NotFound, Unavailable

# For modules that import nothing of Spark.
JobSession: TypeAlias = SparkSession

DEFAULT_MASTER = "local[*]"

# Set by spark-submit, which has started the JVM and set its master.
_GATEWAY = "PYSPARK_GATEWAY_PORT"

_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # Spark starts its workers by `python -m`, in the directory of their JVM: a json.py there would run in each of them.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# For a master to accept a connection; Spark itself tries for a minute, and only its log has the reason.
_MASTER_S = 5.0

_STANDALONE = "spark://"
_OTHER_MASTERS = re.compile(r"local(\[.+\])?$|yarn$|k8s://")
_MAX_PORT = 2**16 - 1
_FIND_MASTER = "start it, or use the URL that its web page shows: spark://HOST:PORT"

_CAUSED_BY = "Caused by: "
_STDOUT, _STDERR = 1, 2
_STOP_S = 30
_LAST_LINES = 5


@contextmanager
def job_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None, *, quiet: bool = True
) -> Iterator[SparkSession]:
    """Start a session for the block: on `master`, by default spark-submit's or all cores of this machine.

    `quiet` keeps Spark's log from standard error. Raises NotFound without Java, Unavailable if no session starts.
    """
    submitted = _GATEWAY in os.environ
    if not submitted:
        require_java()
        master = master or DEFAULT_MASTER
        require_master(master)
        os.environ.update(processes.environment({}))  # the JVM and its workers inherit it
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    session = _open(name, master, settings or {}, quiet=quiet and not submitted)
    try:
        yield session
    finally:
        end(session)


def require_java() -> None:
    """Raise NotFound, with the remedy, if Spark would find no Java."""
    home = os.environ.get("JAVA_HOME")
    exists = (Path(home) / "bin" / "java").is_file() if home else shutil.which("java") is not None
    if not exists:
        raise NotFound(
            f"Spark needs Java, which is not in {home}" if home else "Spark needs Java, which is not installed",
            remedy="as root: apt-get install default-jre-headless",
        )


def require_master(master: str) -> None:
    """Raise InvalidRequest or Unavailable unless the master can be connected to."""
    if not master.startswith(_STANDALONE):
        if _OTHER_MASTERS.match(master) is None:
            raise InvalidRequest(f"{master} is not a Spark master; expected spark://HOST:PORT", remedy=_FIND_MASTER)
        return
    why = ""
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        number = units.decimal(port, _MAX_PORT)
        if not host or number is None:
            raise InvalidRequest(f"{master} is not a Spark master; expected spark://HOST:PORT", remedy=_FIND_MASTER)
        try:
            socket.create_connection((host.strip("[]"), number), _MASTER_S).close()
            return
        except OSError as exc:
            why = exc.strerror or str(exc)
    raise Unavailable(f"no Spark master responds at {master}: {why}", remedy=_FIND_MASTER)


def no_session(master: str, why: str) -> Unavailable:
    """Return the error that keeps a session from starting, or None."""
    return Unavailable(
        f"cannot open a Spark session on {master}: {why}",
        remedy="check that a Spark master responds there, and that the workers can reach this machine",
    )


def cause_of(exc: Exception) -> str:
    """Return the line of a Java or Python error that states what failed, and the last one that states why."""
    lines = [line.strip(": ") for line in str(exc).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("An error occurred while calling", "at "))]
    causes = [line.removeprefix(_CAUSED_BY) for line in messages if line.startswith(_CAUSED_BY)]
    if not messages:
        return type(exc).__name__
    return messages[0] if not causes or causes[-1] in messages[0] else f"{messages[0]}: {causes[-1]}"


def end(session: SparkSession) -> None:
    """Stop the session, and the JVM if this process started it."""
    with suppress(Py4JError, OSError):  # the JVM may be gone already
        session.stop()
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()
    process.wait(_STOP_S)


def _open(name: str, master: str | None, settings: Mapping[str, str], *, quiet: bool) -> SparkSession:
    builder = SparkSession.builder.appName(f"tierfs {name}")
    local = master is not None and master.startswith("local")
    if master is not None:
        builder = builder.master(master)
    for key, value in {**_SETTINGS, **(_LOCAL_SETTINGS if local else {}), **settings}.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        try:
            with _output_of_children(log.fileno() if quiet else None), ended_with_error():
                session = builder.getOrCreate()
        except (Py4JError, PySparkException) as exc:
            log.seek(0)
            errors = [line.strip() for line in log if "ERROR" in line or "Exception" in line][:_LAST_LINES]
            raise no_session(master or "this master", errors[0] if errors else cause_of(exc)) from exc
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def ended_with_error() -> Iterator[None]:
    """End the processes started in the block when it fails: a JVM interrupted early by Ctrl-C would stay."""
    before = _children()
    try:
        yield
    except BaseException:
        for process in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        raise


def _children() -> set[int]:
    children = set[int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                children.add(int(path.parent.name))
    return children


@contextmanager
def _output_of_children(fd: int | None) -> Iterator[None]:
    """Let processes started in the block write to `fd`, for all their life; None changes nothing."""
    if fd is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    own = {number: os.dup(number) for number in (_STDOUT, _STDERR)}
    try:
        for number in own:
            os.dup2(fd, number)
        yield
    finally:
        for number, kept in own.items():
            os.dup2(kept, number)
            os.close(kept)
