"""tierfs doctor --spark --master: every executor of a real cluster is asked, and each way to fail is one finding."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, append
from tests.mount.waiting import eventually
from tests.servers.spark_cluster import SparkCluster, processes_in
from tests.spark.conftest import KEPT
from tierfs.app import store
from tierfs.errors import Unavailable
from tierfs.spark import executors
from tierfs.spark.executor_session import views
from tierfs.spark.executors import ExecutorQuestion, check_executors

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420, method="thread")]

DOCTOR_S = 240
EXECUTORS = ("executor 0", "executor 1")


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/spark.md has it, and nobody else on the cluster."""
    if "spark_cluster" in request.fixturenames:
        KEPT.end()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def findings(cluster: SparkCluster, *words: object, store: Path | None = None, code: int) -> dict[str, dict[str, Any]]:
    """Those of Spark by name, hosts left out."""
    done = tierfs("doctor", "--json", "--master", cluster.master, *words, store=store, check=False, timeout_s=DOCTOR_S)
    assert done.code == code, done
    names = [one["name"] for one in done.json["checks"]]
    of_spark = done.json["checks"][names.index("pyspark") + 1 :]
    return {one["name"].replace(f" ({host()})", ""): one for one in of_spark}


def host() -> str:
    return subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.mount
def test_each_executor_is_asked_for_itself(
    store: store.Store, mount: Mount, spark_cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has all it needs and a mount, and a path that is none; the Python of the other is without any package."""
    append(store, "logs/a", b"x\n")
    verbs.offload(store)
    mnt = mount().path
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    chosen = tmp_path / "python"
    bare = f'*/worker1/*) exec {tmp_path}/bare/bin/python "$@"'
    chosen.write_text(f'#!/bin/sh\ncase $PWD in {bare};; esac\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(chosen))
    found = findings(spark_cluster, "--mount", mnt, "--mount", tmp_path, store=store.path, code=1)
    assert found["executors"]["found"] == f"2 of {spark_cluster.master}, on {host()}"
    place = f"store {store.metadata.store_id}, journal slot {verbs.status(store).journal.slot}"
    without, whole = sorted(EXECUTORS, key=lambda name: found[name]["level"])
    assert (found[without]["level"], found[whole]["level"]) == ("FAIL", "OK")
    assert "has no tierfs: No module named 'tierfs'" in found[without]["found"]
    assert found[without]["remedy"].startswith(f"there: {tmp_path}/bare/bin/python -m pip install 'tierfs-")
    assert f"({sys.executable}), tierfs " in found[whole]["found"]
    assert found[f"{whole}: cold tier"]["level"] == "OK"
    assert (found[f"{whole}: {mnt}"]["level"], found[f"{whole}: {mnt}"]["found"]) == ("OK", place)
    missing = found[f"{whole}: {tmp_path}"]
    assert (missing["level"], missing["found"]) == ("FAIL", "no tierfs mount there (no mount)")
    assert found[f"driver: {mnt}"]["found"] == place
    assert len(found) == 1 + 1 + 4 + 2


def test_executors_whose_python_is_not_there(spark_cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/none/python")
    found = findings(spark_cluster, code=1)
    assert list(found) == ["spark cluster"]
    assert found["spark cluster"]["found"].startswith("executor ")
    assert found["spark cluster"]["found"].endswith("its Python /none/python cannot be started")
    assert "PYSPARK_PYTHON" in found["spark cluster"]["remedy"]


def test_a_cluster_without_room(spark_cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.executor.memory 64g\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with pytest.raises(Unavailable, match="started no executor within 1 s") as caught:
        check_executors(ExecutorQuestion(spark_cluster.master, executors_s=1))
    assert "spark.executor.memory" in (caught.value.remedy or "")


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A server that is no master; Spark tries for a minute."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        yield server
        server.kill()


def test_another_server_at_the_masters_address(
    web_server: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert web_server.stdout is not None
    port = web_server.stdout.readline().split()[5]
    with pytest.raises(Unavailable, match=r"no session on spark://.*: nothing answers as a master within 2 s"):
        check_executors(ExecutorQuestion(f"spark://127.0.0.1:{port}", session_s=2))
    theirs = {os.getpid(), web_server.pid}
    assert eventually(lambda: set(processes_in(tmp_path)) == theirs), "the session's JVM stayed"


def test_a_session_of_this_machine_alone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked in the session that this process has, and not in another one."""
    monkeypatch.setattr(executors, "_ask", lambda question: views(question, pytest.fail))
    (report,) = check_executors(ExecutorQuestion("local[2]"))
    assert (report.executor, report.host, report.program) == ("driver", host(), sys.executable)
