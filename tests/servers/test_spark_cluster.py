"""The Spark cluster is one with two workers, and goes away with its starter."""

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
from tests.servers.spark_cluster import ROOT, WORKERS, SparkCluster, living_workers

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GONE_S = 90


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is only one process")
def test_one_process_has_every_test_of_a_session(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@spark"), "each process would have JVMs; see setup.py for pytest's version"


@pytest.mark.whole  # the next one starts a cluster too
def test_stop_ends_every_daemon(tmp_path: Path) -> None:
    with SparkCluster(tmp_path) as cluster:
        assert cluster.master.startswith("spark://127.0.0.1:")
        web = cluster.endpoint_url
        assert living_workers(web) == WORKERS
        assert len(daemons(tmp_path)) == WORKERS + 1
    assert daemons(tmp_path) == []
    with pytest.raises(OSError, match="refused"):
        urlopen(web)


def test_a_starter_that_is_killed_takes_them_along(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.servers.spark_cluster", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().startswith(b"http://")
        assert len(daemons(tmp_path)) == WORKERS + 1
        starter.send_signal(signal.SIGKILL)
    assert eventually(lambda: daemons(tmp_path) == [], GONE_S)


def test_a_failing_start_names_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(ServerError, match=r"^spark-cluster: master ended with 1:"):
        SparkCluster(tmp_path / "cluster").start()
    assert daemons(tmp_path) == []


def daemons(directory: Path) -> list[int]:
    """Numbers of the processes that work below `directory`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = Path(os.readlink(process / "cwd"))
        except OSError:
            continue  # it ended while we looked
        if where.is_relative_to(directory):
            found.append(int(process.name))
    return found
