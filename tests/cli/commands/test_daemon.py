"""The holder through the command line: a daemon, commands beside it, and many processes at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.waiting import eventually
from tests.servers.rgw import free_ports
from tierfs.setup.create import ColdChoice, init_store
from tierfs.system.mounts import mounts

pytestmark = [pytest.mark.mount, pytest.mark.timeout(180, method="thread")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    init_store(tmp_path / "store", ColdChoice())
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
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def append(path: Path, name: str, data: bytes, *options: str) -> None:
    tierfs("append", name, *options, store=path, stdin=data)


def cold_bytes(path: Path, name: str) -> int:
    return int(tierfs("info", name, "--json", store=path).json["tiers"]["cold"]["bytes"])


def test_a_daemon_offloads_by_itself_and_ends_when_told(path: Path) -> None:
    with daemon(path) as pid:
        append(path, "s", b"abc", "--seal")
        assert eventually(lambda: cold_bytes(path, "s") == 3)
        refused = tierfs("daemon", store=path, check=False)
        assert refused.code == 5
        assert str(pid) in refused.err
        os.kill(pid, signal.SIGTERM)
        assert eventually(lambda: tierfs("status", "--json", store=path).json["holder"] is None)
    assert "SIGTERM: ending" in (path / "log" / "daemon.log").read_text()


def test_a_store_without_a_cold_tier_is_held_too(tmp_path: Path) -> None:
    path = tmp_path / "store"
    init_store(path, ColdChoice(none=True))
    append(path, "s", b"abc", "--seal")
    with daemon(path):
        assert tierfs("rm", "s", "--now", "--yes", store=path).code == 0
        assert eventually(lambda: not list((path / "chunks").glob("*/*")))


def test_commands_are_done_by_the_holder_and_answer_the_same(path: Path) -> None:
    append(path, "a/s", b"abcdef")
    orphan = path / "chunks" / "01" / "1-63-ffffffffffffffff"
    orphan.write_bytes(b"never acknowledged")
    with daemon(path):
        assert tierfs("gc", "--delete", "--grace", "0", "--json", store=path).json["deleted"] == 1
        assert not orphan.exists()
        done = tierfs("offload", "a", "--json", store=path).json
        assert (done["bytes"], done["objects"]) == (6, 1)
        assert tierfs("evict", "a", "--json", store=path).json["bytes"] == 6
        missing = tierfs("offload", "nowhere", store=path, check=False)
        assert missing.code == 3
        append(path, "a/t", b"xyz")
        number = tierfs("offload", "--no-wait", "--json", store=path).json["request"]
        assert number > 0
        assert eventually(lambda: cold_bytes(path, "a/t") == 3)
        assert tierfs("cat", "a/s", store=path).out == "abcdef"


def test_a_cold_tier_that_is_away_is_named_by_status_info_and_map(tmp_path: Path) -> None:
    path, cold = tmp_path / "away", tmp_path / "nas"
    cold.mkdir()
    (tmp_path / "unmounted").mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=path)
    append(path, "moves", b"abcd", "--seal")
    append(path, "stays", b"abcdef", "--seal")
    tierfs("-q", "policy", "set", "stays", "offload_after=off", store=path)
    before = tierfs("status", "--json", store=path).json["backlog"]
    assert (before["pending_bytes"], before["kept_bytes"]) == (4, 6)
    assert [row["kind"] for row in before["reasons"]] == ["off", "nobody"]

    def kinds(*words: str) -> list[str]:
        return [row["kind"] for row in tierfs(*words, "moves", "--json", store=path).json["local_because"]]

    assert kinds("info") == kinds("map") == ["nobody"]
    tierfs("-q", "policy", "set", "moves", "offload_after=1d", store=path)
    assert kinds("info") == kinds("map") == ["later"]
    for entry in cold.iterdir():  # as below a mount point whose filesystem is not mounted
        entry.rename(tmp_path / "unmounted" / entry.name)
    with daemon(path):
        tierfs("-q", "policy", "set", "moves", "offload_after=0", store=path)
        assert eventually(lambda: kinds("info") == ["cold-tier-away"])
        assert kinds("map") == ["cold-tier-away"]
        assert "not cold  bytes 0 … 4 (4 B): it is due, but the cold tier" in tierfs("map", "moves", store=path).out
        text = tierfs("status", store=path).out
        assert "waits          4 B: it is due, but the cold tier cannot be used: " in text
        assert "stays          6 B: offload_after = off (segment stays)" in text
        assert "; 4 B wait to be offloaded, 0 B in active chunks" in text


def test_status_shows_what_waits_and_what_is_stuck(path: Path) -> None:
    append(path, "s", b"abcd", "--seal")
    (chunk,) = (path / "chunks").glob("*/*")
    chunk.chmod(0o600)
    chunk.write_bytes(b"abXd")
    before = tierfs("status", "--json", store=path).json
    assert (before["backlog"]["pending_bytes"], before["troubles"]) == (4, [])
    with daemon(path):
        assert eventually(lambda: tierfs("status", "--json", store=path).json["troubles"] != [])
    (trouble,) = tierfs("status", "--json", store=path).json["troubles"]
    assert trouble["error_kind"] == "DataLoss"
    assert "offload s from 0 (4 B): failed" in tierfs("status", store=path).out


def test_two_commands_two_mounts_and_a_daemon_at_once(path: Path, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    points = [tmp_path / "m1", tmp_path / "m2"]
    for point in points:
        point.mkdir()
    try:
        with daemon(path) as pid:
            for point in points:
                tierfs("mount", point, store=path)
            command = [sys.executable, "-m", "tierfs", "--store", str(path)]
            both = [
                subprocess.Popen([*command, "append", f"w/s{number}", "--seal"], stdin=subprocess.PIPE)
                for number in range(2)
            ]
            for process in both:
                process.communicate(data, timeout=60)
            offloads = [subprocess.Popen([*command, "-q", "offload", "w"]) for _ in range(2)]
            assert [process.wait(60) for process in (*both, *offloads)] == [0, 0, 0, 0]
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


def test_a_daemon_serves_metrics_at_a_port_and_in_a_file(path: Path, tmp_path: Path) -> None:
    port, file = free_ports(1), tmp_path / "tierfs.prom"
    wanted = (f"metrics.listen=127.0.0.1:{port}", f"metrics.textfile={file}", "metrics.textfile_s=0.1")
    tierfs("-q", "config", "set", *wanted, store=path)
    with daemon(path):
        append(path, "s", b"abc", "--seal")
        assert eventually(lambda: cold_bytes(path, "s") == 3)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert "\ntierfs_holder 1.0\n" in text
        assert "\ntierfs_storage_requests_total{" in text
        assert "_created" not in text
        assert eventually(lambda: file.exists() and "\ntierfs_holder 1.0\n" in file.read_text())
    with daemon(path), pytest.raises(AssertionError, match="held by"):
        tierfs("daemon", store=path)


@pytest.mark.parametrize("listen", ["9150", "here", "127.0.0.1:99999", "192.0.2.1:9150"])
def test_an_address_that_cannot_be_listened_at_is_refused(path: Path, listen: str) -> None:
    tierfs("-q", "config", "set", f"metrics.listen={listen}", store=path)
    done = tierfs("daemon", store=path, check=False)
    assert done.code in (2, 11)
    assert "metrics" in done.err
    assert tierfs("status", "--json", store=path).json["holder"] is None
