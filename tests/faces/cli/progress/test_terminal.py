"""A command over thousands of small segments, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

from rich.cells import cell_len

from tests.commands import TIMEOUT_S, new_store, tierfs
from tests.tiering.adoption.foreign import write_files

COLUMNS = 70
SEGMENTS = 2000
ERASE = "\r\x1b[K"
LINE = re.compile(r"\[0:\d\d\] (\d+\.\d)%  ([\d,]+) / 2,000 segments, ")


def on_terminal(store: Path, *words: str) -> str:
    """Run a command whose output and errors are one terminal; return what the terminal got."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, COLUMNS))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "TERM")}
    environment |= {"TIERFS_STORE": str(store), "TERM": "xterm"}
    command = [sys.executable, "-m", "tierfs", *words]
    with (
        open(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process,
    ):
        os.close(theirs)
        got = b""
        while chunk := _read(terminal.fileno()):
            got += chunk
        assert process.wait(TIMEOUT_S) == 0, got
        return got.decode()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # the last process that had the terminal has ended
        return b""


def test_the_line_grows_and_nothing_of_it_stays_between_results(tmp_path: Path) -> None:
    files = {f"{number % 50}/{number}.log": b"a line\n" * 100 for number in range(SEGMENTS)}
    store = new_store(tmp_path)
    tierfs("-q", "ingest", write_files(tmp_path / "files", files), "--into", "d", store=store)
    terminal = on_terminal(store, "check", "/")
    lines = re.findall(r"\[0:\d\d\] [^\r\n]*(?=\r\x1b\[K)", terminal)  # each is erased
    assert all(cell_len(line) < COLUMNS for line in lines)
    done = [int(match[2].replace(",", "")) for line in lines if (match := LINE.match(line))]
    assert done, lines
    assert done == sorted(done)
    assert done[-1] <= SEGMENTS
    for line in lines:
        terminal = terminal.replace(line + ERASE, "", 1)
    results = terminal.replace(ERASE, "").replace("\r\n", "\n").splitlines()
    assert len(results) == SEGMENTS + 1
    assert all(re.fullmatch(r"ok       [0-9a-f]{8}  d/\d+/\d+\.log", line) for line in results[:-1])
