"""Commands whose standard input, output or error a shell closed, as in `tierfs cat s >&-`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs

CLOSED = "tierfs: standard output: closed (InvalidRequest, exit 2)\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    tierfs("append", "s", store=path, stdin=b"abc")
    return path


def without(redirection: str, store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that closes one of its streams."""
    environment = {**os.environ, "TIERFS_STORE": str(store), "PYTHONWARNINGS": "error"}
    script = f'exec "$@" {redirection}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "tierfs", *words]
    return subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=60
    )


@pytest.mark.parametrize("words", [("cat", "s"), ("info", "s", "--json")])
def test_what_has_nowhere_to_go_is_an_error(store: Path, words: tuple[str, ...]) -> None:
    done = without(">&-", store, *words)
    assert (done.returncode, done.stderr.startswith("{") or done.stderr) == (2, "--json" in words or CLOSED)
    assert "standard output: closed" in done.stderr


def test_a_verb_works_without_an_output(store: Path) -> None:
    done = without(">&-", store, "seal", "s")
    assert (done.returncode, done.stderr) == (0, "")
    assert tierfs("info", "s", "--json", store=store).json["sealed"]


def test_an_append_that_could_not_be_acknowledged_is_refused_first(store: Path) -> None:
    done = without(">&- <<X\nmore\nX", store, "append", "s")
    assert (done.returncode, done.stderr) == (2, CLOSED)
    assert tierfs("cat", "s", store=store).out == "abc"


def test_without_standard_error_the_exit_code_tells(store: Path) -> None:
    done = without("2>&-", store, "cat", "no")
    assert (done.returncode, done.stdout) == (3, "")
    done = without("2>&-", store, "cat", "s", "-vv")
    assert (done.returncode, done.stdout) == (0, "abc")


def test_standard_input_that_is_closed_is_no_empty_input(store: Path) -> None:
    done = without("<&-", store, "append", "s")
    assert done.returncode == 2
    assert done.stderr.startswith("tierfs: standard input: Bad file descriptor")
    assert without("<&-", store, "cat", "s").stdout == "abc"
