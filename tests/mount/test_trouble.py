"""Bugs, killed readers, stalled tiers, dead daemons: the mount answers, and ends at a signal."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, append, serving
from tests.mount.waiting import errno_of, eventually
from tests.reality.reference import reference
from tierfs.app import store
from tierfs.base.system import mounts as mount_table
from tierfs.faces.cli.main import cli

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

ENDS_WITHIN_S = 60
"""A read may wait 30 s for a tier; the end of the mount waits less."""

ANSWER_S = 0.2
"""How long commands wait for a mount that is stopped."""


def test_a_bug_is_an_eio_and_not_the_end(store: store.Store, mount: Mount) -> None:
    append(store, "broken", b"x")
    append(store, "fine", b"y")
    mnt = mount(fault="broken-getattr").path
    for _ in range(3):
        assert errno_of((mnt / "broken").stat) == errno.EIO
        assert (mnt / "fine").read_bytes() == b"y"


def test_slow_reads_do_not_starve_a_stat(store: store.Store, mount: Mount) -> None:
    for number in range(150):
        append(store, f"s{number}", reference(0, 1000), seal=True)
    verbs.offload(store)
    verbs.evict(store)
    mounted = mount(fault="stalled-cold")
    readers = [
        subprocess.Popen(["cat", mounted.path / f"s{number}"], stdout=subprocess.DEVNULL) for number in range(150)
    ]
    try:
        for number in range(20):
            assert (mounted.path / f"s{number}").stat().st_size == 1000
        assert [reader.poll() for reader in readers] == [None] * len(readers), "they still wait"
    finally:
        mounted.process.send_signal(signal.SIGUSR2)  # a reader ends with its read
        assert [reader.wait(30) for reader in readers] == [0] * len(readers)


def test_killed_readers_do_not_freeze_the_mount(store: store.Store, mount: Mount) -> None:
    append(store, "s", reference(0, 20_000_000), seal=True)
    verbs.offload(store, "s")
    verbs.evict(store, "s")
    mnt = mount("direct_io").path
    chosen = random.Random(1)
    for _ in range(60):
        reader = subprocess.Popen(["dd", f"if={mnt}/s", "of=/dev/null", "bs=1M", "status=none"])
        time.sleep(chosen.random() * 0.03)  # a random moment is the point, not a wait
        reader.kill()
        reader.wait(30)
        assert (mnt / "s").stat().st_size == 20_000_000
    assert (mnt / "s").read_bytes() == reference(0, 20_000_000)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, "umount"])
def test_signals_and_umount_end_the_process(mount: Mount, end: signal.Signals | str) -> None:
    mounted = mount()
    if isinstance(end, str):
        tierfs("-q", end, mounted.path)
    else:
        mounted.process.send_signal(end)
    assert mounted.process.wait(30) == 0
    assert not mounted.is_mounted()


def test_the_end_does_not_wait_for_stalled_reads(store: store.Store, mount: Mount) -> None:
    append(store, "s", reference(0, 1000), seal=True)
    verbs.offload(store, "s")
    verbs.evict(store, "s")
    mounted = mount(fault="stalled-cold")
    reader = subprocess.Popen(["cat", mounted.path / "s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: Path(f"/proc/{reader.pid}/stat").read_text().split()[2] in "DS")
        mounted.process.send_signal(signal.SIGTERM)
        assert mounted.process.wait(ENDS_WITHIN_S) == 0
        assert not mounted.is_mounted()
    finally:
        reader.kill()
        reader.wait(30)


def test_a_mount_point_of_a_killed_daemon_is_used_again(store: store.Store, mount: Mount, tmp_path: Path) -> None:
    append(store, "s", b"x")
    mounted = mount()
    mounted.process.kill()
    mounted.process.wait(30)
    assert errno_of((mounted.path / "s").stat) == errno.ENOTCONN
    with serving(store.path, mounted.path) as again:
        assert (again.path / "s").read_bytes() == b"x"


def test_a_dead_mount_is_told_by_status_and_doctor(store: store.Store, mount: Mount) -> None:
    mounted = mount()
    assert tierfs("status", "--json", store=store.path).json["dead_mounts"] == []
    mounted.process.kill()
    mounted.process.wait(30)
    found = tierfs("status", "--json", store=store.path).json
    assert (found["mounts"], found["dead_mounts"]) == ([str(mounted.path)], [str(mounted.path)])
    assert f"tierfs umount {mounted.path}" in tierfs("status", store=store.path).out
    checks = tierfs("doctor", "--json", store=store.path, check=False).json["checks"]
    failed = [one["remedy"] for one in checks if one["name"] == f"mount of {mounted.path}" and one["level"] == "FAIL"]
    assert failed == [f"tierfs umount {mounted.path}"]
    tierfs("umount", mounted.path)
    assert tierfs("status", "--json", store=store.path).json["mounts"] == []


def test_a_mount_whose_daemon_is_stopped_holds_up_neither_status_nor_doctor(
    store: store.Store, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_table, "ANSWER_S", ANSWER_S)
    store.paths.settings.write_text('[read]\ncache_bytes = "64MiB"\n')
    append(store, "s", b"data", seal=True)
    verbs.offload(store, "s")
    mounted = mount()
    point = str(mounted.path)

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, ["--store", str(store.path), *words])

    assert eventually(lambda: json.loads(run("status", "--json").stdout)["holder"] is not None)
    mounted.process.send_signal(signal.SIGSTOP)
    try:
        found = json.loads(run("status", "--json").stdout)
        assert (found["mounts"], found["dead_mounts"], found["silent_mounts"]) == ([point], [], [point])
        assert "silent mount" in run("status").stdout
        checks = json.loads(run("doctor", "--json").stdout)["checks"]
        failed = [one["remedy"] for one in checks if one["name"] == f"mount of {point}" and one["level"] == "FAIL"]
        assert [remedy.endswith(f"tierfs umount {point}") for remedy in failed] == [True]
        for words in (("warmup", "s"), ("umount", point), ("mount", point)):
            done = run(*words)
            assert (done.exit_code, point in done.stderr) == (11, True), done
    finally:
        mounted.process.send_signal(signal.SIGCONT)
    assert tierfs("status", "--json", store=store.path).json["silent_mounts"] == []
    tierfs("-q", "warmup", "s", store=store.path)
    tierfs("-q", "umount", point)


def test_a_damaged_local_chunk_is_read_from_the_cold_tier(store: store.Store, mount: Mount) -> None:
    data = reference(0, 3_000_000)
    append(store, "s", data, seal=True)
    append(store, "only", data, seal=True)
    verbs.offload(store, "s")
    for name in store.files.names():
        path = store.files.root / name
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.seek(200_000)
            file.write(b"damage")
    mnt = mount().path
    assert (mnt / "s").read_bytes() == data
    assert errno_of((mnt / "only").read_bytes) == errno.EIO
    with (mnt / "only").open("rb", buffering=0) as file:
        assert os.pread(file.fileno(), 4096, 2_500_000) == data[2_500_000:2_504_096]
