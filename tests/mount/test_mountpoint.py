"""Kernel settings that a mount requests, and works without; and its end, which `umount` waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.conftest import append, opened_store, serving
from tests.mount.waiting import eventually
from tierfs.errors import Unavailable
from tierfs.fuse import mountpoint, server
from tierfs.holder import lock
from tierfs.system import places

pytestmark = pytest.mark.mount

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "mnt").mkdir()
    with opened_store(tmp_path / "store") as opened:
        append(opened, "s", b"bytes")
    return tmp_path / "store"


@contextmanager
def other_namespace() -> Iterator[subprocess.Popen[bytes]]:
    """A process with copies of all mounts, which nothing here changes."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


def test_the_process_has_ended_when_umount_returns(store: Path, tmp_path: Path) -> None:
    with serving(store, tmp_path / "mnt") as mounted:
        (mount,) = (mount for mount in places.mounts() if mount.mountpoint == tmp_path / "mnt")
        holder = lock.server_of(store, mount.device)
        assert holder is not None
        assert holder.pid == mounted.process.pid
        reaped = threading.Thread(target=mounted.process.wait, args=(30,))
        reaped.start()
        tierfs("umount", tmp_path / "mnt")
        assert not Path(f"/proc/{holder.pid}/fd/0").exists()
        reaped.join()
    assert not [*store.glob("locks/mount*")]


@needs_root
def test_a_process_that_another_mount_namespace_keeps_is_named(store: Path, tmp_path: Path) -> None:
    with serving(store, tmp_path / "mnt") as mounted, other_namespace() as other:
        refused = tierfs("umount", tmp_path / "mnt", check=False)
        assert refused.code == 5
        assert f"process {mounted.process.pid} " in refused.err
        assert f"the mount namespace of process {other.pid} has it still at {tmp_path}/mnt" in refused.err
        assert f"end it: kill {mounted.process.pid}" in refused.err
        assert not mounted.is_mounted()
        os.kill(mounted.process.pid, signal.SIGTERM)
        mounted.process.wait(30)


@needs_root
def test_a_mount_that_is_bound_elsewhere_stays_there(store: Path, tmp_path: Path) -> None:
    (tmp_path / "bound").mkdir()
    with serving(store, tmp_path / "mnt"):
        subprocess.run(["mount", "--bind", tmp_path / "mnt", tmp_path / "bound"], check=True)
        done = tierfs("umount", tmp_path / "mnt", check=False)
        assert (done.code, f"it is mounted at {tmp_path}/bound too" in done.err) == (0, True), done
        assert tierfs("cat", tmp_path / "bound/s").out == "bytes"
        tierfs("umount", tmp_path / "bound")


def test_a_process_that_does_not_end_is_named(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOOK_AFTER_S", 0.1)
    monkeypatch.setattr(server, "_END_WITHIN_S", 0.1)
    with serving(store, tmp_path / "mnt") as mounted:
        (mount,) = (mount for mount in places.mounts() if mount.mountpoint == tmp_path / "mnt")
        os.kill(mounted.process.pid, signal.SIGSTOP)
        with server.watched(mount) as watched:
            mountpoint.unmount(tmp_path / "mnt", lazy=True)
            with pytest.raises(Unavailable, match=f"process {mounted.process.pid} .* has not ended within 0.1 s"):
                watched.require_end()
        os.kill(mounted.process.pid, signal.SIGCONT)
        mounted.process.wait(30)


def test_a_mount_of_a_process_that_is_gone_is_unmounted_at_once(store: Path, tmp_path: Path) -> None:
    with serving(store, tmp_path / "mnt") as mounted:
        mounted.process.kill()
        mounted.process.wait(30)
        tierfs("umount", tmp_path / "mnt")
        assert eventually(lambda: not mounted.is_mounted())


def test_a_machine_without_a_mount_command_is_mounted_on_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mountpoint, "CONNECTIONS", tmp_path / "connections")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not mountpoint.widen_background(tmp_path)
