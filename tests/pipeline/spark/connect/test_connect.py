"""Spark Connect: source, sink, streams and jobs in a session whose driver is a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.servers.spark_cluster import ROOT
from tests.verbs import fill
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store

TIMEOUT_S = 240


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """The URL of a server of Spark Connect, in the JVM of other sessions: one of its own takes 10 s of a processor."""
    jvm: Any = spark.sparkContext._jvm
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    plugin = jvm.org.apache.spark.sql.connect.SparkConnectPlugin().driverPlugin()
    plugin.init(context, None)
    yield f"sc://127.0.0.1:{port}"
    plugin.shutdown()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_source_sink_and_jobs_work_in_a_session_of_spark_connect(server: str, tmp_path: Path) -> None:
    for name in ("grpc", "grpc_status", "google.rpc", "zstandard"):  # of PySpark's extra `connect`
        pytest.importorskip(name)
    path, files = tmp_path / "store", tmp_path / "files"
    init_store(path)
    with open_store(path) as store:
        for number in range(3):
            fill(store.engine, f"d/s{number}", iter([b"line %d\n" % number]))
    files.mkdir()
    (files / "f").write_text("file\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.spark.connect.session", server, str(path), str(files)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes.pop("export").startswith("InvalidRequest: an export needs the driver's Java")
    assert outcomes.pop("missing").startswith("AlreadyExists: 1 of the segments already exist")
    assert outcomes == {
        "read": ["line 0", "line 1", "line 2"],
        "write": 2,
        "stream": 3,
        "scrub": 3,
        "report": True,
        "rebuild": {"rebuilt": 0, "failed": 0},
        "ingest": 2,
        "ingest files": 1,
    }
