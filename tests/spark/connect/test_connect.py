"""Spark Connect: source, sink, streams and jobs in a session whose driver is a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.conftest import require_java
from tierfs.app.store import open_store
from tierfs.bench.run import fill
from tierfs.setup.create import ColdChoice, init_store

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 240
NEEDED = ("grpc", "grpc_status", "google.rpc", "zstandard")
"""What PySpark's extra `connect` installs."""


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_source_sink_and_jobs_work_in_a_session_of_spark_connect(tmp_path: Path) -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'")
    require_java()
    path, files = tmp_path / "store", tmp_path / "files"
    init_store(path, ColdChoice())
    with open_store(path) as store:
        for number in range(3):
            fill(store.engine, f"d/s{number}", iter([b"line %d\n" % number]))
    files.mkdir()
    (files / "f").write_text("file\n")
    words = [sys.executable, "-m", "tests.spark.connect.session", str(path), str(files)]
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
    }
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes.pop("export").startswith("InvalidRequest: an export moves files by the driver's Java")
    assert outcomes.pop("missing").startswith("AlreadyExists: 1 of the segments exist already")
    assert outcomes == {
        "read": ["line 0", "line 1", "line 2"],
        "write": None,
        "written": 2,
        "stream": None,
        "streamed": 3,
        "scrub": 3,
        "report": True,
        "rebuild": {"rebuilt": 0, "failed": 0},
        "ingest": 2,
        "ingest files": 1,
    }
