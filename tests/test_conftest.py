"""An unexpected warning fails its test, an expected one does not; what was not run is said at the end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group(__name__)

ROOT = Path(__file__).parents[1]

TEST = """
import logging

def test_{name}(expected_warnings):
    expected_warnings.extend({expected})
    logging.getLogger({logger!r}).{method}("disk %s is full", "a")
"""

CASES = [
    ("unexpected", "tierfs.reading", "warning", []),
    ("another", "tierfs.reading", "error", ["other"]),
    ("expected", "tierfs.reading", "warning", [r"^tierfs\.reading: disk . is full$"]),
    ("no_warning", "tierfs.reading", "info", []),
    ("of_a_library", "botocore", "warning", []),
]

NOT_RUN = """
import pytest

@pytest.mark.whole
def test_once_more(): ...

@pytest.mark.parametrize("number", range(3))
def test_root(number): pytest.skip("a mount namespace needs root")

def test_jars(): pytest.skip("HDFS needs its jars: make test-deps")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of these tests, which a process of xdist runs."""
    test = tmp_path_factory.mktemp("run") / "test_it.py"
    test.write_text(NOT_RUN + "".join(TEST.format(name=n, logger=w, method=m, expected=e) for n, w, m, e in CASES))
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), "-m", "not whole", "-n", "1"]
    command += ["--basetemp", str(test.parent / "its"), str(test)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_unexpected_warnings_fail(said: str) -> None:
    ended = {name: result for result, name in re.findall(r"^(PASSED|ERROR|FAILED) .*::test_(\w+)", said, re.MULTILINE)}
    failed = {name for name, result in ended.items() if result != "PASSED"}
    assert (set(ended), failed) == ({name for name, *_ in CASES}, {"unexpected", "another"}), said
    assert said.count("unexpected warnings:") >= len(failed)


def test_a_run_says_what_it_did_not_run(said: str) -> None:
    _, _, lines = said.partition(" not run ")
    assert re.findall(r"^ +(\d+)  (.*)  \[(.*)\]$", lines, re.MULTILINE) == [
        ("3", "a mount namespace needs root", "the same command as root"),
        ("1", "repeats on one more server or at a greater size (whole)", "make test-all"),
        ("1", "HDFS needs its jars: make test-deps", "make test-deps"),
    ], said
