"""tierfs top on a real mount: frames as text and JSON, live on a terminal, and its errors for bad input."""

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
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, started, tierfs

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread"), pytest.mark.xdist_group(__name__)]

COLUMNS = 60
DATA = b"0123456789abcdef" * 65_536


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("top") / "store"
    tierfs("-q", "init", store=path)
    tierfs("-q", "append", "d/s", store=path, stdin=DATA)
    return path


@pytest.fixture(scope="module")
def mnt(store: Path) -> Iterator[Path]:
    with mounted(store, store.with_name("mnt")) as path:
        yield path


@contextmanager
def mounted(store: Path, path: Path) -> Iterator[Path]:
    path.mkdir()
    tierfs("-q", "mount", path, store=store)
    try:
        yield path
    finally:
        tierfs("-q", "umount", path)


def top(
    *words: object, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return started("top", *words, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)


def test_a_frame_shows_the_stores_only_mount(store: Path, mnt: Path) -> None:
    with (mnt / "d/s").open("rb", buffering=0) as file:
        assert file.read(len(DATA)) == DATA
        lines = tierfs("top", "--once", "--interval-s", "0.1", store=store).out.splitlines()
    assert lines[0].startswith(f"{mnt}  {store}, up ")
    assert [line.split(" ")[0] for line in lines[1:6]] == ["reads", "cold", "link", "memory", "backlog"]
    assert lines[7].split() == ["read/s", "tier", "handles", "at", "of", "ahead", "by", "segment"]
    reader = f"{Path('/proc/self/comm').read_text().strip()}[{os.getpid()}]"
    assert lines[8].split() == ["0", "B", "local", "1", "1", "MiB", "1", "MiB+", "-", reader, "d/s"]


def test_batch_count_and_interval_are_options_as_of_the_other_top(store: Path, mnt: Path) -> None:
    out = tierfs("top", "-b", "-n", 2, "-d", 0.1, store=store).out
    assert out.count(f"{mnt}  {store}, up ") == 2


def test_json_lines_tell_what_is_read_meanwhile(store: Path, mnt: Path) -> None:
    tierfs("-q", "append", "d/t", store=store, stdin=DATA)  # of the other the kernel has all pages
    with top(mnt, "--json", "--interval-s", "0.1") as process, (mnt / "d/t").open("rb", buffering=0) as file:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        file.read(len(DATA))
        seen = 0.0
        while round(seen) < len(DATA):  # ends by the time limit of the test
            found = json.loads(process.stdout.readline())
            assert found["segments"][0]["name"] == "d/t"
            seen += found["reads"]["local"]["bytes_per_s"] * found["interval_s"]
        assert seen == pytest.approx(len(DATA))
        assert found["caches"] == [{"name": "memory", "hits": 0, "misses": 0, "hit_percent": None}]
        assert first["mount"] == str(mnt)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=TIMEOUT_S)[1] == b""
        assert process.returncode == 0


def test_live_on_a_terminal_until_q(mnt: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (12, COLUMNS))
    try:
        with top(mnt, "--interval-s", "0.1", stdin=theirs, stdout=theirs) as process:
            out, end_s = b"", time.monotonic() + TIMEOUT_S
            while out.count(b"no open segments") < 2:
                assert select.select([ours], [], [], end_s - time.monotonic())[0], out
                out += os.read(ours, 1 << 16)
            for key, shown in ((b"s", b"s sort (by handles)"), (b"p", b"p continue (paused)")):
                os.write(ours, key)
                while shown not in out:
                    assert select.select([ours], [], [], end_s - time.monotonic())[0], out
                    out += os.read(ours, 1 << 16)
            os.write(ours, b"q")
            assert process.wait(TIMEOUT_S) == 0
        assert out.startswith(b"\x1b[?1049h\x1b[H")  # the other screen of the terminal, from its corner
        frame = next(text for text in out.decode().split("\x1b[H") if "no open segments" in text)
        lines = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", frame).splitlines()
        assert lines[0].startswith(str(mnt)[: COLUMNS - 1])
        assert {len(line) for line in lines} <= {COLUMNS, 0}
    finally:
        os.close(ours)
        os.close(theirs)


def test_of_two_mounts_one_is_named(store: Path, mnt: Path, tmp_path: Path) -> None:
    with mounted(store, tmp_path / "two"):
        refused = tierfs("top", store=store, check=False)
        assert (refused.code, f"has 2 mounts: {mnt}, {tmp_path}/two" in refused.err) == (2, True)
        assert tierfs("top", tmp_path / "two", "--once", "--interval-s", "0.1").out.startswith(f"{tmp_path}/two")
