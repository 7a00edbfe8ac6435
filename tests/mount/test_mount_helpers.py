"""`mount -t tierfs`, `mount -a` and `umount` with the programs of the machine, which start ours.

In a mount namespace of their own, with a /usr/sbin that has only the helpers: nothing is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.conftest import append, opened_store
from tests.mount.namespaces import in_namespace

pytestmark = [
    pytest.mark.mount,
    pytest.mark.xdist_group("mount-namespaces"),  # see test_mountpoint
    pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root"),
    pytest.mark.timeout(180, method="thread"),
]

ROOT = Path(__file__).parents[2]
SCRIPTS = re.findall(r'"((?:u?mount\.)?(?:fuse\.)?tierfs)=([\w.]+):(\w+)"', (ROOT / "setup.py").read_text())
"""Programs of an installation: name, module, function."""
MOUNT_FUSE = Path("/sbin/mount.fuse3")
TIMEOUT_S = 120

# Python's own variables stay those of the test.
PRELUDE = """
sbin=/usr/sbin; [ -L /sbin ] || sbin=/sbin
mount -t tmpfs sbin $sbin
mkdir -p /run/mount; mount -t tmpfs run /run/mount
cp -P {programs}/* $sbin
export PATH=/usr/bin:/bin
cd {directory}
trap 'for at in $(findmnt -rnt fuse.tierfs -o TARGET); do umount -i -l $at; done' EXIT
"""

Run = Callable[[str], str]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """What an installation puts in /sbin."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for name, module, function in SCRIPTS:
        if name != "tierfs":
            code = f"from {module} import {function}; {function}()"
            (directory / name).write_text(f"#!/bin/sh\nexec {sys.executable} -P -c '{code}' \"$@\"\n")
            (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def run(tmp_path: Path, programs: Path) -> Run:
    """Return the output of a shell script in a mount namespace, with a store at `store`, and a directory `m`."""
    (tmp_path / "m").mkdir()
    with opened_store(tmp_path / "store") as opened:
        append(opened, "s", b"bytes\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TIERFS_")}

    def run(script: str) -> str:
        text = PRELUDE.format(programs=programs, directory=tmp_path) + script
        done = subprocess.run(
            in_namespace(tmp_path, "bash", "-c", text),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env=environment,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    return run


def test_an_installation_has_the_programs_that_mount_looks_for() -> None:
    types = {name for name, _, _ in SCRIPTS if name != "tierfs"}
    assert types == {f"{verb}.{kind}" for verb in ("mount", "umount") for kind in ("tierfs", "fuse.tierfs")}


def test_mount_finds_the_helper_and_umount_returns_after_the_process(run: Run) -> None:
    # -c as systemd does it: otherwise umount(8) looks for no helper where a path begins at the root.
    script = "mount -t tierfs store m; echo $?; cat m/s; ls store/locks; umount -c $PWD/m; echo $?; ls store/locks"
    lines = run(script).splitlines()
    locks = [line for line in lines if line.startswith("mount-")]
    assert len(locks) == 1  # of the process, while it serves
    assert [line for line in lines if line in ("0", "bytes")] == ["0", "bytes", "0"]


def test_a_line_of_fstab_is_mounted_once(run: Run, tmp_path: Path) -> None:
    options = "ro,nofail,_netdev,x-systemd.automount,comment=logs,uid=7,gid=8,allow_other"
    script = f"echo $PWD/store $PWD/m tierfs {options} 0 0 >fstab; "
    script += "for n in 1 2; do mount -a -T fstab; echo $?; done; stat -c %u:%g m/s; ls store/locks | grep -c mount-"
    assert run(script) == "0\n0\n7:8\n1\n"


def test_user_and_kernel_type_of_fstab(run: Run, tmp_path: Path) -> None:
    script = "echo $PWD/store $PWD/m fuse.tierfs user,noauto,exec 0 0 >fstab; mount -T fstab m; findmnt -no SOURCE m"
    assert run(script) == f"tierfs:{tmp_path}/store\n"


def test_the_source_may_be_that_of_the_kernels_table(run: Run, tmp_path: Path) -> None:
    assert run("mount -t tierfs tierfs:$PWD/store m; echo $?; cat m/s") == "0\nbytes\n"


WRONG = [
    ("mount -t tierfs -o cache_size=1G store m", 1, "unknown mount option 'cache_size=1G'"),
    ("mount -t tierfs none m", 32, "/none is not a tierfs store"),
    ("mount -t tierfs none m -o nofail", 0, ""),
    ("mount -t tierfs store store", 1, "is not empty"),
    ("mount -t tierfs store m; mount -o remount,uid=3 m", 1, "cannot be changed while it is mounted"),
    ("exec 9<m/s; umount ./m", 32, "is busy"),
    ("$sbin/mount.tierfs store", 1, "not 2 but 1 places are given"),
    ("$sbin/umount.tierfs -x m", 1, "option -x not recognized"),
    ("$sbin/umount.tierfs nowhere", 32, "is not a tierfs mount"),
]


def test_what_is_wrong_is_one_line_with_a_code_of_mount(run: Run) -> None:
    answers = run("exec 2>&1\n" + "".join(f"{line}; echo code $?\n" for line, _, _ in WRONG)).split("code ")
    for (line, code, part), answer, after in zip(WRONG, answers, answers[1:], strict=False):
        assert after.split()[0] == str(code), (line, after)
        assert part in answer, (line, answer)
        assert not code or f", exit {code})\n" in answer, (line, answer)


def test_a_sloppy_mount_and_a_fake_one(run: Run, tmp_path: Path) -> None:
    script = "mount -f -t tierfs store m; echo $?; findmnt m; mount -s -t tierfs -o fast,uid=7 store m; stat -c %u m/s"
    assert run(script) == "0\n7\n"


def test_a_stopped_process_is_unmounted_by_force(run: Run, tmp_path: Path) -> None:
    script = """
        mount -t tierfs store m; pid=$(pgrep -f "mount $PWD/m -f"); kill -STOP $pid
        umount ./m 2>&1 | head -1 | cut -d: -f1,3 | cut -c1-60; umount -f m; echo $?; findmnt m; kill -KILL $pid
    """
    assert run(script).splitlines()[-1] == "0"


def test_mount_of_fuse3_starts_the_command_itself(run: Run, programs: Path, tmp_path: Path) -> None:
    if not MOUNT_FUSE.exists():
        pytest.skip("needs mount.fuse3")
    for name in ("mount.tierfs", "mount.fuse.tierfs"):
        (programs / name).unlink()
    shutil.copy(MOUNT_FUSE, programs / "mount.fuse")
    (programs / "tierfs").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m tierfs "$@"\n')
    (programs / "tierfs").chmod(0o755)
    script = "PATH=$PATH:$sbin; echo $PWD/store $PWD/m fuse.tierfs rw,ro,nofail,_netdev 0 0 >fstab; "
    script += "for n in 1 2; do mount -a -T fstab; echo $?; done; cat m/s; ls store/locks | grep -c mount-"
    assert run(script) == "0\n0\nbytes\n1\n"


def test_the_store_is_the_first_of_two_places(tmp_path: Path) -> None:
    with opened_store(tmp_path / "store") as opened:
        append(opened, "s", b"bytes\n")
    (tmp_path / "m").mkdir()
    tierfs("mount", tmp_path / "store", tmp_path / "m", store=tmp_path / "another")
    try:
        assert (tmp_path / "m/s").read_bytes() == b"bytes\n"
    finally:
        tierfs("umount", tmp_path / "m")
    twice = tierfs("--store", tmp_path, "mount", tmp_path / "store", tmp_path / "m", check=False)
    assert (twice.code, "the store is given twice" in twice.err) == (2, True)
    extra = tierfs("mount", "a", "b", "c", check=False)
    assert (extra.code, "unexpected extra argument (c)" in extra.err) == (2, True)
