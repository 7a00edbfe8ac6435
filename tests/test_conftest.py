"""The watch on warnings: an unexpected one fails its test, an expected one does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TEST = """
import logging

def test_warns(expected_warnings):
    expected_warnings.extend({expected})
    logging.getLogger({logger!r}).{method}("disk %s is full", "a")
"""


@pytest.mark.parametrize(
    ("logger", "method", "expected", "passes"),
    [
        ("tierfs.reading", "warning", [], False),
        ("tierfs.reading", "error", ["other"], False),
        ("tierfs.reading", "warning", [r"^tierfs\.reading: disk . is full$"], True),
        ("tierfs.reading", "info", [], True),
        ("botocore", "warning", [], True),
    ],
)
def test_unexpected_warnings_fail(tmp_path: Path, logger: str, method: str, expected: list[str], passes: bool) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(TEST.format(logger=logger, method=method, expected=expected))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), str(test)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode == 0) == passes, result.stdout
    assert ("unexpected warnings:" in result.stdout) != passes
