"""A Spark standalone cluster as a context manager: a master and two workers of one core, about 6 s to start.

Their programs come from PySpark's own wheel. They listen on free loopback ports, keep their files in one directory,
and die with the process that started them, however that ends.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

from tests.mount.waiting import eventually
from tests.servers.process import ServerError, ServerProcess
from tests.servers.quick_java import CONF

ROOT = Path(__file__).parents[2]
WORKERS = 2
WORKER_MEMORY_MIB = 1024
READY_S = 180
GONE_S = 90

_STEP_S = 0.1
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_MASTER_PORT = re.compile(r"Bound MasterWebUI .* started at http://[^:\s]+:(\d+)")
_ALIVE = "ALIVE"


class SparkCluster(ServerProcess):
    """A master and its workers with their files under `directory`; a worker's are in `worker0` and so on."""

    def __init__(self, directory: Path) -> None:
        super().__init__([sys.executable, "-m", "tests.servers.spark_cluster", str(directory)], cwd=ROOT)
        self.directory = directory

    @property
    def master(self) -> str:
        """The URL for sessions, `spark://HOST:PORT`. Only while it runs."""
        return self.words[0]

    def kill(self) -> None:
        """Kill it, as the process of a test run may be, and wait until its daemons are gone with it."""
        assert self._process is not None
        self._process.kill()
        self.stop()
        assert eventually(lambda: processes_in(self.directory) == [], GONE_S), "a daemon outlived the cluster"


class Daemon:
    """One JVM of the cluster; its output is in a file."""

    def __init__(self, name: str, words: Sequence[str], directory: Path, environ: Mapping[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                # The kernel kills it with its starter; spark-class becomes Java under the same number.
                ["setpriv", "--pdeathsig", "KILL", str(spark_home() / "bin" / "spark-class"), *words],
                cwd=directory,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def require_alive(self) -> None:
        """Raise ServerError with its last words when it has ended."""
        if self._process.poll() is not None:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
            raise ServerError(f"spark-cluster: {self.name} ended with {self._process.returncode}:\n{last}")


def spark_home() -> Path:
    """Return the directory of Spark in PySpark's wheel."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServerError("spark-cluster: PySpark is missing: make spark-deps")
    return Path(found.origin).parent


def environment(directory: Path) -> dict[str, str]:
    """Nothing of the user's Spark counts; the executors inherit this."""
    others = ("SPARK_", "PYSPARK_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return kept | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(CONF),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        # Its other REST server would take port 6066, whoever has it.
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
    }


def start(directory: Path) -> tuple[str, str]:
    """The master's web address and its `spark://` one, once all workers are registered."""
    directory.mkdir(exist_ok=True)
    environ, deadline_s = environment(directory), time.monotonic() + READY_S
    daemons: list[Daemon] = []

    def run(name: str, program: str, *words: str, host: str = "127.0.0.1") -> Daemon:
        where = ("--host", host, "--port", "0", "--webui-port", "0")
        daemons.append(Daemon(name, [f"org.apache.spark.deploy.{program}", *where, *words], directory, environ))
        return daemons[-1]

    def pause() -> None:
        for daemon in daemons:
            daemon.require_alive()
        if time.monotonic() > deadline_s:
            raise ServerError(f"spark-cluster: not ready within {READY_S} s, see the logs in {directory}")
        time.sleep(_STEP_S)

    log = run("master", "master.Master").log
    while (port := _MASTER_PORT.search(log.read_text())) is None:
        pause()
    master = _MASTER_URL.search(log.read_text())
    assert master is not None
    for number in range(WORKERS):
        own = ("--cores", "1", "--memory", f"{WORKER_MEMORY_MIB}m", "--work-dir", str(directory / f"worker{number}"))
        # Addresses of their own: Spark runs a second attempt of a slow task on another host only.
        run(f"worker{number}", "worker.Worker", *own, master[1], host=f"127.0.0.{number + 1}")
    web = f"http://127.0.0.1:{port[1]}"
    while living_workers(web) < WORKERS:
        pause()
    return web, master[1]


def living_workers(web: str) -> int:
    """Return the number of living workers of a master."""
    with urlopen(f"{web}/json/") as answer:
        return sum(worker["state"] == _ALIVE for worker in json.load(answer)["workers"])


def processes_in(directory: Path) -> list[int]:
    """Return the numbers of the processes that work below `directory`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            if Path(os.readlink(process / "cwd")).is_relative_to(directory):
                found.append(int(process.name))
    return found


def serve(directory: Path) -> None:
    """Run a cluster until standard input closes."""
    try:
        print(*start(directory), flush=True)
        sys.stdin.read()
    except (ServerError, OSError) as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
