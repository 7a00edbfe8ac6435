"""Run the command as a user does: a process, its output, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forked

TIMEOUT_S = 100


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
    """Run `tierfs`; with `check` it must succeed and say nothing on standard error."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TIERFS_")}
    if store is not None:
        environment["TIERFS_STORE"] = str(store)
    done = forked.run("tierfs", [*map(str, words)], environment, stdin, timeout_s)
    result = Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    assert "Traceback" not in result.err, result.err
    if check:
        assert (result.code, result.err) == (0, ""), result
    return result


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
