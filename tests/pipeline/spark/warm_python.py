"""The Python of Spark's processes: each is forked from one that has imported all, which a new interpreter does in 1 s.

Spark starts a daemon of each session for each step of a read or a write, and a process for each stream. Sessions of
tests name `program()` for their Python: it passes its words, environment and streams to the server that forks. Real
interpreters are those of tests/pipeline/spark/test_processes.py, of spark-submit, and of the executors that the
doctor asks.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import forked
from tests.servers.spark_cluster import ROOT

IMPORTED = (
    *("pandas", "prometheus_client", "pyarrow", "pyspark.worker", "pyspark_tierfs"),
    *("pyspark.sql.worker.commit_data_source_write", "pyspark.sql.worker.write_into_data_source"),
    *(f"pyspark.sql.worker.{name}" for name in ("create_data_source", "lookup_data_sources", "plan_data_source_read")),
    *("tierfs.app.batches.driver", "tierfs.engine.chunkstore.s3.storage"),
    *(f"tierfs.pipeline.spark.{name}" for name in ("planning", "source", "stream_reader", "stream_writer", "writer")),
)
_PROGRAM = """#!{python} -ISE
import os, socket, sys
if sys.argv[1] != "-m":  # Spark asks for the version
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
sys.path.append({root!r})
from tests.servers import fork_request
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
    server.connect({requests!r})
    module, *words = sys.argv[2:]
    env = {{**os.environ, {jvm!r}: str(os.getppid())}}
    with fork_request.send(server, module, words, env, (0, 1, 2)) as answers:
        answers.recv(fork_request.ANSWER_BYTES)
        sys.exit(int(answers.recv(fork_request.ANSWER_BYTES)))
"""
GIVEN = "TESTS_PYTHON_OF_SPARK"
"""Names the variable with the program, for a process of a test that is a driver of Spark itself."""

_JVM = "TESTS_JVM"
_COMM = Path("/proc/self/comm")


@cache
def program() -> str:
    """Return the path of the program, for which GIVEN stands; else start its server, which ends with this process."""
    if given := os.environ.get(GIVEN):
        return given
    directory = TemporaryDirectory(prefix="python-of-spark-")
    requests, path = f"{directory.name}/requests", Path(directory.name, "python")
    words = [sys.executable, "-m", __name__, requests]
    server = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], cwd=ROOT, stdout=subprocess.PIPE)
    out = server.stdout
    assert out is not None
    assert out.readline() == b"ready\n"
    path.write_text(_PROGRAM.format(python=sys.executable, root=str(ROOT), requests=requests, jvm=_JVM))
    path.chmod(0o755)

    def end() -> None:
        server.kill()
        server.wait()
        out.close()
        directory.cleanup()

    atexit.register(end)
    return str(path)


def jvm() -> int:
    """Return the JVM that began this process, of which its workers are."""
    return int(_COMM.read_text().split()[1])


def processes_of(jvm: int) -> list[int]:
    """Return the processes that a JVM began, and their workers."""
    return [int(comm.parent.name) for comm in Path("/proc").glob("[0-9]*/comm") if _is(comm, f"jvm {jvm}")]


def _is(comm: Path, name: str) -> bool:
    with suppress(OSError):  # it ended meanwhile
        return comm.read_text().strip() == name
    return False


def main() -> None:
    """Fork for each request; a child ends as the module does that it runs."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
        requests.bind(sys.argv[1])
        print("ready", flush=True)
        todo = forked._serve(requests)
    assert todo is not None
    module, sys.argv[1:] = todo
    _COMM.write_text(f"jvm {os.environ.pop(_JVM)}")
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
