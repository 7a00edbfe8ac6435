"""Processes forked from one that has imported tierfs already: a start costs milliseconds instead of half a second.

The parent asks over a socket and passes the child's standard streams along; the server reaps the child and tells its
exit code. The child then runs like a fresh `python -m MODULE` to the interpreter's own end. The daemon of
`tierfs mount` and `tierfs daemon` is forked too, from a process that did nothing else yet, unless REAL_DAEMONS is set.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache, partial
from pathlib import Path
from queue import Queue
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

import click

from tests.children import die
from tests.doubles import ballast as sparse_ballast
from tests.servers import fork_request
from tests.servers.fork_request import ANSWER_BYTES
from tierfs.base.bytes import frozen
from tierfs.base.system import processes
from tierfs.tiering.garbage import ballast

IMPORTED = (
    "anyio._backends._asyncio",
    "awscrt.checksums",
    "boto3",
    "encodings.idna",
    "prometheus_client",
    "tierfs.app.store",
    "tierfs.upkeep.holder.local_work",
    "tierfs.upkeep.holder.perform",
    "tierfs.engine.chunkstore.s3.storage",
    "tierfs.engine.journal.owner_watch",
    "tierfs.faces.admin.listen",
    "tierfs.faces.cli.main",
    "tierfs.app.setup.locations",
    "tierfs.app.check",
    "tierfs.app.daemon",
    "tierfs.app.mount",
    "tierfs.app.verbs",
    "tierfs.reading.stream",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.auto",
)
IN_SHELL = f'tierfs() {{ {shlex.join([sys.executable, "-ISE", fork_request.__file__])} "$@"; }}\n'
"""Makes `tierfs` a function of bash; the shell inherits the descriptor that SERVER_FD names."""

REAL_DAEMONS = "REAL_DAEMONS"
"""Names the variable with which daemons, and children of commands, are interpreters of their own."""

_REQUEST_BYTES = 1 << 20
_STREAMS = 3
_END_S = 30.0


class Child:
    """A process that was forked."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._code: int | None = None
        self.pid = int(answers.recv(ANSWER_BYTES))

    def wait(self, timeout_s: float | None = None) -> int:
        """Return its exit code, negative for a signal. Raises TimeoutExpired when it takes longer."""
        if self._code is None:
            self._answers.settimeout(timeout_s)
            try:
                self._code = int(self._answers.recv(ANSWER_BYTES))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"forked process {self.pid}", timeout_s or 0) from None
            self._answers.close()
        return self._code

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; nothing once it was waited for."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Talking:
    """A process whose lines are read while it runs; `end` it."""

    def __init__(self, module: str, *words: object, most_lines: int = 0, asks: bool = False) -> None:
        """It waits once `most_lines` were not read, and some in its pipe; 0: it never does. `asks`: it reads lines."""
        out, theirs = os.pipe()
        self._error = TemporaryFile()  # noqa: SIM115  # `end` closes it
        read, write = os.pipe() if asks else (os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
        self._input = open(write, "w", encoding="utf-8")  # noqa: SIM115  # `end` closes it
        self._child = start(module, [*map(str, words)], os.environ, (read, theirs, self._error.fileno()))
        os.close(read)
        os.close(theirs)
        self._lines: Queue[str] = Queue(most_lines)
        self._reader = threading.Thread(target=self._read, args=(out,))
        self._reader.start()
        self.pid = self._child.pid

    def line(self, timeout_s: float = 60) -> str:
        """Return the next line with its end, "" once there are no more. Raises Empty when none arrives."""
        line = self._lines.get(timeout=timeout_s)
        if not line:
            self._lines.put(line)  # for who asks again, and for `end`
        return line

    def lines_now(self) -> list[str]:
        """Return the lines that are there, without waiting for more."""
        lines = []
        while not self._lines.empty() and (line := self.line()):
            lines.append(line)
        return lines

    def ask(self, line: str) -> None:
        """Send it a line, without its end."""
        print(line, file=self._input, flush=True)

    def close_input(self) -> None:
        """Let its input end. Idempotent."""
        self._input.close()

    def wait(self, timeout_s: float) -> int:
        """See Child.wait."""
        return self._child.wait(timeout_s)

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        self._child.kill(number)

    def terminate(self) -> None:
        """Ask it to end."""
        self._child.kill(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._child.kill()

    def end(self) -> tuple[list[str], str]:
        """Kill it unless it ended; return the lines that were not read, and its errors."""
        self._child.kill()
        self._child.wait(_END_S)
        with contextlib.suppress(BrokenPipeError):
            self.close_input()
        lines = list(iter(partial(self._lines.get, timeout=_END_S), ""))
        self._reader.join(_END_S)
        with self._error:
            self._error.seek(0)
            return lines, self._error.read().decode(errors="replace")

    def _read(self, fd: int) -> None:
        with open(fd, encoding="utf-8") as file:
            for line in file:
                self._lines.put(line)
        self._lines.put("")


def start(module: str, words: Sequence[str], env: Mapping[str, str], streams: Sequence[int]) -> Child:
    """Run `python -m MODULE WORDS` with these descriptors as standard streams, in the directory of now."""
    return Child(fork_request.send(server(), module, words, env, streams))


def run(
    module: str, words: Sequence[str], env: Mapping[str, str], stdin: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end, with the input given and the output kept."""
    pipes = [os.pipe() for _ in range(_STREAMS)]
    theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
    child = start(module, words, env, theirs)
    for fd in theirs:
        os.close(fd)
    found: dict[int, bytes] = {}
    threads = [threading.Thread(target=write_all, args=(pipes[0][1], stdin))]
    threads += [threading.Thread(target=_read, args=(fd, found)) for fd in (pipes[1][0], pipes[2][0])]
    for thread in threads:
        thread.start()
    try:
        code = child.wait(timeout_s)
    finally:
        child.kill()
    for thread in threads:
        thread.join(timeout_s)
    return subprocess.CompletedProcess([module, *words], code, found[pipes[1][0]], found[pipes[2][0]])


def write_all(fd: int, data: bytes) -> None:
    """Write it to a pipe, as far as somebody reads it, and close that."""
    with open(fd, "wb", buffering=0) as file:
        view = memoryview(data)
        try:
            while view:
                view = view[file.write(view) :]
        except BrokenPipeError:  # it ended before it read all
            return


def _read(fd: int, found: dict[int, bytes]) -> None:
    with open(fd, "rb") as file:
        found[fd] = file.read()


@cache
def server() -> socket.socket:
    """Return the socket that takes requests, see fork_request.send."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parent.parent,
        )
    atexit.register(process.wait)  # after the socket is closed, which ends it
    atexit.register(ours.close)
    return ours


def _serve(requests: socket.socket) -> tuple[str, list[str]] | None:
    """Fork for each request until there are none; return in each child its command, in the server None.

    It tells of each child its number and then its end. A fork takes 6 ms: a process for each child that waits for it
    would take as much again.
    """
    answers: dict[int, int] = {}
    ended, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = select.poll()
    for fd in (ended, requests.fileno()):
        waiting.register(fd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in waiting.poll()}
        if ended in ready:
            os.read(ended, _REQUEST_BYTES)
            _tell_ends(answers)
        if requests.fileno() not in ready:
            continue
        data, ancillary, _, _ = requests.recvmsg(_REQUEST_BYTES, socket.CMSG_SPACE(4 * (_STREAMS + 1)))
        if not data:
            return None
        *streams, answer = array.array("i", ancillary[0][2])
        pid = os.fork()
        if pid:
            answers[pid] = answer
            for fd in streams:
                os.close(fd)
            os.write(answer, b"%d" % pid)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        for fd in (ended, told, answer, *answers.values()):
            os.close(fd)
        return _become(json.loads(data), streams)


def _tell_ends(answers: dict[int, int]) -> None:
    """Tell of the children that have ended, to who asked for them."""
    while answers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        answer = answers.pop(pid)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody waits
            os.write(answer, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(answer)


def _become(request: tuple[str, list[str], dict[str, str], str], streams: Sequence[int]) -> tuple[str, list[str]]:
    module, words, env, directory = request
    for number, fd in enumerate(streams):
        os.dup2(fd, number, inheritable=True)
        os.close(fd)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(directory)
    sys.path[1:1] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    return module, words


def _fork_daemon() -> tuple[str, list[str]] | None:
    """Let the next daemon of this process be a child of fork; return in that child its command, here None."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()

        def begin(command: Sequence[str], **options: Any) -> object:
            if "pass_fds" not in options:
                return subprocess.Popen(command, **options)
            (ready,) = options["pass_fds"]
            request = json.dumps(["tierfs", command[4:], options["env"], options["cwd"]]).encode()
            with ours, open(os.devnull, "rb") as nothing:
                streams = [nothing.fileno(), options["stdout"].fileno(), options["stderr"].fileno(), ready]
                socket.send_fds(ours, [request], streams)
            return SimpleNamespace(
                pid=pid, terminate=lambda: os.kill(pid, signal.SIGTERM), wait=lambda _: os.waitpid(pid, 0)
            )

        setattr(processes, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": begin}))  # noqa: B010
        return None
    ours.close()
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
    data, descriptors, _, _ = socket.recv_fds(theirs, _REQUEST_BYTES, _STREAMS + 1)
    theirs.close()
    if not data:  # the command began no daemon
        die()
    signal.signal(signal.SIGINT, interrupted)
    os.setsid()
    *streams, ready = descriptors
    request = json.loads(data)
    request[2][processes._READY_FD] = str(ready)
    return _become(request, streams)


def _main() -> None:
    from tierfs.faces.cli.main import cli

    for name in cli.list_commands(click.Context(cli)):
        cli.get_command(click.Context(cli), name)
    for name in IMPORTED:
        importlib.import_module(name)
    _load_models()
    _compile_records()
    ballast.create = sparse_ballast.create
    gc.freeze()  # a collection would copy what parent and child share
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        todo = _serve(requests)
    if todo is None:
        return
    if not {"admin", "mount", "daemon"}.isdisjoint(todo[1]) and REAL_DAEMONS not in os.environ:
        todo = _fork_daemon() or todo
    module, words = todo
    sys.argv[1:] = words
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    _end(code)


def _load_models() -> None:
    """Let pydantic make its model of settings and botocore parse what it knows of S3, for the children too."""
    from tierfs.base.options.settings import _settings_model
    from tierfs.engine.chunkstore.s3.client import DEFAULT_REGION, _loader, new_session

    _settings_model()

    session = new_session(None)
    session.register_component("data_loader", _loader(None))
    session.create_client("s3", DEFAULT_REGION, aws_access_key_id="none", aws_secret_access_key="none").close()


def _compile_records() -> None:
    """Let records have their `__init__`, which the first of each compiles: here once for all children."""
    modules = [module for name, module in sys.modules.items() if name.startswith("tierfs.")]
    for record in {each for module in modules for each in vars(module).values() if isinstance(each, type)}:
        if is_dataclass(record) and record.__init__.__module__ == frozen.__name__:
            frozen.compile_init(record)


def _end(code: int) -> None:
    """End as the interpreter does, but without taking apart all that was imported: that takes 0.1 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    die(code)


if __name__ == "__main__":
    _main()
