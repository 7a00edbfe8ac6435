"""The hooks that `make hooks` installs refuse bad titles and Python files that ruff would change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure.repository import ROOT, Repository

ROOM = "reading: "


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A clone in which somebody ran `make hooks`."""
    repository = Repository(tmp_path / "clone", ".ci/hooks", "Makefile", "pyproject.toml")
    repository.run("make", "hooks")
    return repository


@pytest.mark.parametrize(
    "message",
    [
        "reading: a late GET is repeated once",
        "engine/segments: appends of 256 threads share a sync",
        "umount, metadata: a store that is gone is reported",
        f"{ROOM}{'é' * (72 - len(ROOM))}",
        "docs: a page for contributors\n\nThe first hour took a day.\n",
        'Revert "reading: a late GET is repeated once"\n\nThis reverts commit 1234.\n',
        "fixup! reading: a late GET is repeated once",
        "# a comment of git\n\nreading: a late GET is repeated once\n# another\n\nWhy.\n",
    ],
)
def test_a_commit_with_a_good_title_is_made(repository: Repository, message: str) -> None:
    repository.run("git", "commit", "-q", "--allow-empty", "--cleanup=strip", "-m", message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("A late GET is repeated once", "does not start with a room"),
        ("Reading: a late GET is repeated once", "does not start with a room"),
        ("reading a late GET is repeated once", "does not start with a room"),
        ("reading:", "does not start with a room"),
        (f"{ROOM}{'x' * (73 - len(ROOM))}", "the title has 73 characters"),
        ("reading: a late GET\nis repeated once\n", "the line after the title is not empty"),
    ],
)
def test_a_commit_with_a_bad_title_is_refused_with_the_reason(repository: Repository, message: str, why: str) -> None:
    printed = repository.run("git", "commit", "-q", "--allow-empty", "-m", message, code=1)
    assert why in printed
    assert "expected: `room: what readers get`" in printed


@pytest.mark.parametrize(
    ("source", "code", "why"),
    [
        ("NUMBER = 1\n", 0, ""),
        ("NUMBER=1\n", 1, "not formatted; run: make format"),
        ("import os\n\nNUMBER = 1\n", 1, "F401"),
    ],
)
def test_a_python_file_that_is_staged_is_checked(repository: Repository, source: str, code: int, why: str) -> None:
    repository.write("module.py", source)
    assert why in repository.run("git", "commit", "-q", "-m", "reading: a number", code=code)


def test_files_that_protoc_writes_and_files_that_are_removed_are_not_checked(repository: Repository) -> None:
    repository.write("old.py", "NUMBER = 1\n")
    repository.write("records_pb2.py", "NUMBER=1\n")
    repository.run("git", "commit", "-q", "-m", "reading: a number")
    repository.run("git", "rm", "-q", "old.py")
    repository.run("git", "commit", "-q", "-m", "reading: no number")


def test_the_program_pre_commit_runs_the_same_checks() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    hook = (ROOT / ".ci/hooks/pre-commit").read_text()
    assert "entry: .ci/hooks/commit-msg" in text
    for command in ("ruff check", "ruff format"):
        assert f"entry: .venv/bin/{command}" in text
        assert f"\n{command} " in hook
