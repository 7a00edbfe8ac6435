"""A holder that was stopped or hangs is named by the commands that wait for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forked
from tests.commands import tierfs
from tests.holder.test_perform import DONE, Command, everything, rows
from tests.mount.waiting import eventually
from tests.stores import TestStore, open_test_store
from tierfs.holder import requests, verbs
from tierfs.holder.lock import hold
from tierfs.parallel import Progress
from tierfs.setup.create import ColdChoice, init_store

pytestmark = pytest.mark.timeout(60)

ANSWER_S = 0.3
LONGER_S = 1.0


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestStore]:
    monkeypatch.setattr(requests, "_ANSWER_S", ANSWER_S)
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abcdefgh", seal=True)
        yield opened


def named_in(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if "has not answered" in record.getMessage()]


def test_a_holder_that_takes_no_request_is_named_once(
    store: TestStore, caplog: pytest.LogCaptureFixture, expected_warnings: list[str]
) -> None:
    expected_warnings.append("has not answered")
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.start()
        assert eventually(lambda: len(named_in(caplog)) == 1)
        time.sleep(LONGER_S)
        assert len(named_in(caplog)) == 1
        assert f"the store is held by process {os.getpid()} on " in named_in(caplog)[0]
    command.join(30)
    assert command.result == DONE


@pytest.mark.parametrize("stopped", [False, True])
def test_a_holder_at_work_is_named_only_if_it_was_stopped(
    store: TestStore,
    stopped: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    expected_warnings: list[str],
) -> None:
    expected_warnings.append("has not answered")
    monkeypatch.setattr(verbs, "_is_stopped", lambda _: stopped)
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.start()
        assert eventually(lambda: rows(store) == 1)
        assert requests.take_next(store.metadata, everything) is not None
        time.sleep(LONGER_S)
        assert len(named_in(caplog)) == stopped
    command.join(30)


def test_a_holder_busy_with_another_request_is_not_named(store: TestStore, caplog: pytest.LogCaptureFixture) -> None:
    other = requests.submit(store.metadata, "gc", "", {})
    assert requests.take_next(store.metadata, everything) is not None
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.start()
        for done in range(int(LONGER_S / ANSWER_S) + 1):
            requests.show_progress(store.metadata, other, Progress(done, 8, "s"))
            time.sleep(ANSWER_S)
    command.join(30)
    assert named_in(caplog) == []


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_offload_beside_a_stopped_daemon_names_it_and_is_done_when_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    init_store(path, ColdChoice())
    tierfs("policy", "set", "/", "offload_after=1d", store=path)
    tierfs("append", "s", "--seal", store=path, stdin=b"x" * 1000)
    tierfs("daemon", store=path)
    pid = tierfs("--json", "status", store=path).json["holder"]["pid"]
    monkeypatch.setenv("TIERFS_STORE", str(path))
    error = tmp_path / "error"
    try:
        with stopped(pid), error.open("wb") as stderr:
            streams = (os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), stderr.fileno())
            command = forked.start("tierfs", ["offload", "s"], os.environ, streams)
            assert eventually(lambda: "has not answered" in error.read_text(), 20)
            with pytest.raises(subprocess.TimeoutExpired):
                command.wait(0.1)
        assert command.wait(30) == 0
        assert re.search(rf"held by process {pid} on \S+ \(tierfs .*daemon -f\)", error.read_text())
        assert tierfs("--json", "info", "s", store=path).json["tiers"]["cold"]["bytes"] == 1000
    finally:
        os.kill(pid, signal.SIGTERM)
