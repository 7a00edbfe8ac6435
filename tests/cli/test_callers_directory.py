"""No command runs Python files of the directory it was called in, by itself or by a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Done, tierfs
from tests.forked import REAL_DAEMONS
from tierfs.setup.create import ColdChoice, init_store
from tierfs.system.mounts import mounts

pytestmark = pytest.mark.mount

TRAP = """
import os
with open(os.environ["TRAP_SPRUNG"], "a") as file:
    file.write(__name__ + "\\n")
raise SystemExit(3)
"""
NAMES = ("json", "lmdb", "tierfs", "trio", "signal", "array", "sitecustomize")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    init_store(tmp_path / "store", ColdChoice())
    tierfs("append", "s", store=tmp_path / "store", stdin=b"x" * 1000)
    return tmp_path / "store"


@pytest.fixture
def caught(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Call from a directory full of traps; the file names those that were sprung."""
    caller, caught = tmp_path / "caller", tmp_path / "caught"
    caller.mkdir()
    for name in NAMES:
        (caller / f"{name}.py").write_text(TRAP)
    (caller / "mnt").mkdir()
    monkeypatch.chdir(caller)
    monkeypatch.setenv("TRAP_SPRUNG", str(caught))
    monkeypatch.setenv(REAL_DAEMONS, "yes")
    # An empty entry stands for the directory of now.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), ""]))
    return caught


def from_the_store(*words: str, store: Path, check: bool = True) -> Done:
    return tierfs(*words, store=Path(os.path.relpath(store)), check=check)


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("fsck", "clean"),
        ("doctor --spark", "checks"),
        pytest.param("bench --size 1MiB --repetitions 1", "null filesystem", marks=pytest.mark.slow),
        pytest.param("pipeline scrub s --master local[1]", "", marks=(pytest.mark.slow, pytest.mark.spark)),
    ],
)
def test_commands_and_workers_of_spark(store: Path, caught: Path, words: str, out: str) -> None:
    where = [os.path.relpath(store)] if words.startswith("bench") else []
    done = from_the_store(*words.split(), *where, store=store, check=False)
    assert (done.code == 0 or words.startswith("doctor"), out in done.out) == (True, True), done
    assert not caught.exists()


def test_mount_by_a_relative_path(store: Path, caught: Path) -> None:
    from_the_store("mount", "mnt", store=store)
    try:
        assert Path("mnt/s").stat().st_size == 1000
        assert any(mount.mountpoint == Path("mnt").absolute() for mount in mounts())
    finally:
        tierfs("umount", "mnt")
    assert not caught.exists()


def test_daemon(store: Path, caught: Path) -> None:
    from_the_store("daemon", store=store)
    holder = from_the_store("--json", "status", store=store).json["holder"]
    os.kill(holder["pid"], signal.SIGTERM)
    assert not caught.exists()


def test_the_traps_are_sprung_where_python_looks_into_the_directory(caught: Path) -> None:
    subprocess.run([sys.executable, "-m", "json.tool"], input=b"1", check=False, capture_output=True)
    assert caught.exists()
