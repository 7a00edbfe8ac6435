"""The Spark cluster is one with two workers, and goes away with its starter; tests/spark/conftest.py sees it end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.mount.waiting import eventually
from tests.servers.process import ServerError
from tests.servers.spark_cluster import ROOT, WORKERS, SparkCluster, living_workers, processes_in

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GONE_S = 90


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is only one process")
def test_one_process_has_every_test_of_a_session(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@spark"), "each process would have JVMs; see setup.py for pytest's version"


def test_a_starter_that_is_killed_takes_them_along(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.servers.spark_cluster", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        web, master = starter.stdout.readline().decode().split()
        assert master.startswith("spark://127.0.0.1:")
        assert living_workers(web) == WORKERS
        assert len(processes_in(tmp_path)) == WORKERS + 1
        starter.send_signal(signal.SIGKILL)
    assert eventually(lambda: processes_in(tmp_path) == [], GONE_S)
    with pytest.raises(OSError, match=r"refused|reset"):
        urlopen(web)


def test_a_failing_start_names_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(ServerError, match=r"^spark-cluster: master ended with 1:"):
        SparkCluster(tmp_path / "cluster").start()
    assert processes_in(tmp_path) == []
