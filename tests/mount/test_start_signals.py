"""Signals from the first moment of what serves on: SIGHUP and SIGUSR1 end nothing, SIGTERM ends it cleanly."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.mount.waiting import eventually
from tierfs.__main__ import _serves
from tierfs.base.system import guards, processes
from tierfs.base.system.places import mounts
from tierfs.upkeep.holder import lock

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

OBEYED = (signal.SIGHUP, signal.SIGUSR1)
EVERY_S = 0.01
END_S = 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "cold").mkdir()
    (tmp_path / "mnt").mkdir()
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=tmp_path / "store", check=False)
    return tmp_path / "store"


def ready(verb: str, store: Path) -> bool:
    """Whether the service answers."""
    if verb == "mount":
        return any(mount.mountpoint == store.parent / "mnt" for mount in mounts()) and bool(
            (store.parent / "mnt").stat()
        )
    if verb == "daemon":
        return lock.current(store / "locks/holder") is not None
    return (store / "admin.sock").exists()


def holds_back(pid: int) -> bool:
    """Whether a process blocks both signals: a Python needs a moment before anything of it can."""
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"^SigBlk:\s+([0-9a-f]+)$", text, re.MULTILINE)
    return match is not None and all(int(match[1], 16) >> (number - 1) & 1 for number in OBEYED)


@contextmanager
def serving(verb: str, store: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [verb, "-f", *([str(store.parent / "mnt")] if verb == "mount" else [])]
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "tierfs", "--store", str(store), *words], stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        tierfs("umount", "--lazy", store.parent / "mnt", store=store, check=False)


@pytest.mark.parametrize("verb", ["daemon", "mount", "admin"])
def test_early_signals_reload_what_has_not_begun_yet(verb: str, store: Path, tmp_path: Path) -> None:
    with serving(verb, store, tmp_path / "log") as process:
        assert eventually(lambda: holds_back(process.pid))
        while not ready(verb, store):
            for number in OBEYED:
                process.send_signal(number)
            time.sleep(EVERY_S)
            assert process.poll() is None, (tmp_path / "log").read_text()
        told = "SIGHUP: settings and credentials were reloaded"
        assert eventually(lambda: told in (tmp_path / "log").read_text())  # none was lost
        assert eventually(lambda: "threads:" in (tmp_path / "log").read_text())
        process.terminate()
        assert process.wait(END_S) == 0
        assert not any(mount.mountpoint == tmp_path / "mnt" for mount in mounts())


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["daemon", "mount", "admin"])
@pytest.mark.parametrize("after", ["held back", "opened", "ready"])
def test_an_early_end_leaves_nothing(verb: str, after: str, store: Path, tmp_path: Path) -> None:
    moments: dict[str, Callable[[int], bool]] = {
        "held back": holds_back,
        "opened": lambda pid: "lock.mdb" in Path(f"/proc/{pid}/maps").read_text(),
        "ready": lambda pid: ready(verb, store),
    }
    with serving(verb, store, tmp_path / "log") as process:
        assert eventually(lambda: moments[after](process.pid))
        process.terminate()
        assert process.wait(END_S) in (0, -signal.SIGTERM)
        assert not any(mount.mountpoint == tmp_path / "mnt" for mount in mounts())
    tierfs("append", "s", store=store, stdin=b"x")


def test_a_daemon_holds_signals_back_from_its_first_instruction_on(store: Path) -> None:
    with guards.held_back():
        pass
    assert not any(number in signal.pthread_sigmask(signal.SIG_BLOCK, []) for number in OBEYED)
    process = processes.launch(["--store", str(store), "daemon", "-f"], store / "log", "daemon")
    try:
        assert eventually(lambda: not holds_back(process.pid))  # and lets them through once it listens
    finally:
        process.terminate()
        assert process.wait(END_S) == 0


@pytest.mark.parametrize(
    ("words", "serves"),
    [
        ("mount -f m", True),
        ("--store s daemon --foreground", True),
        ("-q admin -f", True),
        ("mount m", False),
        ("cat -f daemon", False),
        ("--store daemon cat -f x", False),
        ("append mount", False),
        ("", False),
    ],
)
def test_the_words_of_a_command_tell_whether_it_serves(words: str, serves: bool) -> None:
    assert _serves(words.split()) == serves


def test_the_foreground_logs_as_set(store: Path, tmp_path: Path) -> None:
    tierfs("-q", "config", "log.format=json", "log.level=warning", store=store, check=False)
    with serving("daemon", store, tmp_path / "log") as process:
        assert eventually(lambda: ready("daemon", store))
        process.send_signal(signal.SIGHUP)
        (store / "store.toml").write_text("[read]\nbudget_bytes = 'x'\n")
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "nothing was reloaded" in (tmp_path / "log").read_text())
    for line in (tmp_path / "log").read_text().splitlines():
        assert re.fullmatch(r'\{"time": ".*", "level": "(WARNING|ERROR)", .*\}', line), line
