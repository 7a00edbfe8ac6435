"""tierfs doctor --master without a cluster: errors found before Spark starts, and the judgement of reports."""

from __future__ import annotations

import signal
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.commands.test_doctor import MACHINE, checks
from tests.commands import tierfs
from tests.mount.conftest import Mount, mount, store
from tests.mount.test_replica import make_replica, mounting
from tierfs import __version__
from tierfs.app import store as app
from tierfs.doctor.executors import KnownStore, judge, known_store
from tierfs.doctor.findings import DoctorFinding, FindingLevel
from tierfs.spark import executor_probe
from tierfs.spark.executors import ExecutorReport, MountReport

__all__ = ["mount", "store"]

MOUNT = MountReport("/mnt/logs", "alive", "/srv/store", "a1", 7)
EXECUTOR = ExecutorReport("0", "n0", "3.11.7", "/usr/bin/python3", __version__, "", "19.0", (MOUNT,), None)
DRIVER = replace(EXECUTOR, executor="driver", host="here")
KNOWN = KnownStore("a1", 7, None)


def unused_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize("master", ["http://localhost:7077", "spark://localhost", "spark://:7077", "localhost:7077"])
def test_what_is_no_master(master: str) -> None:
    found = checks("--master", master, code=1)["spark cluster"]
    assert found["found"] == f"{master} is not a Spark master; expected spark://HOST:PORT"


def test_a_master_that_is_not_there_is_told_at_once() -> None:
    master = f"spark://127.0.0.1:{unused_port()}"
    found = checks("--spark", "--master", master, code=1)
    assert list(found) == [*MACHINE, "java", "pyspark", "spark cluster"]
    assert found["spark cluster"]["found"] == f"no Spark master answers at {master}: Connection refused"


def test_nothing_is_asked_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/none")
    found = checks("--master", "local[2]", code=1)
    assert list(found) == [*MACHINE, "java", "pyspark"]
    assert found["java"]["level"] == "FAIL"


def test_mounts_belong_to_a_master() -> None:
    done = tierfs("doctor", "--spark", "--mount", "/mnt", check=False)
    assert (done.code, "give --master URL too" in done.err) == (2, True)


def judged(*reports: ExecutorReport, known: KnownStore | None = KNOWN) -> dict[str, DoctorFinding]:
    return {finding.name: finding for finding in judge("spark://m:7077", reports, known)}


def test_python_of_executors() -> None:
    assert judged(EXECUTOR)["executor 0 (n0)"].level is FindingLevel.OK
    older = judged(replace(EXECUTOR, tierfs="0.0.9"))["executor 0 (n0)"]
    assert (older.level, f"tierfs 0.0.9, and here it is {__version__}" in older.found) == (FindingLevel.FAIL, True)
    assert judged(replace(EXECUTOR, pyarrow=None))["executor 0 (n0)"].level is FindingLevel.WARN
    missing = judged(replace(EXECUTOR, tierfs=None, missing="No module named 'tierfs'"))["executor 0 (n0)"]
    assert (missing.level, "PYSPARK_PYTHON" in str(missing.remedy)) == (FindingLevel.FAIL, True)
    assert "executor driver (here)" in judged(DRIVER), "a session of this machine alone"
    assert "driver" not in judged(DRIVER, EXECUTOR), "its Python is the one that runs doctor"


@pytest.mark.parametrize("state", ["missing", "no mount", "forbidden", "dead", "silent"])
def test_mounts_that_do_not_answer(state: str) -> None:
    found = judged(replace(EXECUTOR, mounts=(MountReport("/mnt/logs", state),)))["executor 0 (n0): /mnt/logs"]
    assert (found.level, "/mnt/logs" in str(found.remedy)) == (FindingLevel.FAIL, True)


def test_a_mount_that_keeps_its_store_to_its_user_can_still_be_read() -> None:
    found = judged(replace(EXECUTOR, mounts=(MountReport("/mnt/logs", "untold"),)))["executor 0 (n0): /mnt/logs"]
    assert (found.level, "allow_other_control" in str(found.remedy)) == (FindingLevel.WARN, True)


