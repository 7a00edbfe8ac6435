"""A server that knows no leash, kept on one: it ends when our standard input closes, as ServerProcess asks.

    python -m tests.servers.leashed PORT PROGRAM WORDS...

starts the program, which answers at 127.0.0.1:PORT, and prints that URL once it does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.process import ServerProcess
from tests.servers.rgw import free_ports

ROOT = Path(__file__).parents[2]
_START_S = 60.0
_POLL_S = 0.02


class Leashed(ServerProcess):
    """A program of somebody else, at a free port."""

    def __init__(self, words: Sequence[str], ports: int = 1) -> None:
        """`words`: the program and its arguments; `{port}` in them stands for the first of `ports` free ones."""
        super().__init__([], cwd=ROOT)
        self._words = words
        self._ports = ports
        self._port = 0

    def start(self) -> None:
        """Start at the port it had, or at a free one."""
        self._port = self._port or free_ports(self._ports)
        words = [word.format(port=self._port) for word in self._words]
        self._command = [sys.executable, "-m", "tests.servers.leashed", str(self._port), *words]
        super().start()

    @property
    def program(self) -> int:
        """The program's process id. Only while it runs."""
        assert self._process is not None
        return children_of(self._process.pid)[0]


def serve(port: int, words: Sequence[str]) -> None:
    """Run the program until standard input closes; print what it says where it does not begin to answer."""
    program = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _START_S
        while not _answers(port):
            if program.poll() is not None or time.monotonic() > deadline:
                program.kill()
                print(program.communicate()[0].decode(errors="replace") or f"{words[0]} does not answer", flush=True)
                return
            time.sleep(_POLL_S)
        print(f"http://127.0.0.1:{port}", flush=True)
        # What it prints is not read by anybody, and would fill the pipe.
        with open("/dev/null", "wb") as nowhere:
            drain = subprocess.Popen(["cat"], stdin=program.stdout, stdout=nowhere)
        sys.stdin.read()
        _kill(program)
        drain.wait()
    finally:
        _kill(program)
        program.wait()


def children_of(pid: int) -> list[int]:
    """Return the processes that a process started."""
    with suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _kill(program: subprocess.Popen[bytes]) -> None:
    """Kill a program with all that it started: sshd has a process for each connection, in a session of its own."""
    pids = [program.pid]
    for pid in pids:
        pids += children_of(pid)
    program.kill()
    for pid in pids[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
