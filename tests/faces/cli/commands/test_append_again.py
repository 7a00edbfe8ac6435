"""Interrupted appends: the command in the error appends the rest, for any kind of input."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.commands import tierfs
from tierfs.app.inputs import BLOCK_BYTES
from tierfs.base.words import errors
from tierfs.engine.segments.group_commit import GroupCommit
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.faces.cli.main import cli

BEFORE = b"before"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    tierfs("append", "s", store=path, stdin=BEFORE)
    return path


def test_the_command_that_is_named_appends_the_rest(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(3 * BLOCK_BYTES)
    first, second = tmp_path / "a file", tmp_path / "-b"
    first.write_bytes(data[: BLOCK_BYTES + 5])
    second.write_bytes(data[BLOCK_BYTES + 5 :])
    words = ["append", "--seal", "--", "s", str(first), str(second)]
    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "append", fail_at(len(BEFORE) + 2 * BLOCK_BYTES))
        again = interrupted(store, words)
        patched.setattr(SegmentWriter, "append", fail_at(len(BEFORE) + 2 * BLOCK_BYTES))
        assert again == interrupted(store, again[1:]), "nothing was appended by the second try"
    assert tierfs(*again[1:]).out == f"s {len(BEFORE) + 2 * BLOCK_BYTES} {len(BEFORE) + len(data)}\n"
    assert tierfs("info", "s", "--json", store=store).json["sealed"]
    assert CliRunner().invoke(cli, ["--store", str(store), "cat", "s"]).stdout_bytes == BEFORE + data
    assert tierfs(*again[1:], check=False).code in (7, 8), "and not twice"


def test_ctrl_c_inside_a_commit_names_the_bytes_of_that_commit_too(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(3 * BLOCK_BYTES)
    (tmp_path / "file").write_bytes(data)
    lead, leads = GroupCommit._lead, list[int]()

    def pressed(self: GroupCommit) -> None:
        leads.append(1)
        if len(leads) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        lead(self)

    with monkeypatch.context() as patched:
        patched.setattr(GroupCommit, "_lead", pressed)
        again = interrupted(store, ["append", "s", str(tmp_path / "file")], code=130)
    assert tierfs("info", "s", "--json", store=store).json["length"] == len(BEFORE) + 2 * BLOCK_BYTES
    tierfs(*again[1:])
    assert CliRunner().invoke(cli, ["--store", str(store), "cat", "s"]).stdout_bytes == BEFORE + data


def test_ctrl_c_after_bytes_that_no_journal_names_yet_names_those_bytes_too(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"abc")

    def pressed(self: SegmentWriter, data: bytes, **named: bool) -> object:
        patched.undo()
        os.kill(os.getpid(), signal.SIGINT)
        raise errors.Unconfirmed("they are stored", end=1234)

    with monkeypatch.context() as patched:
        patched.setattr(SegmentWriter, "append", pressed)
        result = CliRunner().invoke(cli, ["--json", "--store", str(store), "append", "s", str(tmp_path / "file")])
    assert result.exit_code == 130, result.output
    assert "--expect-offset 1234" in json.loads(result.stderr)["command"]


def interrupted(store: Path, words: list[str], code: int = 28) -> list[str]:
    """Run a command that fails; return the words of the command in its error."""
    result = CliRunner().invoke(cli, ["--json", "--store", str(store), *words])
    assert result.exit_code == code, result.output
    told = json.loads(result.stderr)
    assert told["acknowledged"]["end"] == len(BEFORE) + 2 * BLOCK_BYTES
    return shlex.split(told["command"])


def fail_at(length: int) -> Any:
    append = SegmentWriter.append

    def fails(self: SegmentWriter, data: bytes, **named: bool) -> object:
        if self.length >= length and data:
            raise errors.StorageFull("the disk is full")
        return append(self, data, **named)

    return fails
