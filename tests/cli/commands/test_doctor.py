"""tierfs doctor: checks of the machine and the store, each with its remedy."""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, mount, store
from tierfs.app import store as app
from tierfs.chunkstore.local_files import DiskBytes
from tierfs.config import BackgroundSettings, Settings, WriteSettings
from tierfs.doctor import machine
from tierfs.doctor import store as filesystem
from tierfs.doctor import store as store_checks
from tierfs.doctor.findings import DoctorFinding, FindingLevel
from tierfs.holder.status import StoreStatus
from tierfs.metadata.records import FailureRecord
from tierfs.setup.create import ColdChoice, init_store
from tierfs.system.mounts import mounts
from tierfs.types import MIB

__all__ = ["mount", "store"]

MACHINE = ["fuse device", "fusermount3", "user_allow_other", "kernel", "open files", "memory"]
DAY_MS = 86_400_000


def checks(*words: object, code: int = 0, store: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return every check by its name."""
    done = tierfs("doctor", "--json", *words, store=store, check=False)
    assert done.code == code, done
    found = done.json
    levels = [one["level"] for one in found["checks"]]
    assert (found["failed"], found["warnings"]) == (levels.count("FAIL"), levels.count("WARN"))
    assert all((one["remedy"] is None) == (one["level"] == "OK") for one in found["checks"])
    return {one["name"]: one for one in found["checks"]}


def test_without_a_store_only_the_machine_is_checked() -> None:
    assert list(checks()) == MACHINE
    done = tierfs("doctor", "-v", check=False)
    assert "only the machine is checked" in done.err
    assert [line.split()[0] for line in done.out.splitlines()] == ["OK"] * len(MACHINE)


def test_what_is_not_ok_is_printed_and_the_rest_counted_unless_all_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "store"
    assert tierfs("doctor", check=False).out == f"OK    {len(MACHINE)} checks: tierfs doctor -v lists them\n"
    tierfs("-q", "init", store=path)
    (path / "cold").rename(tmp_path / "away")
    found = checks(store=path, code=1)
    levels = [check["level"] for check in found.values()]
    failed, warned, fine = (levels.count(level) for level in ("FAIL", "WARN", "OK"))
    assert failed, "the cold tier is away"
    short = tierfs("doctor", store=path, check=False)
    assert short.code == 1
    assert leading(short.out) == ["FAIL"] * failed + ["WARN"] * warned + ["OK"]
    assert short.out.endswith(f"\nOK    {fine} checks: tierfs doctor -v lists them\n")
    every = tierfs("doctor", "-v", store=path, check=False)
    assert leading(every.out) == ["FAIL"] * failed + ["WARN"] * warned + ["OK"] * fine
    for check in found.values():
        assert check["remedy"] is None or check["remedy"] in short.out


def leading(text: str) -> list[str]:
    """The first words of all lines but those of remedies."""
    return [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]


def test_a_path_without_a_store_fails_and_the_machine_is_still_checked(tmp_path: Path) -> None:
    found = checks(store=tmp_path / "none", code=1)
    assert list(found) == [*MACHINE, "store"]
    assert found["store"]["level"] == "FAIL"
    assert found["store"]["remedy"] == f"create one with: tierfs --store {tmp_path}/none init"


def test_a_fresh_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    found = checks(store=path)
    assert found["store"]["found"].startswith(str(path))
    assert found["cold tier's place"]["level"] == "WARN"
    expected = ["background work", "holder", "disk", "not offloaded", "RWF_NOWAIT", "link(2)"]
    assert [found[name]["level"] for name in expected] == ["OK"] * len(expected)
    assert found["clock since last commit"]["found"] == "0 s behind the newest commit"
    assert sorted(os.listdir(path)) == ["ballast", "chunks", "cold", "locks", "log", "metadata", "store.toml"]


def test_settings_that_cannot_be_read_are_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    (path / "store.toml").write_text("[read]\nbudget = 1\n")
    found = checks(store=path, code=1)
    assert "unknown setting 'read.budget'" in found["settings"]["found"]
    assert len(found) > len(MACHINE) + 3


def test_bytes_on_this_disk_alone_want_a_holder(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    tierfs("append", "s", store=path, stdin=b"abc")
    assert checks(store=path)["holder"]["remedy"] == f"tierfs --store {path} daemon"
    tierfs("offload", store=path)
    assert checks(store=path)["holder"]["level"] == "OK"


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the kernel's read-ahead")
def test_read_ahead_of_each_mount(store: app.Store, mount: Mount) -> None:
    point = mount().path
    name = f"read-ahead of {point}"
    found = store_checks.read_ahead(next(one for one in mounts() if one.mountpoint == point), store_checks.BDI)
    device = os.stat(point).st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    assert found == DoctorFinding(name, FindingLevel.OK, "1024 KiB")
    setting.write_text("128\n")
    one = checks(store=store.path)[name]
    assert (one["level"], one["found"]) == ("WARN", "128 KiB; 1024 is fastest")
    assert one["remedy"] == f"as root: echo 1024 > {setting}"


@pytest.mark.mount
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount the control filesystem")
def test_waiting_reads_of_each_mount(store: app.Store, mount: Mount) -> None:
    point = mount().path
    name = f"waiting reads of {point}"
    setting = store_checks.CONNECTIONS / str(os.minor(os.stat(point).st_dev)) / "max_background"
    assert checks(store=store.path)[name]["level"] == "OK"
    setting.write_text("12\n")
    one = checks(store=store.path)[name]
    assert (one["level"], one["found"]) == ("WARN", "12 that wait for an absent cold tier hold up all others")
    assert one["remedy"].endswith(f"echo 1024 > {setting}")


def test_fuse_device(tmp_path: Path) -> None:
    missing = machine.fuse_device(tmp_path / "fuse")
    assert (missing.level, missing.remedy) == (FindingLevel.FAIL, "as root: modprobe fuse")
    (tmp_path / "fuse").touch()
    assert machine.fuse_device(tmp_path / "fuse").level is FindingLevel.OK


def test_what_only_other_users_need() -> None:
    assert machine.fusermount(None, root=True).level is FindingLevel.OK
    missing = machine.fusermount(None, root=False)
    assert (missing.level, missing.remedy) == (FindingLevel.FAIL, "as root: apt-get install fuse3")
    assert machine.allow_other(root=True, allowed=False).level is FindingLevel.OK
    assert machine.allow_other(root=False, allowed=True).level is FindingLevel.OK
    refused = machine.allow_other(root=False, allowed=False)
    assert (refused.level, refused.remedy) == (FindingLevel.WARN, "as root: echo user_allow_other >> /etc/fuse.conf")


@pytest.mark.parametrize(
    ("release", "level"),
    [
        ("6.18.44", FindingLevel.OK),
        ("4.20.0-1-amd64", FindingLevel.OK),
        ("4.19.0", FindingLevel.WARN),
        ("3.10", FindingLevel.WARN),
    ],
)
def test_kernel(release: str, level: FindingLevel) -> None:
    assert machine.kernel(release).level is level


def test_open_files() -> None:
    settings = Settings(write=WriteSettings(open_chunks=5000))
    needed = 256 + 5000 + 64 + 64
    assert machine.open_files(needed, needed, settings).level is FindingLevel.OK
    assert machine.open_files(resource.RLIM_INFINITY, resource.RLIM_INFINITY, settings).found.startswith("no limit")
    assert machine.open_files(1024, needed, settings).remedy == f"ulimit -n {needed}"
    raised = machine.open_files(1024, 4096, settings)
    assert raised.remedy == f"as root: echo '* - nofile {needed}' >> /etc/security/limits.conf"


def test_memory(tmp_path: Path) -> None:
    assert machine.memory(384 * MIB, 256 * MIB).level is FindingLevel.OK
    short = machine.memory(384 * MIB - 1, 256 * MIB)
    assert (short.level, short.remedy) == (FindingLevel.WARN, "export TIERFS_READ__BUDGET_BYTES=127MiB")
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert machine.available_bytes(tmp_path / "meminfo", tmp_path) == 8_192_000
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("4000\n")
    assert machine.available_bytes(tmp_path / "meminfo", tmp_path) == 8_192_000
    (tmp_path / "memory.max").write_text("5000\n")
    assert machine.available_bytes(tmp_path / "meminfo", tmp_path) == 1000


@pytest.fixture
def status(tmp_path: Path) -> StoreStatus:
    init_store(tmp_path / "store", ColdChoice())
    with app.open_store(tmp_path / "store") as opened:
        return verbs.status(opened)


def test_disk_against_floor_and_watermarks(status: StoreStatus) -> None:
    settings = Settings(background=BackgroundSettings(high_watermark_bytes=10 * MIB))

    def levels(used_bytes: int, free_bytes: int = 80 * MIB, **changes: Any) -> list[FindingLevel]:
        space = DiskBytes(100 * MIB, used_bytes, free_bytes)
        return [one.level for one in store_checks.disk(space, replace(status, **changes), settings)]

    assert levels(80 * MIB) == [FindingLevel.OK, FindingLevel.OK]
    assert levels(80 * MIB + 1) == [FindingLevel.WARN, FindingLevel.OK]
    assert levels(50 * MIB, 80 * MIB - 1) == [FindingLevel.WARN, FindingLevel.OK], "near the floor for appends"
    assert levels(50 * MIB, 64 * MIB - 1) == [FindingLevel.FAIL, FindingLevel.OK]
    assert levels(0, local=replace(status.local, bytes=10 * MIB + 1)) == [FindingLevel.WARN, FindingLevel.OK]
    assert levels(0, not_offloaded_bytes=5 * MIB + 1) == [FindingLevel.OK, FindingLevel.WARN]


def test_an_owner_that_was_superseded_and_work_that_is_stuck(status: StoreStatus) -> None:
    fenced = store_checks.owner(replace(status, journal=replace(status.journal, fenced_by_epoch=7)))
    assert (fenced.level, "epoch 7" in fenced.found) == (FindingLevel.FAIL, True)
    stuck = FailureRecord(what="offload 1 of 0", error="no answer", error_kind="Unavailable")
    assert store_checks.failures(replace(status, troubles=(stuck,))).level is FindingLevel.WARN
    damaged = replace(stuck, error="bytes 0 to 4", error_kind="DataLoss")
    found = store_checks.failures(replace(status, troubles=(stuck, damaged)))
    assert (found.level, "bytes 0 to 4" in found.found) == (FindingLevel.FAIL, True)


def test_a_clock_that_ran_back() -> None:
    levels = [store_checks.commit_clock(DAY_MS - back_s * 1000, DAY_MS).level for back_s in (-5, 60, 61, 900, 901)]
    assert levels == [FindingLevel.OK, FindingLevel.OK, FindingLevel.WARN, FindingLevel.WARN, FindingLevel.FAIL]


def test_filesystems_that_cannot_do_everything() -> None:
    assert [filesystem.nowait(code).level for code in (0, errno.EAGAIN)] == [FindingLevel.OK, FindingLevel.OK]
    assert filesystem.nowait(errno.EOPNOTSUPP).level is FindingLevel.WARN
    assert [filesystem.links(code).level for code in (0, errno.EPERM, errno.EIO)] == [
        FindingLevel.OK,
        FindingLevel.WARN,
        FindingLevel.FAIL,
    ]


def test_a_cold_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    path, cold = tmp_path / "store", tmp_path / "cold"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=path)
    cold.rename(tmp_path / "elsewhere")
    assert f"{cold} cannot be looked at" in checks(store=path, code=1)["cold tier's place"]["found"]
    assert f"{cold} cannot be looked at" in tierfs("status", store=path).out


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ('openjdk version "17.0.19" 2026-01-20', FindingLevel.OK),
        ('openjdk version "21" 2023-09-19', FindingLevel.OK),
        ('java version "1.8.0_402"', FindingLevel.FAIL),
        ('openjdk version "11.0.22"', FindingLevel.FAIL),
        ("Segmentation fault", FindingLevel.FAIL),
        (None, FindingLevel.FAIL),
    ],
)
def test_java(answer: str | None, level: FindingLevel) -> None:
    assert machine.java(answer).level is level


def test_java_home_goes_first(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"18.0.1\"' >&2\n")
    java.chmod(0o755)
    assert machine.java_answer({"JAVA_HOME": str(tmp_path), "PATH": ""}) == 'openjdk version "18.0.1"\n'
    assert machine.java_answer({"PATH": str(tmp_path / "bin")}) == 'openjdk version "18.0.1"\n'
    assert machine.java_answer({"PATH": str(tmp_path)}) is None


def test_pyspark() -> None:
    assert [machine.pyspark(found).level for found in ("4.0.0", "4.10.1", "3.5.9", None)] == [
        FindingLevel.OK,
        FindingLevel.OK,
        FindingLevel.FAIL,
        FindingLevel.FAIL,
    ]
    assert [one.name for one in machine.check_spark()] == ["java", "pyspark"]
