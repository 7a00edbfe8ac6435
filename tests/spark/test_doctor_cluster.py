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
from tierfs.spark import executor_session, executors
from tierfs.spark.executor_session import await_slots, views
from tierfs.spark.executors import ExecutorQuestion, check_executors

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420, method="thread")]

DOCTOR_S = 240
EXECUTORS = ("executor 0", "executor 1")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/spark.md has it."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def findings(master: str, *words: object, store: Path | None = None) -> dict[str, dict[str, Any]]:
    """Those of Spark by name, hosts left out, of which at least one is a failure."""
    done = tierfs("doctor", "--json", "--master", master, *words, store=store, check=False, timeout_s=DOCTOR_S)
    assert done.code == 1, done
    names = [one["name"] for one in done.json["checks"]]
    of_spark = done.json["checks"][names.index("pyspark") + 1 :]
    return {one["name"].replace(f" ({os.uname().nodename})", ""): one for one in of_spark}


@pytest.mark.mount
def test_each_executor_is_asked_for_itself(
    store: store.Store, mount: Mount, spark_cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has all it needs and a mount, and a path that is none; the Python of the other is without any package."""
    KEPT.end()  # its executors have the cluster's cores
    append(store, "logs/a", b"x\n")
    verbs.offload(store)
    mnt = mount().path
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    chosen = tmp_path / "python"
    bare = f'*/worker1/*) exec {tmp_path}/bare/bin/python "$@"'
    chosen.write_text(f'#!/bin/sh\ncase $PWD in {bare};; esac\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(chosen))
    found = findings(spark_cluster.master, "--mount", mnt, "--mount", tmp_path, store=store.path)
    assert found["executors"]["found"] == f"2 of {spark_cluster.master}, on {os.uname().nodename}"
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


def test_executors_whose_python_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor here is the driver's own, as its log tells of all in the same words."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/none/python")
    ((name, found),) = findings("local[1]").items()
    assert name == "spark cluster"
    assert found["found"].startswith("executor driver (")
    assert found["found"].endswith("its Python /none/python cannot be started")
    assert "PYSPARK_PYTHON" in found["remedy"]


def test_a_cluster_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are asked for until there are some, which the first case sees of a real cluster."""
    context: Any = object()
    monkeypatch.setattr(executor_session, "concurrent_tasks", lambda _: 0)
    with pytest.raises(Unavailable, match="started no executor within 0 s") as caught:
        await_slots(context, "spark://h:1", 0)
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
    assert (report.executor, report.host, report.program) == ("driver", os.uname().nodename, sys.executable)
