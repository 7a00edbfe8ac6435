"""Servers go with those who use them, and say why they cannot start."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.process import ServerError
from tests.servers.rgw import RgwServer

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os, sys
from pathlib import Path
from tests.servers.shared import shared

log = open(sys.argv[1] + "/log", "a", buffering=1)

def start():
    log.write(f"start {os.getpid()}\\n")
    return str(os.getpid())

with shared(Path(sys.argv[1], "d"), start, lambda: log.write(f"stop {os.getpid()}\\n")) as address:
    print(address, flush=True)
    sys.stdin.read()
    log.write(f"leave {os.getpid()}\\n")
"""


class User:
    """A process that uses the server until it is told to leave."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-c", PROGRAM, str(directory)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def address(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def told_to_leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def gone(self, status: int = 0) -> None:
        assert self._process.stdout is not None
        assert self._process.wait(60) == status
        self._process.stdout.close()

    def killed(self) -> None:
        self._process.kill()
        self.told_to_leave()
        self.gone(-signal.SIGKILL)


def test_the_first_of_all_starts_a_shared_server_and_stops_it_when_all_have_left(tmp_path: Path) -> None:
    users = [User(tmp_path) for _ in range(4)]
    (first,) = {user.address() for user in users}
    users.sort(key=lambda user: user.pid != first)
    users.pop().killed()
    for user in users:
        user.told_to_leave()
    for user in users:
        user.gone()
    log = (tmp_path / "log").read_text().splitlines()
    assert (log[0], log[-1], len(log)) == (f"start {first}", f"stop {first}", 5)


@pytest.mark.s3
def test_a_failing_start_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin" / "monmaptool"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=":")
    with pytest.raises(ServerError, match=rf"^ceph-rgw: could not start .* see {tmp_path}/rgw/start\.log"):
        RgwServer(tmp_path / "rgw").start()
    with pytest.raises(ServerError, match="not empty"):
        RgwServer(broken.parent).start()
    assert broken.exists()
