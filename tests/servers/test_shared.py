"""A server that processes share: one start, one stop, and only when nobody uses it any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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

    def gone(self) -> None:
        assert self._process.stdout is not None
        assert self._process.wait(60) == 0
        self._process.stdout.close()

    def killed(self) -> None:
        self._process.kill()
        self._process.communicate()


def log(directory: Path) -> list[str]:
    return (directory / "log").read_text().splitlines()


def test_the_first_starts_it_and_stops_it_when_all_have_left(tmp_path: Path) -> None:
    first = User(tmp_path)
    assert first.address() == first.pid
    second = User(tmp_path)
    assert second.address() == first.pid
    first.told_to_leave()
    second.told_to_leave()
    second.gone()
    first.gone()
    assert log(tmp_path)[0] == f"start {first.pid}"
    assert log(tmp_path)[-1] == f"stop {first.pid}"
    assert len(log(tmp_path)) == 4


def test_who_comes_after_the_end_starts_it_again(tmp_path: Path) -> None:
    for _ in range(2):
        user = User(tmp_path)
        assert user.address() == user.pid
        user.told_to_leave()
        user.gone()


def test_those_that_come_at_once_share_one(tmp_path: Path) -> None:
    users = [User(tmp_path) for _ in range(4)]
    assert len({user.address() for user in users}) == 1
    for user in users:
        user.told_to_leave()
    for user in users:
        user.gone()
    assert [line.split()[0] for line in log(tmp_path)].count("stop") == 1


def test_a_user_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    first = User(tmp_path)
    assert first.address() == first.pid
    second = User(tmp_path)
    assert second.address() == first.pid
    second.killed()
    first.told_to_leave()
    first.gone()
    assert log(tmp_path)[-1] == f"stop {first.pid}"
