"""Services in the foreground and their service manager: what it is notified of, and the lines of its log.

The real commands, with a socket in the place of systemd's.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.waiting import eventually
from tierfs.app.setup.create import init_store
from tierfs.base.system import service_manager
from tierfs.base.system.daemon_log import ManagedLog
from tierfs.base.system.places import mounts

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

SERVICES = ["mount", "daemon", "admin"]
END_S = 60
WATCHDOG_US = 200_000
LINE = re.compile(r"<([2-7])>(.+)")


@dataclass
class Manager:
    """A service manager: its socket, its log, and the service that it started."""

    service: subprocess.Popen[bytes]
    notified: socket.socket
    log: socket.socket

    def wait_for(self, start: str) -> list[str]:
        """Return the messages up to the first that starts like this."""
        messages = []
        while not messages or not messages[-1].startswith(start):
            messages.append(self.notified.recv(4096).decode())
        return messages

    def lines(self) -> list[str]:
        """Return what the service logged until its end."""
        text = b""
        while block := self.log.recv(1 << 16):
            text += block
        return text.decode().splitlines()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    init_store(tmp_path / "store")
    (tmp_path / "mnt").mkdir()
    return tmp_path / "store"


@contextmanager
def managed(store: Path, *words: str, address: str = "", **variables: str) -> Iterator[Manager]:
    """Start a service as systemd does a unit of Type=notify, with a watchdog."""
    reading, writing = socket.socketpair()
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with reading, notified:
        notified.bind(address or str(store.parent / "notify"))
        for one in (reading, notified):
            one.settimeout(END_S)
        status = os.fstat(writing.fileno())
        variables |= {
            "NOTIFY_SOCKET": address.replace("\0", "@") or str(store.parent / "notify"),
            "WATCHDOG_USEC": str(WATCHDOG_US),
            "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}",
            "TIERFS_STORE": str(store),
        }
        with writing:
            command = [sys.executable, "-m", "tierfs", *words]
            process = subprocess.Popen(command, stderr=writing, env={**os.environ, **variables})
        try:
            yield Manager(process, notified, reading)
        finally:
            process.terminate()
            process.wait(END_S)


def words_of(verb: str, store: Path) -> list[str]:
    return [verb, "-f", *([str(store.parent / "mnt")] if verb == "mount" else [])]


@pytest.mark.parametrize("verb", SERVICES)
def test_a_service_reports_its_start_life_reload_and_end(verb: str, store: Path) -> None:
    with managed(store, *words_of(verb, store)) as manager:
        manager.wait_for("READY=1")
        if verb == "mount":
            assert [mount.mountpoint for mount in mounts() if mount.store == store] == [store.parent / "mnt"]
        for _ in range(3):
            manager.wait_for("WATCHDOG=1")
        manager.service.send_signal(signal.SIGHUP)
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", manager.wait_for("RELOADING=1")[-1])
        manager.wait_for("READY=1")
        manager.service.terminate()
        manager.wait_for("STOPPING=1")
        assert manager.service.wait(END_S) == 0
        lines = manager.lines()
    priorities = {match[1] for line in lines if (match := LINE.fullmatch(line))}
    assert (bool(lines), [line for line in lines if not LINE.fullmatch(line)]) == (True, [])
    assert "6" in priorities
    assert any("SIGHUP: settings and credentials were reloaded" in line for line in lines)


def test_following_log_files_reports_its_start_and_end(store: Path) -> None:
    (store.parent / "app.log").write_text("line\n")
    with managed(store, "follow", str(store.parent / "app.log"), "--into", "logs") as manager:
        manager.wait_for("READY=1")
        for _ in range(3):
            manager.wait_for("WATCHDOG=1")
        manager.service.send_signal(signal.SIGHUP)
        manager.wait_for("RELOADING=1")
        manager.wait_for("READY=1")
        assert eventually(lambda: tierfs("cat", "logs/app.log", store=store, check=False).out == "line\n")
        manager.service.terminate()
        manager.wait_for("STOPPING=1")
        assert manager.service.wait(END_S) == 0


def test_a_sender_that_waits_for_its_server_is_ready_and_alive(store: Path) -> None:
    (store.parent / "app.log").write_text("line\n")
    to = ("--to", "http://127.0.0.1:1", "--token-file", str(store.parent / "app.log"))
    with managed(store, "follow", str(store.parent / "app.log"), "--into", "logs", *to) as manager:
        manager.wait_for("READY=1")
        for _ in range(3):
            manager.wait_for("WATCHDOG=1")
        manager.service.terminate()
        manager.service.wait(END_S)
        [line] = manager.lines()
    assert "waiting: http://127.0.0.1:1 does not answer" in line


@pytest.mark.parametrize("level", ["info", "warning"])
def test_a_log_has_the_level_and_the_format_that_are_set(level: str, store: Path) -> None:
    tierfs("-q", "config", f"log.level={level}", "log.format=json", store=store)
    with managed(store, *words_of("daemon", store), address=f"\0tierfs-{os.getpid()}") as manager:
        manager.wait_for("READY=1")
        manager.service.send_signal(signal.SIGHUP)
        manager.wait_for("RELOADING=1")
        manager.wait_for("READY=1")
        manager.service.terminate()
        manager.service.wait(END_S)
        lines = [LINE.fullmatch(line) for line in manager.lines()]
    records = [(line[1], json.loads(line[2])) for line in lines if line is not None]
    assert len(records) == len(lines)
    reloaded = [priority for priority, record in records if "reloaded" in record["message"]]
    assert (reloaded, bool(records)) == ((["6"], True) if level == "info" else ([], False))


def test_a_service_that_cannot_start_reports_an_error_and_is_never_ready(store: Path) -> None:
    (store.parent / "mnt/file").touch()
    with managed(store, *words_of("mount", store)) as manager:
        assert manager.service.wait(END_S) == 2
        lines = manager.lines()
        manager.notified.settimeout(0)
        with pytest.raises(BlockingIOError):
            manager.notified.recv(1)
    assert lines[-2:] == [
        f"<3>tierfs: mount point {store.parent}/mnt is not empty (InvalidRequest, exit 2)",
        "<3>  choose an empty directory",
    ]


def test_a_mount_in_the_background_is_no_service_of_the_manager_around_it(store: Path) -> None:
    with managed(store, "mount", str(store.parent / "mnt")) as manager:
        try:
            assert manager.service.wait(END_S) == 0
            manager.notified.settimeout(0)
            with pytest.raises(BlockingIOError):
                manager.notified.recv(1)
        finally:
            tierfs("umount", store.parent / "mnt")


def test_variables_of_the_manager_are_not_those_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}.items():
        monkeypatch.setenv(name, value)
    try:
        service_manager.begin(in_foreground=True)
        assert service_manager.alive_every_s() is None  # it watches process 1
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ)
        monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
        monkeypatch.setenv("WATCHDOG_USEC", "4000000")
        service_manager.begin(in_foreground=True)
        assert service_manager.alive_every_s() == 2
    finally:
        service_manager.begin(in_foreground=False)
    assert service_manager.alive_every_s() is None


def test_each_line_of_a_record_has_its_priority() -> None:
    log, text = ManagedLog(), "first\nsecond"
    levels = [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2)]
    for level, priority in levels:
        assert service_manager.with_priority(text, level) == f"<{priority}>first\n<{priority}>second"
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("tierfs.x", logging.ERROR, __file__, 1, "text", (), sys.exc_info())
    assert {line[:3] for line in log.format(record).splitlines()} == {"<3>"}
    assert log.format(record).startswith("<3>tierfs.x: text\n")


def test_a_terminal_or_a_file_gets_no_priorities(store: Path, tmp_path: Path) -> None:
    other = os.stat(tmp_path)
    environment = {**os.environ, "TIERFS_STORE": str(store), "JOURNAL_STREAM": f"{other.st_dev}:{other.st_ino}"}
    command = [sys.executable, "-m", "tierfs", "info", "none"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("tierfs: ")


def test_a_manager_that_is_gone_ends_no_service(store: Path) -> None:
    with managed(store, *words_of("daemon", store)) as manager:
        manager.wait_for("READY=1")
        (store.parent / "notify").unlink()
        manager.service.send_signal(signal.SIGHUP)
        text = b""
        while b"cannot notify the service manager" not in text:
            text += manager.log.recv(1 << 16)
        assert manager.service.poll() is None
