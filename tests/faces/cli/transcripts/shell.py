"""bash in which `tierfs` is a command of this process: it takes 5 ms, and one forked for it 90.

The function of bash writes its words and variables to a file, asks through a pipe and waits for the exit code. The
command has the descriptors that the function has, whatever was redirected. Here one runs after another, so those that
run side by side, in the background or in one pipe, are forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

from tests import forked
from tests.commands import FORKED_COMMANDS, IN_PROCESSES, TIMEOUT_S, call
from tests.servers import fork_request

_ASKING, _ANSWERS = 200, 201
"""Descriptors in the shell that no command uses by its number."""

_FUNCTION = (
    "tierfs() { local code in out err; exec {in}<&0 {out}>&1 {err}>&2; "
    """{ printf '%%s\\0' $BASHPID $in $out $err "$PWD" "$@"; export -p; } >%s; """
    f"echo >&{_ASKING}; read -r -u {_ANSWERS} code; "
    "exec {in}<&- {out}>&- {err}>&-; return $code; }; "
    f"exec {_ASKING}>&%d {_ANSWERS}<&%d %d>&- %d<&-\n"
)
_SIDE_BY_SIDE = re.compile(
    r"(?<![&<>|])&(?![&>])"  # in the background
    r"|\btierfs\b[^;\n)]*(?:[^|]\|[^|]|<\()[^;\n)]*\btierfs\b"  # both in one pipe
    r"|(?:\)|\bdone) \| *tierfs\b"  # the pipe's first part has several commands
)
_EXPORTED = re.compile(r'^declare -x (\w+)="((?:[^"\\]|\\.)*)"$', re.MULTILINE | re.DOTALL)
_PIDFD_GETFD = 438
"""Number of a system call that Python has no name for; root's containers may forbid it."""


def run(command: str, directory: Path, env: Mapping[str, str]) -> CompletedProcess[bytes]:
    """Run a command of bash in a directory, with nothing to read."""
    if FORKED_COMMANDS in os.environ or _SIDE_BY_SIDE.search(command) or not _takes_descriptors():
        return _run_forked(command, directory, env)
    forked.server()  # begun within a command, it would keep that command's pipes open
    with (
        tempfile.NamedTemporaryFile() as asked,
        open(os.memfd_create("stdout"), "w+b") as out,
        open(os.memfd_create("stderr"), "w+b") as err,
    ):
        requests, asking = os.pipe()
        answers, answering = os.pipe()
        asking, answers = _above(asking), _above(answers)
        process = subprocess.Popen(
            ["bash", "-uc", _FUNCTION % (asked.name, asking, answers, asking, answers) + command],
            env=env,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=[asking, answers],
        )
        os.close(asking)
        os.close(answers)
        # Whatever happens here, closed pipes end the function of bash.
        with process, open(answering, "wb", buffering=0) as told, open(requests, "rb", buffering=0) as lines:
            try:
                for _ in lines:
                    told.write(b"%d\n" % _answer(Path(asked.name).read_bytes()))
                process.wait(TIMEOUT_S)
            except BaseException:  # else a loop of the shell would be waited for
                process.kill()
                raise
        out.seek(0)
        err.seek(0)
        return CompletedProcess(command, process.returncode, out.read(), err.read())


def _above(fd: int) -> int:
    """Return a descriptor in place of `fd` that is none of those by which the shell knows the pipes."""
    above = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ANSWERS + 1)
    os.close(fd)
    return above


def _answer(asked: bytes) -> int:
    """Run the command of a request; return its exit code."""
    pid, *rest = os.fsdecode(asked).split("\0")
    numbers, directory, words, exported = rest[:3], rest[3], rest[4:-1], rest[-1]
    env = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _EXPORTED.findall(exported)}
    descriptors = [_descriptor(int(pid), int(number)) for number in numbers]
    try:
        with contextlib.chdir(directory):
            if IN_PROCESSES.isdisjoint(words):
                return call(words, env, descriptors)
            return forked.start("tierfs", words, env, descriptors).wait(TIMEOUT_S)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _descriptor(pid: int, number: int) -> int:
    """Return a duplicate of another process's descriptor."""
    process = os.pidfd_open(pid)
    try:
        found: int = _libc().syscall(_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if found < 0:
        raise OSError(ctypes.get_errno(), f"descriptor {number} of process {pid}")
    return found


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _takes_descriptors() -> bool:
    """Return whether this process may take descriptors of its children."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        try:
            os.close(_descriptor(process.pid, 0))
        except OSError:
            return False
    return True


def _run_forked(command: str, directory: Path, env: Mapping[str, str]) -> CompletedProcess[bytes]:
    fd = forked.server().fileno()
    return subprocess.run(
        ["bash", "-uc", forked.IN_SHELL + command],
        env={**env, fork_request.SERVER_FD: str(fd)},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        pass_fds=[fd],
        timeout=TIMEOUT_S,
    )
