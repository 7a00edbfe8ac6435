"""The holder through the command line: a daemon, commands beside it, and many processes at once."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.children import runs
from tests.commands import tierfs
from tests.mount.waiting import eventually
from tests.servers.rgw import free_ports
from tierfs import __version__
from tierfs.app.setup.create import init_store
from tierfs.base.system.places import mounts

pytestmark = [pytest.mark.mount, pytest.mark.timeout(180, method="thread")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    init_store(tmp_path / "store")
    return tmp_path / "store"


@contextmanager
def daemon(path: Path) -> Iterator[int]:
    """Run a daemon that holds the store; yield its process id."""
    tierfs("daemon", store=path)
    holder = tierfs("status", "--json", store=path).json["holder"]
    try:
        yield holder["pid"]
    finally:
        if _alive(holder["pid"]):
            os.kill(holder["pid"], signal.SIGTERM)
            assert eventually(lambda: not _alive(holder["pid"]))


def _alive(pid: int) -> bool:
    try:
        return runs(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False


def append(path: Path, name: str, data: bytes, *options: str) -> None:
    tierfs("append", name, *options, store=path, stdin=data)


def offload(path: Path) -> None:
    tierfs("-q", "offload", store=path)


def cold_bytes(path: Path, name: str) -> int:
    return int(tierfs("info", name, "--json", store=path).json["tiers"]["cold"]["bytes"])


def test_two_commands_two_mounts_and_a_daemon_at_once(path: Path, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    points = [tmp_path / "m1", tmp_path / "m2"]
    for point in points:
        point.mkdir()
    try:
        with daemon(path) as pid:
            for point in points:
                tierfs("mount", point, store=path)
            with ThreadPoolExecutor(4) as pool:
                running = [pool.submit(append, path, name, data, "--seal") for name in ("w/s0", "w/s1")]
                running += [pool.submit(offload, path) for _ in range(2)]
                assert [one.exception() for one in running] == [None] * 4
            offload(path)
            tierfs("evict", "w", store=path)
            for point in points:
                assert (point / "w/s0").read_bytes() == (point / "w/s1").read_bytes() == data
            assert tierfs("status", "--json", store=path).json["holder"]["pid"] == pid
        # The daemon is gone: a mount takes its place and goes on with the work.
        append(path, "after", b"xyz", "--seal")
        assert eventually(lambda: cold_bytes(path, "after") == 3)
        assert "mount" in tierfs("status", "--json", store=path).json["holder"]["command"]
    finally:
        for mount in mounts():
            if mount.store == path:
                tierfs("umount", mount.mountpoint)


def test_a_daemon_serves_metrics_at_a_port(path: Path) -> None:
    port = free_ports(1)
    tierfs("-q", "config", f"metrics.listen=127.0.0.1:{port}", store=path)
    with daemon(path):
        append(path, "s", b"abc", "--seal")
        assert eventually(lambda: cold_bytes(path, "s") == 3)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert "\ntierfs_holder 1.0\n" in text
        assert "\ntierfs_storage_requests_total{" in text
        assert "_created" not in text


def test_a_mount_serves_metrics_once_the_daemon_has_freed_the_port(path: Path, tmp_path: Path) -> None:
    port, point = free_ports(1), tmp_path / "mnt"
    point.mkdir()
    tierfs("-q", "config", f"metrics.listen={port}", store=path)

    def scraped() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    with daemon(path):
        assert eventually(lambda: "\ntierfs_holder 1.0\n" in scraped())
        tierfs("mount", point, store=path)
        assert "\ntierfs_fuse_operations_total{" not in scraped()
    try:
        assert eventually(lambda: "\ntierfs_fuse_operations_total{" in scraped())
        text = scraped()
        assert '\ntierfs_problems{kind="lost"} 0.0\n' in text
        assert f'\ntierfs_build_info{{version="{__version__}"}} 1.0\n' in text
        assert "\ntierfs_memory_budget_bytes " in text
    finally:
        tierfs("umount", point)
