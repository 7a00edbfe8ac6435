"""Run the command as a user does: its words, its streams, its output, its exit code.

A command has the test's process, redirected, unless it needs one of its own: it goes on when it is done, or its store
is open here, or an event loop or other threads' output would be in its way. `FORKED_COMMANDS` in the environment
gives every command its own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from tests import forked
from tierfs.base.system import processes
from tierfs.engine.metadata import environment as lmdb_environment
from tierfs.faces.cli.main import main

TIMEOUT_S = 100
FORKED_COMMANDS = "FORKED_COMMANDS"
STREAMS = ("stdin", "stdout", "stderr")
PIPE_BYTES = 1 << 16
SLOW = re.compile("tierfs: warning: read of .* is blocked.*\n")
"""Where a machine is busy, a server of its own may really be silent for so long."""
IN_PROCESSES = {"admin", "bench", "daemon", "mount", "pipeline", "top", "--master"}
"""Words of commands that start others or never end."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return its one JSON object."""
        return json.loads(self.out)


def tierfs(
    *words: object, store: Path | None = None, stdin: bytes = b"", check: bool = True, timeout_s: float = TIMEOUT_S
) -> Done:
    """Run `tierfs`; with `check` it must succeed and say nothing on standard error but of a server that is slow."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TIERFS_")}
    if store is not None:
        environment["TIERFS_STORE"] = str(store)
    code, out, err = run([*map(str, words)], environment, stdin, timeout_s)
    result = Done(code, out.decode(errors="replace"), err.decode(errors="replace"))
    assert "Traceback" not in result.err, result.err
    if check:
        assert (result.code, SLOW.sub("", result.err)) == (0, ""), result
    return result


def run(
    words: Sequence[str], environment: Mapping[str, str], stdin: bytes, timeout_s: float = TIMEOUT_S
) -> tuple[int, bytes, bytes]:
    """Run `tierfs` with these variables; return its exit code and what it printed."""
    if (
        FORKED_COMMANDS in os.environ
        or not IN_PROCESSES.isdisjoint(words)
        or threading.current_thread() is not threading.main_thread()
        or trio.lowlevel.in_trio_run()
        or _may_be_open_here(words, environment)
    ):
        done = forked.run("tierfs", words, environment, stdin, timeout_s)
        return done.returncode, done.stdout, done.stderr
    return run_here(words, environment, stdin)


def _may_be_open_here(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    # Stores that other tests keep open are nothing to this command; a process of its own would know no monkeypatch.
    named = [Path(word).absolute() for word in (environment.get("TIERFS_STORE", ""), *words)]
    return any(path.is_relative_to(word) for path in lmdb_environment.environments for word in named)


def run_here(words: Sequence[str], environment: Mapping[str, str], stdin: bytes) -> tuple[int, bytes, bytes]:
    """As `run`, but always in this process."""
    with (
        open(os.memfd_create("stdout"), "w+b") as out,
        open(os.memfd_create("stderr"), "w+b") as err,
        _fed(stdin) as reading,
    ):
        code = call(words, environment, (reading, out.fileno(), err.fileno()))
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def call(words: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
    """Run `tierfs` in this process with these variables and descriptors; return its exit code."""
    before = set(lmdb_environment.environments)  # tests of Spark keep one open for all of theirs
    with contextlib.ExitStack() as redirected:
        patch = redirected.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "argv", [str(Path(forked.__file__).parents[1] / "tierfs/__main__.py"), *words])
        _forked_children(patch)
        redirected.enter_context(_environment(environment))
        redirected.enter_context(_logging_anew())
        redirected.enter_context(_streams(streams))
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            for name in STREAMS[1:]:
                getattr(sys, name).flush()
    left = lmdb_environment.environments.keys() - before
    assert not left, f"the command left {left} open"
    return code


def _forked_children(patch: pytest.MonkeyPatch) -> None:
    """Let the Python modules that this process runs as children be forked, such as the first of a check."""
    fresh = processes.run

    def run_forked(command: Sequence[processes.Argument], **options: Any) -> processes.Done:
        if [*command[1:3]] != ["-P", "-m"] or options or forked.REAL_DAEMONS in os.environ:
            return fresh(command, **options)
        done = forked.run(str(command[3]), [str(word) for word in command[4:]], os.environ, b"", TIMEOUT_S)
        texts = [data.decode(errors="replace") for data in (done.stdout, done.stderr)]
        return subprocess.CompletedProcess(command, done.returncode, *texts)

    patch.setattr(processes, "run", run_forked)


@contextmanager
def _environment(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    _become(environment)
    try:
        yield
    finally:
        _become(before)


def _become(environment: Mapping[str, str]) -> None:
    """Let the variables of this process be these; of a hundred two or three differ."""
    now = dict(os.environ)
    for name in now.keys() - environment.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if now.get(name) != value})


@contextmanager
def _logging_anew() -> Iterator[None]:
    """Let the command log as if nobody had."""
    loggers = [logging.getLogger(), logging.getLogger("tierfs")]
    before = [(logger.handlers, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers = []
    try:
        yield
    finally:
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers = handlers
            logger.setLevel(level)


@contextmanager
def _fed(stdin: bytes) -> Iterator[int]:
    """Yield the end of a pipe from which these bytes are read."""
    reading, writing = os.pipe()
    feeding = threading.Thread(target=forked.write_all, args=(writing, stdin))
    if len(stdin) <= PIPE_BYTES:
        feeding.run()
    else:
        feeding.start()
    try:
        yield reading
    finally:
        os.close(reading)
        if feeding.ident is not None:
            feeding.join()


@contextmanager
def _streams(descriptors: Sequence[int]) -> Iterator[None]:
    """Let the standard descriptors, and Python's streams, be these."""
    kept = [os.dup(number) for number in range(len(STREAMS))]
    names = [form.format(name) for form in ("{}", "__{}__") for name in STREAMS]
    before = [getattr(sys, name) for name in names]
    for name in STREAMS[1:]:
        getattr(sys, name).flush()
    for number, fd in enumerate(descriptors):
        os.dup2(fd, number)
    for number, (mode, errors) in enumerate([("r", "strict"), ("w", "strict"), ("w", "backslashreplace")]):
        stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115  # the command's
        setattr(sys, STREAMS[number], stream)
        setattr(sys, f"__{STREAMS[number]}__", stream)
    try:
        yield
    finally:
        for number, fd in enumerate(kept):
            os.dup2(fd, number)
            os.close(fd)
        for name, stream in zip(names, before, strict=True):
            setattr(sys, name, stream)


@contextmanager
def started(*words: object, store: Path | None = None, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tierfs` as a process of its own that a signal may end; it is killed at the end.

    A test run in the background inherits an ignored SIGINT; a user's command does not.
    """
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tierfs", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "", "LINES": "", **({} if store is None else {"TIERFS_STORE": str(store)})}
    process = subprocess.Popen(command, env=environment, **streams)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def new_store(directory: Path) -> Path:
    """Make a store in `directory` whose cold tier is a directory beside it."""
    (directory / "cold").mkdir()
    tierfs("-q", "init", "--cold-dir", directory / "cold", store=directory / "store")
    return directory / "store"
