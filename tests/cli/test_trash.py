"""A wrong rm is undone by commands, and the trash shows where people look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import tierfs


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    for name in ("d/a", "d/b"):
        tierfs("append", name, store=path, stdin=name.encode())
    return path


def test_a_wrong_rm_is_undone_by_two_commands(store: Path) -> None:
    planned = tierfs("rm", "-r", "d", "--dry-run", store=store).out
    assert planned.startswith("would remove d: 2 segments, 6 B local, 0 B cold in 0 chunks; it can be restored until ")
    removed = tierfs("rm", "-r", "d", "--yes", store=store).out
    assert removed.startswith("removed d: 2 segments")
    assert removed.endswith(" with: tierfs restore d\n")
    assert tierfs("ls", store=store).out == ""
    header, line = tierfs("ls", "--removed", store=store).out.splitlines()
    assert header.split() == ["id", "until", "(UTC)", "bytes", "local", "cold", "name"]
    assert line.endswith("d/ (2 segments)")
    (row,) = [json.loads(each) for each in tierfs("ls", "--removed", "--json", store=store).out.splitlines()]
    assert (row["path"], row["kind"], row["segments"], row["bytes"]) == ("d", "directory", 2, 6)
    assert tierfs("ls", "--removed", "other", store=store).out == ""
    status = tierfs("status", "--json", store=store).json
    assert (status["segments"], status["trash"]["segments"], status["trash"]["local_bytes"]) == (0, 2, 6)
    assert status["trash"]["next_due"] == row["until"]
    assert "2 segments, 6 B local, 0 B cold; next end " in tierfs("status", store=store).out
    assert "1 removal in the trash" in tierfs("gc", store=store).out
    kinds = [json.loads(each)["kind"] for each in tierfs("gc", "--json", store=store).out.splitlines()]
    assert kinds.count("trash") == 1
    assert tierfs("restore", "d", store=store).out == "restored d: 2 segments, 6 B local, 0 B cold\n"
    assert tierfs("cat", "d/a", store=store).out == "d/a"
    assert tierfs("fsck", store=store).code == 0


def test_a_taken_name_is_refused_with_the_way_out(store: Path) -> None:
    tierfs("rm", "d/a", "--yes", store=store)
    tierfs("append", "d/a", store=store, stdin=b"new")
    refused = tierfs("restore", "d/a", store=store, check=False)
    assert (refused.code, "tierfs restore d/a --as OTHER" in refused.err) == (5, True)
    (row,) = [json.loads(each) for each in tierfs("ls", "--removed", "--json", store=store).out.splitlines()]
    back = tierfs("restore", "d/a", "--as", "x/y", "--id", row["id"], "--json", store=store).json["restored"]
    assert [(each["restored_as"], each["path"], each["id"]) for each in back] == [("x/y", "d/a", row["id"])]
    assert tierfs("cat", "x/y", store=store).out == "d/a"
    assert tierfs("restore", "d/a", store=store, check=False).code == 3
    assert tierfs("restore", "a", "b", "--as", "c", store=store, check=False).code == 2


@pytest.mark.parametrize("way", ["--now", "trash_age=0"])
def test_without_the_trash_local_bytes_go_at_once(store: Path, way: str) -> None:
    if way != "--now":
        tierfs("policy", "set", "d", way, store=store)
    now = ["--now"] if way == "--now" else []
    assert tierfs("rm", "-r", "d", *now, "--yes", store=store).out.endswith("; for good\n")
    assert not [path for path in (store / "chunks").rglob("*") if path.is_file()]
    assert tierfs("ls", "--removed", store=store).out == ""


def test_the_trash_is_emptied_by_a_command(store: Path) -> None:
    tierfs("rm", "-r", "d", "--yes", store=store)
    assert tierfs("gc", "--trash", store=store, check=False).code == 2
    assert tierfs("gc", "--delete", "--trash", store=store, check=False).code == 2, "it asks first"
    tierfs("gc", "--delete", "--trash", "--yes", store=store)
    assert tierfs("ls", "--removed", store=store).out == ""
    assert not [path for path in (store / "chunks").rglob("*") if path.is_file()]


def test_deleted_and_trimmed_ledgers_come_back(store: Path) -> None:
    tierfs("policy", "set", "/", "ledger_entries=1", store=store)
    for entry in (b"1", b"2", b"3"):
        tierfs("ledger", "append", "m", store=store, stdin=entry)
    names = [
        json.loads(each)["segment"] for each in tierfs("ledger", "ls", "m", "--json", store=store).out.splitlines()
    ]
    deleted = tierfs("ledger", "delete", names[0], "--yes", store=store).out
    assert "it can be restored until" in deleted
    trimmed = tierfs("ledger", "trim", "m", "--before", int(names[2].rpartition("/")[2]), "--yes", store=store).out
    assert "it can be restored until" in trimmed
    tierfs("restore", names[0], names[1], store=store)
    again = [
        json.loads(each)["segment"] for each in tierfs("ledger", "ls", "m", "--json", store=store).out.splitlines()
    ]
    assert again == names
