"""The log of a mount in the background: rotated by others, its level and its format."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import new_store, tierfs
from tests.mount.waiting import eventually

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

HELD = "this process holds the store"
RELOADED = "settings and credentials were reloaded"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return new_store(tmp_path)


@pytest.fixture
def mount(store: Path, tmp_path: Path) -> Iterator[Path]:
    """The mount point of a mount; its settings are those of the test before it asks for it."""
    point = tmp_path / "mnt"
    point.mkdir()
    tierfs("mount", point, store=store)
    # The mount is ready before it holds the store, which is the last line it logs of itself.
    assert eventually(lambda: HELD in log(store).read_text())
    yield point
    tierfs("umount", point, store=store, check=False)


def log(store: Path) -> Path:
    return store / "log/mount.log"


def set_log(store: Path, mount: Path, text: str) -> None:
    """Have the mount read other settings."""
    holder = tierfs("status", "--json", store=store, check=False).json["holder"]
    new = store / "new.toml"
    new.write_text(text)
    new.rename(store / "store.toml")
    os.kill(holder["pid"], signal.SIGHUP)


def test_a_log_that_was_moved_away_goes_on_in_a_new_file(store: Path, mount: Path) -> None:
    moved = log(store).rename(store / "log/kept.log")
    before = moved.read_bytes()
    set_log(store, mount, "")
    assert eventually(lambda: log(store).exists() and RELOADED in log(store).read_text())
    assert moved.read_bytes() == before


def test_level_and_format_follow_the_settings_while_it_runs(store: Path, mount: Path) -> None:
    set_log(store, mount, '[log]\nformat = "json"\n')
    assert eventually(lambda: RELOADED in log(store).read_text())
    line = json.loads(next(line for line in log(store).read_text().splitlines() if RELOADED in line))
    assert (line["level"], line["logger"]) == ("INFO", "tierfs.system.signals")
    set_log(store, mount, '[log]\nformat = "json"\nlevel = "warning"\n')
    assert eventually(lambda: 'log.level = "warning"' in (mount / ".tierfs/config").read_text())
    set_log(store, mount, '[log]\nlevel = "loud"\n')
    assert eventually(lambda: "nothing was reloaded" in log(store).read_text())
    lines = [json.loads(line) for line in log(store).read_text().splitlines() if line.startswith("{")]
    assert [line["level"] for line in lines] == ["INFO", "ERROR"]
    assert "log.level" in lines[-1]["message"]


def test_a_log_that_cannot_be_opened_again_ends_nothing(store: Path, mount: Path) -> None:
    moved = (store / "log").rename(store / "away")
    set_log(store, mount, '[log]\nlevel = "warning"\n')
    assert eventually(lambda: "nothing was reloaded" in (moved / "mount.log").read_text())
    assert mount.is_mount()
    moved.rename(store / "log")
    set_log(store, mount, "")
    assert eventually(lambda: RELOADED in log(store).read_text())
