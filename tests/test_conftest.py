"""The watch on warnings: an unexpected one fails its test, an expected one does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_unexpected_warnings_fail(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("".join(TEST.format(name=n, logger=w, method=m, expected=e) for n, w, m, e in CASES))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), str(test)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    ended = {name: result for result, name in re.findall(r"^(PASSED|ERROR|FAILED) .*::test_(\w+)", said, re.MULTILINE)}
    failed = {name for name, result in ended.items() if result != "PASSED"}
    assert (set(ended), failed) == ({name for name, *_ in CASES}, {"unexpected", "another"}), said
    assert said.count("unexpected warnings:") >= len(failed)
