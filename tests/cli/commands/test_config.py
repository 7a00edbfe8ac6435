"""tierfs config show: every setting, its value and its origin."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.config import Settings


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path


def test_every_setting_is_shown_as_in_the_file(store: Path) -> None:
    lines = tierfs("config", "show", store=store).out.splitlines()
    names = [f"{section.name}.{key.name}" for section in fields(Settings) for key in fields(section.default_factory())]
    assert [line.partition(" = ")[0] for line in lines] == names
    assert 'read.budget_bytes = "256MiB"  (default)' in lines
    assert "read.priority = not set  (default)" in lines
    assert set(tierfs("config", "show", "--json", store=store).json) == set(names)


def test_values_say_where_they_come_from(store: Path) -> None:
    with (store / "store.toml").open("a") as file:
        file.write('[read]\nbudget_bytes = "1GiB"\nstreams = 3\npriority = "local-only"\n')
    environment = {**os.environ, "TIERFS_STORE": str(store), "TIERFS_READ__STREAMS": "5"}
    words = [sys.executable, "-m", "tierfs", "config", "show"]
    text = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    assert 'read.budget_bytes = "1024MiB"  (file)\n' in text
    assert "read.streams = 5  (environment)\n" in text
    assert 'read.priority = "local-only"  (file)\n' in text
    data = tierfs("config", "show", "--json", store=store).json
    assert data["read.budget_bytes"] == {"value": 1 << 30, "origin": "file"}
    assert data["read.streams"] == {"value": 3, "origin": "file"}
    assert data["cold.presigned_reads"] == {"value": True, "origin": "default"}


def test_mistakes(store: Path, tmp_path: Path) -> None:
    done = tierfs("config", "show", store=tmp_path / "none", check=False)
    assert (done.code, done.out) == (3, "")
    assert "is not a tierfs store" in done.err
    assert tierfs("config", "set", store=store, check=False).code == 2
    (store / "store.toml").write_text("[read]\nstreams = 0\n")
    done = tierfs("config", "show", store=store, check=False)
    assert (done.code, done.out) == (2, "")
    assert "read.streams = 0" in done.err


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_store_named_before_or_in_a_group_wins_over_the_environment(
    store: Path, tmp_path: Path, place: int
) -> None:
    words = ["config", "show"]
    words[place:place] = ["--store", str(store)]
    assert "read.streams" in tierfs(*words, store=tmp_path / "none").out
