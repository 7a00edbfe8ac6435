"""`tierfs status`: its first lines, `--check` and its exit codes, and colours."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.faces.cli.main import cli


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "cold").mkdir()
    tierfs("-q", "init", "--cold-url", tmp_path / "cold", store=tmp_path / "store")
    return tmp_path / "store"


def test_a_healthy_store_is_ok(path: Path) -> None:
    assert tierfs("status", store=path).out.startswith("ok\n")
    done = tierfs("status", "--check", store=path)
    assert re.fullmatch(r"TIERFS OK - 0 segments, 0 B \| local=0B cold=0B free=\d+B .* lost=0B .*\n", done.out)


def test_problems_are_first_with_their_remedy(path: Path) -> None:
    tierfs("append", "a", stdin=b"x", store=path)
    first, second = tierfs("status", store=path).out.splitlines()[:2]
    assert first.startswith("warning: no process does the background work: 1 B to offload")
    assert second == "  start a mount (tierfs mount) or a daemon (tierfs daemon)"
    done = tierfs("status", "--check", store=path, check=False)
    assert (done.code, done.out.partition(" - ")[0]) == (1, "TIERFS WARNING")


def test_a_lost_byte_is_critical(path: Path, tmp_path: Path) -> None:
    tierfs("append", "a", "--seal", stdin=b"x" * 100, store=path)
    for verb in (["offload"], ["evict", "--force"]):
        tierfs(*verb, store=path)
    (chunk,) = (tmp_path / "cold").glob("segments/a/*/chunk-*")
    chunk.unlink()
    tierfs("check", "--repair", "--yes", store=path, check=False)
    done = tierfs("status", "--check", "--json", store=path, check=False)
    problems = json.loads(done.out)["problems"]
    assert (done.code, problems[0]["severity"], problems[0]["kind"]) == (2, "critical", "lost")
    assert " lost=100B " in tierfs("status", "--check", store=path, check=False).out


def test_a_store_that_cannot_be_opened_is_critical(tmp_path: Path) -> None:
    done = tierfs("status", "--check", store=tmp_path / "none", check=False)
    assert (done.code, done.out.partition(" - ")[0]) == (2, "TIERFS CRITICAL")
    done = tierfs("status", "--check", "--json", store=tmp_path / "none", check=False)
    assert (done.code, json.loads(done.out)["check"]) == (2, "critical")


def test_the_exit_code_of_a_check_is_that_of_the_worst_problem(path: Path, tmp_path: Path) -> None:
    """In this process."""

    def code(store: Path) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["--store", str(store), "status", "--check"])
        return int(str(ended.value.code))

    assert code(path) == 0
    tierfs("append", "a", stdin=b"x", store=path)
    assert [code(path), code(tmp_path / "none")] == [1, 2]


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_are_for_terminals(path: Path, variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **variables}
    with open(ours, "rb", buffering=0) as shown:
        subprocess.run(
            [sys.executable, "-m", "tierfs", "--store", str(path), "status"], stdout=theirs, env=environment, check=True
        )
        os.close(theirs)
        first = shown.read(4)
    assert first == (b"\x1b[32" if coloured else b"ok\r\n")
    assert "\x1b" not in tierfs("status", store=path).out
