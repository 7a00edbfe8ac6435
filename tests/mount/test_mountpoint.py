"""Kernel settings that a mount requests, and works without; and its end, which `umount` waits for."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.conftest import append, opened_store, serving
from tests.mount.namespaces import in_namespace
from tests.mount.waiting import eventually
from tierfs.base.system import places
from tierfs.base.words.errors import Unavailable
from tierfs.mount import mountpoint, server
from tierfs.upkeep.holder import lock

# A namespace that a test makes has copies of all mounts, which the process of another test's mount then waits for.
pytestmark = [pytest.mark.mount, pytest.mark.xdist_group("mount-namespaces")]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "mnt").mkdir()
    with opened_store(tmp_path / "store") as opened:
        append(opened, "s", b"bytes")
    return tmp_path / "store"


@contextmanager
def other_namespace(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with copies of the mounts in the directory, which nothing here changes."""
    command = in_namespace(directory, "sh", "-c", "echo; exec sleep 100")
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
    with serving(store, tmp_path / "mnt") as mounted, other_namespace(tmp_path) as other:
        refused = tierfs("umount", tmp_path / "mnt", check=False)
        assert refused.code == 5
        assert f"process {mounted.process.pid} " in refused.err
        assert f"it is still mounted in the namespace of process {other.pid}, at {tmp_path}/mnt" in refused.err
        assert f"stop it: kill {mounted.process.pid}" in refused.err
        assert not mounted.is_mounted()
        os.kill(mounted.process.pid, signal.SIGTERM)
        mounted.process.wait(30)


@needs_root
def test_a_mount_that_is_bound_elsewhere_stays_there(store: Path, tmp_path: Path) -> None:
    (tmp_path / "bound").mkdir()
    with serving(store, tmp_path / "mnt"):
        subprocess.run(["mount", "--bind", tmp_path / "mnt", tmp_path / "bound"], check=True)
        done = tierfs("umount", tmp_path / "mnt", check=False)
        assert (done.code, f"it is still mounted at {tmp_path}/bound" in done.err) == (0, True), done
        assert tierfs("cat", tmp_path / "bound/s").out == "bytes"
        tierfs("umount", tmp_path / "bound")


def test_a_younger_mount_that_has_its_number_is_another(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(store, tmp_path / "mnt") as mounted:
        (mount,) = (mount for mount in places.mounts() if mount.mountpoint == tmp_path / "mnt")
        with server.watched(mount) as watched:
            mountpoint.unmount(tmp_path / "mnt", lazy=True)
            monkeypatch.setattr(server, "mounts", lambda: [replace(mount, mountpoint=tmp_path / "younger")])
            assert watched.require_end() == []
        assert mounted.process.wait(30) == 0


def test_a_process_that_does_not_end_is_named(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOOK_AFTER_S", 0.1)
    monkeypatch.setattr(server, "_END_WITHIN_S", 0.1)
    with serving(store, tmp_path / "mnt") as mounted:
        (mount,) = (mount for mount in places.mounts() if mount.mountpoint == tmp_path / "mnt")
        os.kill(mounted.process.pid, signal.SIGSTOP)
        with server.watched(mount) as watched:
            mountpoint.unmount(tmp_path / "mnt", lazy=True)
            with pytest.raises(Unavailable, match=f"process {mounted.process.pid} .* has not exited within 0.1 s"):
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


class Automounter:
    """Mounts by a command what belongs at a directory, when a process of another group looks into it."""

    PACKET = struct.Struct("=iiIIQIIIII")  # autofs_v5_packet of linux/auto_fs.h, up to the length of its name
    READY, FAIL, CATATONIC = 0x9360, 0x9361, 0x9362

    def __init__(self, directory: Path, kind: str, command: list[str]) -> None:
        self._reading, writing = os.pipe()
        data = f"fd={writing},pgrp={os.getpgrp()},minproto=5,maxproto=5,{kind}".encode()
        mounted = ctypes.CDLL(None, use_errno=True).mount(b"autofs", os.fsencode(directory), b"autofs", 0, data)
        os.close(writing)
        if mounted:
            pytest.skip(f"autofs: {os.strerror(ctypes.get_errno())}")
        self._control = os.open(directory, os.O_RDONLY)
        self.directory, self._kind, self._command = directory, kind, command
        self.codes: list[int | None] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while packet := os.read(self._reading, 4096):
            token, length = self.PACKET.unpack_from(packet)[2], self.PACKET.unpack_from(packet)[9]
            name = os.fsdecode(packet[self.PACKET.size : self.PACKET.size + length])
            point = self.directory if self._kind == "direct" else self.directory / name
            point.mkdir(exist_ok=True)
            try:
                self.codes.append(subprocess.run([*self._command, str(point)], timeout=20, check=False).returncode)
            except subprocess.TimeoutExpired:
                self.codes.append(None)
            fcntl.ioctl(self._control, self.FAIL if self.codes[-1] else self.READY, token)

    def end(self) -> None:
        with suppress(OSError):
            fcntl.ioctl(self._control, self.CATATONIC, 0)  # closes the pipe, too
        os.close(self._control)
        subprocess.run(["umount", "-l", str(self.directory)], check=True, timeout=30)
        self._thread.join(90)
        os.close(self._reading)


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["direct", "indirect"])
def test_the_first_access_under_autofs_mounts_the_store(store: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "auto").mkdir()
    point = tmp_path / "auto" / ("" if kind == "direct" else "key")
    automount = Automounter(tmp_path / "auto", kind, [sys.executable, "-m", "tierfs", "--store", str(store), "mount"])
    try:
        reader = subprocess.run(
            ["cat", str(point / "s")], check=False, capture_output=True, timeout=90, start_new_session=True
        )
        assert (reader.stdout, reader.stderr, automount.codes) == (b"bytes", b"", [0])
        assert tierfs("cat", point / "s").out == "bytes"
        tierfs("umount", point)
    finally:
        automount.end()
