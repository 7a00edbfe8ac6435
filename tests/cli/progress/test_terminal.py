"""A command over thousands of small segments, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.adoption.foreign import write_files
from tests.commands import TIMEOUT_S, new_store, tierfs

COLUMNS = 70
SEGMENTS = 2000
ERASE = "\r\x1b[K"
LINE = re.compile(r"\[0:\d\d\] (\d+\.\d)%  ([\d,]+) / 2,000 segments, ")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("terminal")
    files = {f"{number % 50}/{number}.log": b"a line\n" * 100 for number in range(SEGMENTS)}
    path = new_store(directory)
    tierfs("-q", "ingest", write_files(directory / "files", files), "--into", "d", store=path)
    return path


def on_terminal(store: Path, *words: str, stdout: bool = False) -> tuple[str, str]:
    """Run a command whose stderr is a terminal, and perhaps its output; return the output and what the terminal got."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, COLUMNS))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "TERM")}
    environment |= {"TIERFS_STORE": str(store), "TERM": "xterm"}
    command = [sys.executable, "-m", "tierfs", *words]
    with (
        open(ours, "rb", buffering=0) as terminal,
        tempfile.TemporaryFile() as file,
        subprocess.Popen(command, stdout=theirs if stdout else file, stderr=theirs, env=environment) as process,
    ):
        os.close(theirs)
        got = b""
        while chunk := _read(terminal.fileno()):
            got += chunk
        assert process.wait(TIMEOUT_S) == 0, got
        file.seek(0)
        return file.read().decode(), got.decode()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # the last process that had the terminal has ended
        return b""


def test_the_line_grows_to_the_end_and_nothing_of_it_stays(store: Path) -> None:
    out, terminal = on_terminal(store, "verify")
    assert len(out.splitlines()) == SEGMENTS + 1
    *lines, rest = terminal.split(ERASE)
    assert rest == ""
    assert lines
    assert "\n" not in terminal
    assert all(cell_len(line) < COLUMNS for line in lines)
    counted = [match for line in lines if (match := LINE.match(line))]
    assert counted, lines
    done = [int(match[2].replace(",", "")) for match in counted]
    assert done == sorted(done)
    assert done[-1] <= SEGMENTS


def test_results_and_the_line_do_not_meet(store: Path) -> None:
    _, terminal = on_terminal(store, "verify", stdout=True)
    assert LINE.search(terminal)
    shown = re.sub(r"\[0:\d\d\] [^\r\n]*\r\x1b\[K", "", terminal)  # a line and its erasure
    results = shown.replace(ERASE, "").replace("\r\n", "\n").splitlines()
    assert len(results) == SEGMENTS + 1
    assert all(re.fullmatch(r"ok       [0-9a-f]{8}  d/\d+/\d+\.log", line) for line in results[:-1])


@pytest.mark.parametrize("words", [("fsck", "--deep", "-q"), ("fsck", "--deep", "--json")])
def test_quiet_and_json_draw_nothing(store: Path, words: tuple[str, ...]) -> None:
    assert on_terminal(store, *words)[1] == ""
