"""One shell in which a reader types commands: variables and the directory of a command are there for the next.

Its `tierfs` is a function that forks a process which has imported all; Ctrl-C reaches the real command. With
INSTALLED_TIERFS in the environment it is the program in that directory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from tests import forked
from tests.servers.fork_request import SERVER_FD
from tierfs.base.system import osio

INSTALLED_TIERFS = "INSTALLED_TIERFS"
"""Names the variable with a directory of programs, such as that of an environment in which a wheel is installed."""

COMMAND_S = 100
INTERRUPTED = "until Ctrl-C"
"""What a command that would not end has in its comment."""

_SILENT_S = 30
"""A command that neither prints anything nor waits is interrupted then."""
_IDLE_S = 1
"""Processes that slept as long, used no time of a processor, and do not wait for a thread of theirs, wait for input."""
_POLL_S = 0.05
_BY_INTERRUPT = 130
_GROUP, _TIMES = 2, slice(11, 13)
"""Places in proc_pid_stat(5) of the process group and of the times in user and kernel mode, counted from the state."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    error: str


def is_whole(command: str) -> bool:
    """Return whether the shell needs no further line to know where the command ends."""
    checked = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
    return not checked.stderr and not command.endswith("\\\n")


class Shell:
    """A shell that ends with the first command that fails, also one before the last of a pipe or of a line."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        self._directory, self._env = directory, env

    def __enter__(self) -> Shell:
        self._files = TemporaryDirectory()
        self._answers, theirs = os.pipe()
        server = forked.server().fileno()
        self._process = subprocess.Popen(
            # A test run in the background inherits an ignored SIGINT, which bash would keep ignored; a user's does not.
            ["env", "--default-signal=INT", "bash", "--noprofile", "--norc", "-eEuo", "pipefail", "-s"],
            cwd=self._directory,
            env={**self._env, SERVER_FD: str(server)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs, server],
            start_new_session=True,
            text=True,
        )
        os.close(theirs)
        self._fd = theirs
        if INSTALLED_TIERFS not in self._env:
            self._send(forked.IN_SHELL)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        os.close(self._answers)
        self._files.cleanup()

    def run(self, command: str) -> Ended:
        """Run one command to its end. Raises TimeoutError; after one that failed, the shell is gone."""
        files = Path(self._files.name)
        source, out, error = files / "command", files / "out", files / "error"
        source.write_text(command)
        streams = f"</dev/null >{out} 2>{error} {self._fd}>&-"
        if INTERRUPTED in command:
            code = self._interrupted(f"{{ unset -f tierfs; . {source}; }} {streams}", out)
        else:
            self._send(f". {source} {streams}; echo $? >&{self._fd}")
            code = self._answered(COMMAND_S, command)
        return Ended(code, *(file.read_text(errors="replace") for file in (out, error)))

    def _interrupted(self, command: str, out: Path) -> int:
        out.unlink(missing_ok=True)  # what the command before printed
        self._send(f"set -m; {command} & set +m; echo $! >&{self._fd}")  # a job of its own, as in a terminal
        job = self._answered(COMMAND_S, command)
        end_s = time.monotonic() + _SILENT_S
        before, since_s = _state(job), time.monotonic()
        while (now_s := time.monotonic()) < end_s and not (out.exists() and out.stat().st_size):
            state = _state(job)
            if state != before or any(not at_rest for at_rest, _ in state):
                before, since_s = state, now_s
            elif now_s - since_s > _IDLE_S:
                break
            time.sleep(_POLL_S)
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(job, signal.SIGINT)
        self._send(f"code=0; wait {job} || code=$?; echo $code >&{self._fd}")
        code = self._answered(COMMAND_S, command)
        return 0 if code == _BY_INTERRUPT else code

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answered(self, timeout_s: float, command: str) -> int:
        if not osio.readable(self._answers, timeout_s):
            os.killpg(self._process.pid, signal.SIGKILL)
            raise TimeoutError(f"{command} took more than {timeout_s} s")
        answer = os.read(self._answers, 64)
        return int(answer) if answer else self._process.wait(COMMAND_S)


def _state(job: int) -> list[tuple[bool, int]]:
    """Whether each process of a job is at rest and the processor's time it used, from proc_pid_stat(5).

    The first append of a store sleeps in a futex for up to 5 s, until a thread knows who owns the bucket.
    """
    states = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            fields = file.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[_GROUP]) == job:
                at_rest = fields[0] == "S" and "futex" not in file.with_name("wchan").read_text()
                states.append((at_rest, sum(map(int, fields[_TIMES]))))
    return states
