"""The findings of doctor: the level that each state of the machine, the store and the cold tier has, at its limits."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tierfs import __version__
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.options.config import BackgroundSettings, Settings, WriteSettings
from tierfs.base.system.memory_limit import MemoryLimit
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.local_files import DiskBytes
from tierfs.engine.chunkstore.probe import ReadAbilities
from tierfs.engine.chunkstore.protocol import Abilities
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.segments.endangered import Endangered, UnreachablePlace
from tierfs.faces.doctor import check_cold, filesystem, machine, spark
from tierfs.faces.doctor import store as store_checks
from tierfs.faces.doctor.findings import DoctorFinding, FindingLevel
from tierfs.pipeline.doctor import KnownStore, judge
from tierfs.pipeline.spark.executors import ExecutorReport, MountReport
from tierfs.upkeep.holder.status import StoreStatus

OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
DAY_MS = 86_400_000
NEEDED = 256 + 5000 + 64 + 64
FILES = Settings(write=WriteSettings(open_chunks=5000))
ALL = Abilities(create_only_put=True, create_only_multipart=True, verifies_crc32c=True)
NONE = Abilities(create_only_put=False, create_only_multipart=False, verifies_crc32c=False)
NO_READS = ReadAbilities(presigned_ranges=False, if_match=False)

Findings = Callable[[], DoctorFinding | Iterable[DoctorFinding]]


def limited(limit_bytes: int) -> MemoryLimit:
    """A limit with all of it available."""
    return MemoryLimit(limit_bytes, limit_bytes, Path("/sys/fs/cgroup/a"))


LEVELS: list[tuple[Findings, str, str]] = [
    (lambda: machine.fuse_device(Path("/none/fuse")), "FAIL", "as root: modprobe fuse"),
    (lambda: machine.fuse_device(Path("/dev/null")), "OK", ""),
    (lambda: machine.fusermount(None, root=True), "OK", ""),
    (lambda: machine.fusermount(None, root=False), "FAIL", "as root: apt-get install fuse3"),
    (lambda: machine.allow_other(root=True, allowed=False), "OK", ""),
    (lambda: machine.allow_other(root=False, allowed=True), "OK", ""),
    (lambda: machine.allow_other(root=False, allowed=False), "WARN", "echo user_allow_other >> /etc/fuse.conf"),
    (lambda: machine.kernel("6.18.44"), "OK", ""),
    (lambda: machine.kernel("4.20.0-1-amd64"), "OK", ""),
    (lambda: machine.kernel("4.19.0"), "WARN", ""),
    (lambda: machine.kernel("3.10"), "WARN", ""),
    (lambda: machine.open_files(NEEDED, NEEDED, FILES), "OK", ""),
    (lambda: machine.open_files(resource.RLIM_INFINITY, resource.RLIM_INFINITY, FILES), "OK", "no limit"),
    (lambda: machine.open_files(NEEDED - 1, NEEDED, FILES), "WARN", f"ulimit -n {NEEDED}"),
    (lambda: machine.open_files(1024, NEEDED - 1, FILES), "WARN", f"as root: echo '* - nofile {NEEDED}' >> /etc/"),
    (lambda: machine.memory(384 * MIB, 256 * MIB), "OK", ""),
    (lambda: machine.memory(384 * MIB - 1, 256 * MIB), "WARN", "export TIERFS_READ__BUDGET_BYTES=127MiB"),
    (lambda: machine.memory(384 * MIB, 256 * MIB, limited(512 * MIB)), "OK", "up to 128 MiB"),
    (lambda: machine.memory(176 * MIB, 256 * MIB, limited(272 * MIB)), "OK", "176 MiB available of 272 MiB, the limit"),
    (lambda: machine.memory(175 * MIB, 256 * MIB, limited(272 * MIB)), "WARN", "READ__BUDGET_BYTES=23MiB"),
    (lambda: machine.zstandard("0.25.0"), "OK", ""),
    (lambda: machine.zstandard("1.0"), "OK", ""),
    (lambda: machine.zstandard("0.24.1"), "FAIL", "zstandard 0.24.1; tierfs needs 0.25 or newer"),
    (lambda: machine.zstandard(None), "FAIL", "pip install 'zstandard"),
    (lambda: spark.java('openjdk version "17.0.19" 2026-01-20'), "OK", ""),
    (lambda: spark.java('openjdk version "21" 2023-09-19'), "OK", ""),
    (lambda: spark.java('java version "1.8.0_402"'), "FAIL", ""),
    (lambda: spark.java('openjdk version "16.0.22"'), "FAIL", ""),
    (lambda: spark.java("Segmentation fault"), "FAIL", ""),
    (lambda: spark.java(None), "FAIL", "default-jre-headless"),
    (lambda: [spark.pyspark(version) for version in ("4.0.0", "4.10.1", "3.5.9", None)], "OK OK FAIL FAIL", ""),
    (lambda: [filesystem.nowait(code) for code in (0, errno.EAGAIN, errno.EOPNOTSUPP)], "OK OK WARN", ""),
    (lambda: [filesystem.links(code) for code in (0, errno.EPERM, errno.EIO)], "OK WARN FAIL", ""),
    (lambda: [store_checks.commit_clock(DAY_MS + back_ms, DAY_MS) for back_ms in (5000, -60_000)], "OK OK", ""),
    (lambda: [store_checks.commit_clock(DAY_MS - s * 1000, DAY_MS) for s in (61, 900, 901)], "WARN WARN FAIL", ""),
    (lambda: check_cold.latency("s3://b", 0.2), "OK", ""),
    (lambda: check_cold.latency("s3://b", 0.25), "WARN", "s3://b: a small request takes 250.0 ms (median of 5)"),
    (lambda: check_cold.reads(NO_READS), "WARN OK", ""),
    (lambda: check_cold.abilities(ALL, ALL), "OK OK OK OK", ""),
    (lambda: check_cold.abilities(ALL, NONE), "FAIL OK FAIL OK", ""),
    (lambda: check_cold.abilities(NONE, NONE), "WARN OK OK OK", ""),
    (lambda: check_cold.abilities(NONE, replace(NONE, deletes=False)), "WARN OK OK WARN", ""),
]


@pytest.mark.parametrize(("findings", "levels", "words"), LEVELS)
def test_levels_at_the_limits(findings: Findings, levels: str, words: str) -> None:
    found = findings()
    found = [found] if isinstance(found, DoctorFinding) else list(found)
    assert " ".join(one.level.name for one in found) == levels
    assert words in f"{found[0].text}; {found[0].remedy}"


def test_available_memory_is_the_least_of_the_machines_and_the_groups(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    for limit, available in ((None, 8_192_000), (limited(9000 * 1024), 8_192_000), (limited(1000), 1000)):
        assert machine.available_bytes(limit, meminfo) == available


def test_java_home_goes_first(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"18.0.1\"' >&2\n")
    java.chmod(0o755)
    for environment in ({"JAVA_HOME": str(tmp_path), "PATH": ""}, {"PATH": str(tmp_path / "bin")}):
        assert spark.java_answer(environment) == 'openjdk version "18.0.1"\n'
    assert spark.java_answer({"PATH": str(tmp_path)}) is None
    assert [one.name for one in spark.check_spark()] == ["java", "pyspark"]


@pytest.fixture
def status(tmp_path: Path) -> StoreStatus:
    init_store(tmp_path / "store")
    with app.open_store(tmp_path / "store") as opened:
        return verbs.status(opened)


@pytest.mark.parametrize(
    ("used", "free", "local", "not_offloaded", "levels"),
    [
        (80 * MIB, 80 * MIB, 0, 0, "OK OK"),
        (80 * MIB + 1, 80 * MIB, 0, 0, "WARN OK"),
        (50 * MIB, 80 * MIB - 1, 0, 0, "WARN OK"),  # near the floor for appends
        (50 * MIB, 64 * MIB - 1, 0, 0, "FAIL OK"),
        (0, 80 * MIB, 10 * MIB, 0, "OK OK"),
        (0, 80 * MIB, 10 * MIB + 1, 0, "WARN OK"),
        (0, 80 * MIB, 0, 5 * MIB, "OK OK"),
        (0, 80 * MIB, 0, 5 * MIB + 1, "OK WARN"),
    ],
)
def test_disk_against_floor_and_watermarks(
    status: StoreStatus, used: int, free: int, local: int, not_offloaded: int, levels: str
) -> None:
    settings = Settings(background=BackgroundSettings(high_watermark_bytes=10 * MIB))
    changed = replace(status, local=replace(status.local, bytes=local), not_offloaded_bytes=not_offloaded)
    found = store_checks.disk(DiskBytes(100 * MIB, used, free), changed, settings)
    assert " ".join(one.level.name for one in found) == levels


def test_an_owner_that_was_superseded_and_work_that_is_stuck(status: StoreStatus) -> None:
    fenced = store_checks.owner(replace(status, journal=replace(status.journal, fenced_by_epoch=7)))
    assert (fenced.level, "epoch 7" in fenced.text) == (FAIL, True)
    stuck = FailureRecord(what="offload 1 of 0", error="no answer", error_kind="Unavailable")
    damaged = replace(stuck, error="bytes 0 to 4", error_kind="DataLoss")
    for troubles, level, words in (((stuck,), WARN, "no answer"), ((stuck, damaged), FAIL, "bytes 0 to 4")):
        found = store_checks.failures(replace(status, troubles=troubles))
        assert (found.level, words in found.text) == (level, True)


def test_problems_of_status_are_findings_of_doctor(status: StoreStatus) -> None:
    away = tuple(UnreachablePlace(f"file:/{name}", "empty", 1) for name in "ab")
    changed = replace(status, endangered=Endangered(5, 0, 0, away), overdue_bytes=1, overdue_reason="a: off")
    found = [(one.name, one.level) for one in store_checks.problems(changed, 0, DAY_MS)]
    expected = [("lost bytes", FAIL), ("bytes not reachable", FAIL), ("bytes not reachable", FAIL), ("retention", WARN)]
    assert found == expected
    assert [(one.name, one.level) for one in store_checks.problems(status, 0, DAY_MS)] == [("bytes", OK)]


MOUNT = MountReport("/mnt/logs", "alive", "/srv/store", "a1", 7)
EXECUTOR = ExecutorReport("0", "n0", "3.11.7", "/usr/bin/python3", __version__, "", "19.0", (MOUNT,), None)
DRIVER = replace(EXECUTOR, executor="driver", host="here")
KNOWN = KnownStore("a1", 7, None)


def judged(*reports: ExecutorReport, known: KnownStore | None = KNOWN) -> dict[str, DoctorFinding]:
    return {finding.name: finding for finding in judge("spark://m:7077", reports, known)}


@pytest.mark.parametrize(
    ("changed", "of", "level", "words"),
    [
        ({}, "", OK, ""),
        ({"tierfs": "0.0.9"}, "", FAIL, f"tierfs 0.0.9, this machine has {__version__}"),
        ({"pyarrow": None}, "", WARN, ""),
        ({"tierfs": None, "missing": "No module named 'tierfs'"}, "", FAIL, "PYSPARK_PYTHON"),
        ({"cold_error": ""}, ": cold tier", OK, ""),
        ({"cold_error": "the key is wrong"}, ": cold tier", FAIL, "cannot be listed: the key is wrong"),
        *(
            ({"mounts": (MountReport("/mnt/logs", state),)}, ": /mnt/logs", FAIL, "/mnt/logs")
            for state in ("missing", "no mount", "forbidden", "dead", "silent")
        ),
        ({"mounts": (MountReport("/mnt/logs", "untold"),)}, ": /mnt/logs", WARN, "allow_other_control"),
        ({"mounts": (replace(MOUNT, store_id="b2"),)}, ": /mnt/logs", FAIL, "a mount of store b2, not of a1"),
        (
            {"mounts": (replace(MOUNT, slot=4, replica=True),)},
            ": /mnt/logs",
            WARN,
            "replica of store a1, journal slot 4, 3 slots older than the newest",
        ),
    ],
)
@pytest.mark.parametrize("known", [KNOWN, None])
def test_executors_have_their_level_at_each_limit(
    changed: dict[str, Any], of: str, level: FindingLevel, words: str, known: KnownStore | None
) -> None:
    """Without a store that is known the driver's mount counts."""
    found = judged(DRIVER, replace(EXECUTOR, executor="1", host="n1", **changed), known=known)[f"executor 1 (n1){of}"]
    assert (found.level, words in f"{found.text}; {found.remedy}") == (level, True), found


def test_the_driver_counts_where_it_is_alone_and_the_store_counts_as_a_mount() -> None:
    assert "executor driver (here)" in judged(DRIVER), "a session of this machine alone"
    assert "driver" not in judged(DRIVER, EXECUTOR), "its Python is the one that runs doctor"
    ahead = judged(EXECUTOR, known=replace(KNOWN, slot=9))["executor 0 (n0): /mnt/logs"]
    assert ahead.text.endswith("2 slots older than the newest")
