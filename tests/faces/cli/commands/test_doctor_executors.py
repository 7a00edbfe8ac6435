"""The views that executors have of mounts and of the cold tier, for tierfs doctor --master."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.faces.cli.commands.test_findings import EXECUTOR, judged
from tests.mount.conftest import Mount, mount, store
from tests.mount.test_replica import make_replica, mounting
from tierfs.app import store as app
from tierfs.faces.doctor.findings import DoctorFinding, FindingLevel
from tierfs.pipeline.doctor import known_store
from tierfs.pipeline.spark import executor_probe
from tierfs.pipeline.spark.executors import MountReport

__all__ = ["mount", "store"]


def test_a_view_of_a_cold_tier(tmp_path: Path) -> None:
    def error(store: Path) -> str:
        return executor_probe.cold_error({"location": {"id": 1, "url": "file:cold"}, "store": store, "cold": {}})

    tierfs("-q", "init", store=tmp_path / "store")
    assert error(tmp_path / "store") == ""
    assert "cold" in error(tmp_path / "none")
    (tmp_path / "other" / "cold").mkdir(parents=True)
    assert error(tmp_path / "other") == "it contains no journal of a store"


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

    def found(at: Path, ahead: int) -> DoctorFinding:
        seen = replace(MountReport(**executor_probe.mount_at(str(at))), path="/mnt/logs")
        with app.open_store(owner) as opened:
            known = known_store(opened)
        return judged(replace(EXECUTOR, mounts=(seen,)), known=replace(known, slot=known.slot + ahead))[name]

    replica = make_replica(tmp_path / "replica", "--cold-dir", str(tmp_path / "cold"))
    with mounting(replica, tmp_path / "mnt") as path:
        same, behind = found(path, ahead=0), found(path, ahead=2)
    assert (same.level, behind.level) == (FindingLevel.OK, FindingLevel.WARN)
    assert same.text.startswith("replica of store ")
    assert "2 slots older than the newest" in behind.text
