"""No command runs Python files of the directory it was called in, by itself or by a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pytest

from tests import verbs
from tests.commands import Done, tierfs
from tests.forked import REAL_DAEMONS
from tests.pipeline.spark.conftest import SETTINGS
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.system.places import mounts

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
    init_store(tmp_path / "store")
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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3]), ""]))
    return caught


def from_the_store(*words: str, store: Path, check: bool = True) -> Done:
    return tierfs(*words, store=Path(os.path.relpath(store)), check=check)


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("check", "clean"),
        ("doctor --spark", "checks"),
    ],
)
def test_commands_run_no_file_of_the_callers_directory(store: Path, caught: Path, words: str, out: str) -> None:
    done = from_the_store(*words.split(), store=store, check=False)
    assert (done.code == 0 or words.startswith("doctor"), out in done.out) == (True, True), done
    assert not caught.exists()


@pytest.mark.slow
@pytest.mark.spark
def test_workers_of_spark_run_no_file_of_the_callers_directory(store: Path, caught: Path) -> None:
    """The command line of a job, with a JVM of its own: it tells rows, sums and exit code."""
    with open_store(store) as opened:
        verbs.offload(opened)
        (cold,) = (path for path in opened.paths.cold.rglob("chunk-*") if path.is_file())
    cold.chmod(0o600)
    cold.write_bytes(b"y" * 1000)
    conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    words = ["pipeline", "scrub", "s", "--master", "local[1]", *conf, "--json", "--output", "bad.csv"]
    done = from_the_store(*words, store=store, check=False)
    assert (done.code, done.err) == (74, "")
    (row,) = done.json["rows"]
    assert (row["segment"], row["tier"], row["fault"]) == ("s", "cold", "damaged")
    assert pyarrow.csv.read_csv("bad.csv").to_pylist() == [row]
    assert not caught.exists()


def test_a_mount_by_a_relative_path_runs_no_file_of_the_callers_directory(store: Path, caught: Path) -> None:
    from_the_store("mount", "mnt", store=store)
    try:
        assert Path("mnt/s").stat().st_size == 1000
        assert any(mount.mountpoint == Path("mnt").absolute() for mount in mounts())
    finally:
        tierfs("umount", "mnt")
    assert not caught.exists()


def test_a_daemon_runs_no_file_of_the_callers_directory(store: Path, caught: Path) -> None:
    from_the_store("daemon", store=store)
    holder = from_the_store("--json", "status", store=store).json["holder"]
    os.kill(holder["pid"], signal.SIGTERM)
    assert not caught.exists()


def test_the_traps_are_sprung_where_python_looks_into_the_directory(caught: Path) -> None:
    subprocess.run([sys.executable, "-m", "json.tool"], input=b"1", check=False, capture_output=True)
    assert caught.exists()
