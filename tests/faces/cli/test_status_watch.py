"""tierfs status --watch: live on a terminal until q, and one status after the other without one."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, started, tierfs

pytestmark = pytest.mark.timeout(120, method="thread")

COLUMNS, ROWS = 60, 8


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tierfs("-q", "init", store=tmp_path / "store")
    return tmp_path / "store"


def test_a_status_that_fails_meanwhile_is_shown_and_the_next_one_too(store: Path) -> None:
    words = ("--json", "--store", store, "status", "--watch", "0.1")
    with started(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["segments"] == 0
        tierfs("-q", "append", "s", store=store, stdin=b"x")
        while json.loads(process.stdout.readline())["segments"] != 1:
            pass
        store.rename(store.with_name("away"))
        while "error" not in (row := json.loads(process.stdout.readline())):
            pass
        assert str(store) in row["error"]
        store.with_name("away").rename(store)
        while "error" in json.loads(process.stdout.readline()):
            pass
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=TIMEOUT_S)[1] == b""
        assert process.returncode == 0


def test_what_cannot_be_watched_is_an_error_at_once(tmp_path: Path) -> None:
    refused = tierfs("status", "--watch", "--check", check=False)
    assert (refused.code, "--check and --watch are mutually exclusive" in refused.err) == (2, True)
    assert tierfs("status", "--watch", store=tmp_path / "none", check=False).code == 3


def test_live_on_a_terminal_until_q(store: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    try:
        words = ("--store", store, "status", "--watch", "0.1")
        with started(*words, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as process:
            out, end_s = b"", time.monotonic() + TIMEOUT_S
            while out.count(b"q quit   every 0.1 s") < 2:
                assert select.select([ours], [], [], end_s - time.monotonic())[0], out
                out += os.read(ours, 1 << 16)
            os.write(ours, b"q")
            assert process.wait(TIMEOUT_S) == 0
        assert out.startswith(b"\x1b[?1049h\x1b[H")  # the other screen of the terminal, from its corner
        frame = next(text for text in out.decode().split("\x1b[H") if "q quit" in text)
        lines = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", frame).splitlines()
        assert len(lines) <= ROWS
        assert lines[0].startswith(("ok", "note", "warning"))
        assert {len(line) for line in lines} <= {COLUMNS, 0}
    finally:
        os.close(ours)
        os.close(theirs)
