"""Work in children of fork, a few at a time: each starts from the same imported code and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.children import die

_PIPE_BYTES = 1 << 16


@dataclass(slots=True)
class _Child:
    key: Any
    pid: int
    pipe: int
    directory: Path
    end_s: float
    answer: bytes = b""


def in_forks(
    work: Iterable[tuple[Any, Callable[[], Any]]], *, at_once: int, limit_s: float
) -> Iterator[tuple[Any, Any]]:
    """Yield (key, result as JSON) of each work as it ends, with at most `at_once` children.

    The result of a child that dies is {"died": why}; one that takes longer than `limit_s` is killed and has "hung".
    """
    waiting = iter(work)
    running: dict[int, _Child] = {}
    exhausted = False
    with selectors.DefaultSelector() as selector, tempfile.TemporaryDirectory(prefix="tierfs-mutants-") as root:
        while running or not exhausted:
            while len(running) < at_once and not exhausted:
                following = next(waiting, None)
                if following is None:
                    exhausted = True
                    break
                child = _start(*following, Path(root), limit_s)
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            now_s = time.monotonic()
            patience_s = min((child.end_s - now_s for child in running.values()), default=0.0)
            for ready, _ in selector.select(max(0.0, patience_s)):
                child = running[ready.fd]
                data = os.read(child.pipe, _PIPE_BYTES)
                child.answer += data
                if not data:
                    selector.unregister(child.pipe)
                    del running[child.pipe]
                    yield child.key, _result(child)
            for child in [each for each in running.values() if each.end_s <= time.monotonic()]:
                selector.unregister(child.pipe)
                del running[child.pipe]
                child.answer = b'{"died": "hung"}'
                yield child.key, _result(child)


def _start(key: Any, work: Callable[[], Any], root: Path, limit_s: float) -> _Child:
    directory = Path(tempfile.mkdtemp(dir=root))
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return _Child(key, pid, reading, directory, time.monotonic() + limit_s)
    try:
        os.setpgid(0, 0)  # what it starts goes with it
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(directory)
        os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
        quiet = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(quiet, fd)
        try:
            answer = json.dumps(work())
        except BaseException:
            answer = json.dumps({"died": traceback.format_exc(limit=-4)})
        with open(writing, "w") as pipe:
            pipe.write(answer)
    finally:
        die()


def _result(child: _Child) -> Any:
    with contextlib.suppress(ProcessLookupError):  # it ended, and nothing of it is left
        os.killpg(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    os.close(child.pipe)
    shutil.rmtree(child.directory, ignore_errors=True)  # mounts and servers of a killed test may still hold it
    return json.loads(child.answer or b'{"died": "without a word"}')
