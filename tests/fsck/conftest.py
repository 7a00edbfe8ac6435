"""fsck's child, which reads the metadata first, is forked: a start would be nine tenths of a check."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests import forked
from tests.commands import TIMEOUT_S
from tierfs.system import processes


@pytest.fixture(autouse=True)
def forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process's children be forked; commands that tests run start theirs as they always do."""

    fresh = processes.run

    def run(command: list[str]) -> processes.Done:
        if command[1:3] != ["-P", "-m"]:
            return fresh(command)
        done = forked.run(command[3], [str(word) for word in command[4:]], os.environ, b"", TIMEOUT_S)
        out, err = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(command, done.returncode, out, err)

    monkeypatch.setattr(processes, "run", run)
