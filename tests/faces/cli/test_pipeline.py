"""tierfs pipeline before Spark starts: a missing or wrong input is reported in one line."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.commands import tierfs
from tests.structure.test_dependencies import declared
from tierfs.faces.cli.main import cli
from tierfs.pipeline.spark.jobs.session import ended_with_error

JOBS = [
    ["scrub"],
    ["rebuild"],
    ["export", "a", "--to", "t"],
    ["table", "a", "--to", "t/"],
    ["ingest", "a"],
    ["report", "--output", "r.html"],
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tierfs("-q", "init", store=tmp_path / "store")
    return tmp_path / "store"


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str]:
    """Run in this process; return exit code and standard error."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("job", JOBS, ids=" ".join)
def test_without_the_extra_there_is_one_line_with_the_remedy(
    job: list[str], path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    code, error = refused(capsys, "--store", path, "pipeline", *job)
    assert code == 2
    first, remedy = error.splitlines()
    assert first == "tierfs: a job of Spark needs the package pyspark, which is not installed (MissingPackage, exit 2)"
    python, wanted = remedy.strip().split(" -m pip install ")
    assert python == sys.executable
    assert set(map(Requirement, shlex.split(wanted))) == set(declared()["spark"])


def test_the_script_for_spark_submit_is_there() -> None:
    assert Path(tierfs("pipeline", "--script").out.strip()).is_file()


def interrupted(started: list[subprocess.Popen[bytes]]) -> None:
    with ended_with_error():
        started.append(subprocess.Popen(["sleep", "60"]))
        raise KeyboardInterrupt


def test_an_interrupted_start_ends_what_it_started_and_nothing_else() -> None:
    started: list[subprocess.Popen[bytes]] = []
    with subprocess.Popen(["sleep", "60"]) as earlier:
        with pytest.raises(KeyboardInterrupt):
            interrupted(started)
        assert started[0].wait(60) == -signal.SIGTERM
        assert earlier.poll() is None
        earlier.kill()