def test_mounts_of_another_store_and_mounts_that_are_behind() -> None:
    other = replace(EXECUTOR, executor="1", host="n1", mounts=(replace(MOUNT, store_id="b2"),))
    behind = replace(EXECUTOR, executor="2", host="n2", mounts=(replace(MOUNT, slot=4, replica=True),))
    old = replace(EXECUTOR, executor="3", host="n3", mounts=(replace(MOUNT, store_id="", slot=0),))
    for known in (KNOWN, None):  # without a store the driver's mount counts
        found = judged(DRIVER, EXECUTOR, other, behind, old, known=known)
        assert found["executor 0 (n0): /mnt/logs"].found == "store a1, journal slot 7"
        assert found["executor 1 (n1): /mnt/logs"].found == "a mount of store b2, not of a1"
        assert found["executor 1 (n1): /mnt/logs"].level is FindingLevel.FAIL
        assert found["executor 2 (n2): /mnt/logs"].found == "replica of store a1, journal slot 4, 3 behind the newest"
        assert [found[f"executor {n} (n{n}): /mnt/logs"].level for n in (2, 3)] == [
            FindingLevel.WARN,
            FindingLevel.WARN,
        ]
    ahead = judged(EXECUTOR, known=replace(KNOWN, slot=9))["executor 0 (n0): /mnt/logs"]
    assert ahead.found.endswith("2 behind the newest"), "the store itself counts too"


def test_the_cold_tier_as_executors_see_it() -> None:
    assert judged(replace(EXECUTOR, cold_error=""))["executor 0 (n0): cold tier"].level is FindingLevel.OK
    refused = judged(replace(EXECUTOR, cold_error="the key is wrong"))["executor 0 (n0): cold tier"]
    assert (refused.level, refused.found) == (FindingLevel.FAIL, "cannot be listed: the key is wrong")


def test_a_view_of_a_cold_tier(tmp_path: Path) -> None:
    def error(store: Path) -> str:
        return executor_probe.cold_error({"location": {"id": 1, "url": "file:cold"}, "store": store, "cold": {}})

    tierfs("-q", "init", store=tmp_path / "store")
    assert error(tmp_path / "store") == ""
    assert "cold" in error(tmp_path / "none")
    (tmp_path / "other" / "cold").mkdir(parents=True)
    assert error(tmp_path / "other") == "it holds no journal of a store"


@pytest.mark.mount
def test_views_of_mounts(store: app.Store, mount: Mount, tmp_path: Path) -> None:
    mounted = mount()
    alive = executor_probe.mount_at(str(mounted.path / "anything"))
    assert (alive["state"], alive["store_id"], alive["slot"]) == ("alive", store.metadata.store_id, 1)
    mounted.process.send_signal(signal.SIGSTOP)
    assert executor_probe.mount_at(str(mounted.path))["state"] == "silent"
    mounted.process.send_signal(signal.SIGCONT)
    mounted.process.kill()
    mounted.process.wait(30)
    assert executor_probe.mount_at(str(mounted.path))["state"] == "dead"
    assert executor_probe.mount_at(str(tmp_path))["state"] == "no mount"
    assert executor_probe.mount_at(str(tmp_path / "none"))["state"] == "missing"


@pytest.mark.mount
def test_a_replica_counts_as_its_owners_store(tmp_path: Path) -> None:
    owner, name = tmp_path / "owner", "executor 0 (n0): /mnt/logs"
    (tmp_path / "cold").mkdir()
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=owner)

    def found(at: Path) -> DoctorFinding:
        seen = replace(MountReport(**executor_probe.mount_at(str(at))), path="/mnt/logs")
        with app.open_store(owner) as opened:
            return judged(replace(EXECUTOR, mounts=(seen,)), known=known_store(opened))[name]

    replica = make_replica(tmp_path / "replica", "--cold-dir", str(tmp_path / "cold"))
    (replica / "store.toml").write_text("[background]\nreplica_refresh_s = 1000\n")
    with mounting(replica, tmp_path / "mnt") as path:
        assert found(path).level is FindingLevel.OK
        assert found(path).found.startswith("replica of store ")
        tierfs("append", "a", store=owner, stdin=b"x")
        tierfs("offload", store=owner)
        assert (found(path).level, "behind the newest" in found(path).found) == (FindingLevel.WARN, True)
