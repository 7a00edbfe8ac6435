"""tierfs pipeline before Spark starts: a missing or wrong input is reported in one line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs
from tierfs.cli.main import cli
from tierfs.spark.jobs.session import ended_with_error

ROOT = Path(__file__).parents[2]
JOBS = [["scrub"], ["rebuild"], ["export", "a", "--to", "t"], ["ingest", "a"], ["report", "--output", "r.html"]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tierfs("-q", "init", store=tmp_path / "store")
    return tmp_path / "store"


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str]:
    """Run in this process; return exit code and standard error."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["pipeline", "--help"], ["pipeline", "scrub", "--help"]])
def test_help_imports_nothing_of_spark(words: list[str]) -> None:
    look = "import sys, atexit; atexit.register(lambda: print('pyspark' in sys.modules, 'pyarrow' in sys.modules)); "
    run = f"from tierfs.cli.main import cli; cli.main({words!r})"
    done = subprocess.run([sys.executable, "-c", look + run], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False False\n")


@pytest.mark.parametrize("job", JOBS, ids=" ".join)
def test_without_the_extra_there_is_one_line_with_the_remedy(
    job: list[str], path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    code, error = refused(capsys, "--store", path, "pipeline", *job)
    assert code == 3
    extra = re.search(r'"spark": \[(.*)\]', (ROOT / "setup.py").read_text())
    assert extra is not None
    wanted = extra[1].replace('", "', "' '").replace('"', "'")
    assert error == f"tierfs: pyspark missing: jobs need Spark (NotFound, exit 3)\n  pip install {wanted}\n"


def test_without_java_there_is_one_line_with_the_remedy(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, error = refused(capsys, "--store", path, "pipeline", "scrub")
    assert code == 3
    assert "Spark needs Java, and there is none here (NotFound, exit 3)\n  as root: apt-get install" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--conf", "spark.executor.memory"], "--conf spark.executor.memory is not a setting"),
        (["--output", "found.txt"], "found.txt has no known suffix"),
        (["--output", "nowhere/found.csv"], "nowhere/found.csv: its directory does not exist"),
        (["--master", "http://n0:7077"], "http://n0:7077 is not a Spark master"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(
    words: list[str], message: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = refused(capsys, "--store", path, "pipeline", "scrub", *words)
    assert (code, message in error) == (2, True), error


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
