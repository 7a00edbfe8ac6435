"""Performing a verb: done here, done by the holder, and done when either of them dies meanwhile."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.commands import tierfs
from tests.mount.waiting import eventually
from tests.stores import TestStore, open_test_store
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.progress import Progress
from tierfs.base.words.errors import Conflict, InvalidRequest, NotFound, StorageFull
from tierfs.base.words.types import RequestState
from tierfs.engine.metadata.holder_records import RequestRecord
from tierfs.engine.metadata.tables import REQUESTS
from tierfs.tiering.offload_command import OffloadReport
from tierfs.upkeep.holder import perform as performing
from tierfs.upkeep.holder import requests
from tierfs.upkeep.holder.lock import hold
from tierfs.upkeep.holder.perform import perform, request
from tierfs.upkeep.holder.verbs import (
    ACCEPT_LOSS,
    BEFORE,
    BEFORE_OFFSET,
    COMPRESS,
    CONSOLIDATE,
    DRY_RUN,
    EVICT,
    FORCE,
    GRACE_S,
    KEEP,
    OFFLOAD,
    PLACE,
    VERBS,
    Options,
    Verb,
)

pytestmark = pytest.mark.timeout(60)

# A forked append takes 0.1 s; one that waits for the lock of a stopped process would never end.
_APPEND_S = 5.0

DONE = OffloadReport(segments=1, objects=1, bytes=8, journal_entries=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abcdefgh", seal=True)
        yield opened


def everything(_: RequestRecord) -> bool:
    return True


class Command(threading.Thread):
    """A command that performs a verb, in a thread of its own."""

    def __init__(self, store: TestStore, path: str, verb: Verb[Any] = OFFLOAD, options: Options | None = None) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._path = path
        self._verb = verb
        self._options = options or {}
        self.seen: list[Progress] = []
        self.result: Any = None
        self.error: Exception | None = None

    def ask(self) -> None:
        """Start, and wait until the holder is asked."""
        self.start()
        assert eventually(lambda: rows(self._store) == 1)

    def run(self) -> None:
        try:
            self.result = perform(self._store, self._verb, self._path, self._options, self.seen.append)
        except Exception as exc:
            self.error = exc


def served(store: TestStore, command: Command) -> RequestRecord:
    """The request of a command, carried out by a holder."""
    server = performing.server(store.cold_work())
    with hold(store.paths.holder, store.clock):
        command.ask()
        asked = server.next()
        assert asked is not None
        server.carry_out(asked)
        command.join(30)
    return asked


def rows(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return txn.count(REQUESTS.name)


def test_the_holder_performs_a_request_and_its_answer_arrives(store: TestStore) -> None:
    server = performing.server(store.cold_work())
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.ask()
        asked = server.next()
        assert asked is not None
        requests.show_progress(store.metadata, asked.id, Progress(3, 8, "s", 1, 2, "ledger"))
        assert eventually(lambda: Progress(3, 8, "s", 1, 2, "ledger") in command.seen)
        server.carry_out(asked)
        command.join(30)
    assert command.result == DONE
    assert rows(store) == 0


def test_the_holders_error_is_the_commands(store: TestStore) -> None:
    command = Command(store, "nowhere")
    served(store, command)
    assert isinstance(command.error, NotFound)
    assert "nowhere" in str(command.error)


def test_what_a_full_disk_kept_from_being_answered_is_done_again(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = performing.server(store.cold_work())
    number = requests.submit(store.metadata, "offload", "s", {})
    taken = server.next()
    assert taken is not None

    def full(*_: object) -> None:
        raise StorageFull("the disk of the metadata is full")

    with monkeypatch.context() as patched:
        patched.setattr(requests, "finish", full)
        with pytest.raises(StorageFull):
            server.carry_out(taken)
    assert server.may_have_next
    again = server.next()
    assert again is not None
    server.carry_out(again)
    assert requests.get(store.metadata, number).state is RequestState.DONE
    assert server.next() is None
    assert not server.may_have_next


def test_a_request_whose_taking_may_have_been_written_is_taken_again(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that marks it as running happened, and failed as far as the server knows."""
    server = performing.server(store.cold_work())
    number = requests.submit(store.metadata, "offload", "s", {})
    take_next = requests.take_next

    def unsure(*args: Any) -> None:
        take_next(*args)
        raise StorageFull("the disk of the metadata is full")

    with monkeypatch.context() as patched:
        patched.setattr(requests, "take_next", unsure)
        with pytest.raises(StorageFull):
            server.next()
    assert server.may_have_next
    again = server.next()
    assert again is not None
    assert again.id == number


@pytest.mark.parametrize("taken", [False, True])
def test_a_holder_that_dies_is_no_failure(store: TestStore, taken: bool) -> None:
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.ask()
        if taken:
            assert requests.take_next(store.metadata, everything) is not None
    command.join(30)
    assert command.result == DONE
    assert rows(store) == 0


def test_the_next_holder_takes_what_the_last_one_left(store: TestStore) -> None:
    number = requests.submit(store.metadata, "offload", "s", {})
    assert requests.take_next(store.metadata, everything) is not None
    assert requests.take_next(store.metadata, everything) is None
    assert requests.restart(store.metadata, everything) == 1
    found = requests.take_next(store.metadata, everything)
    assert found is not None
    assert found.id == number


def test_rows_are_what_a_holder_of_another_version_reads() -> None:
    of_parts = ["offload part", "evict part"]
    others = [
        "offload",
        "offload with metadata",
        "ledger offload",
        "ledger offload with metadata",
        "consolidate",
        "compress",
        "archive",
        "evict",
        "load",
        "switch",
        "gc",
    ]
    assert sorted(VERBS) == sorted([*others, *of_parts])
    assert (ACCEPT_LOSS, BEFORE, FORCE, GRACE_S, PLACE) == ("accept_loss", "before", "force", "grace_s", "place")
    assert (BEFORE_OFFSET, KEEP) == ("before_offset", "keep")
    uploads = [verb.name for verb in VERBS.values() if verb.uploads]
    of_callers = ["offload with metadata", "ledger offload with metadata"]
    assert uploads == ["offload", "ledger offload", "offload part", *of_callers, "compress", "switch"]


@pytest.mark.parametrize("verb", [CONSOLIDATE, COMPRESS, EVICT], ids=lambda verb: verb.name)
def test_a_dry_run_takes_no_lock(store: TestStore, verb: Verb[Any]) -> None:
    store.offload()
    with hold(store.paths.holder, store.clock):
        perform(store, verb, "s", {DRY_RUN: "1"})
    assert rows(store) == 0
    assert store.segment("s").local.bytes == 8


def test_a_verb_that_the_holder_does_not_know_is_an_error_of_the_command(store: TestStore) -> None:
    command = Command(store, "s", Verb("sublimate", OFFLOAD.run, OffloadReport))
    served(store, command)
    assert isinstance(command.error, InvalidRequest)
    assert "does not support 'sublimate'" in str(command.error)


def test_a_request_without_waiting_needs_a_holder_and_a_path(store: TestStore) -> None:
    with pytest.raises(Conflict, match="the store has no holder"):
        request(store, OFFLOAD, "s")
    with hold(store.paths.holder, store.clock):
        with pytest.raises(NotFound):
            request(store, OFFLOAD, "nowhere")
        number = request(store, OFFLOAD, "s")
    assert requests.get(store.metadata, number).state is RequestState.WAITING


class Looks:
    """The clock of a command that waits for the holder: it passes where a test lets it, and pauses take that long."""

    def __init__(self) -> None:
        self._now_s = self._until_s = 0.0
        self._pausing = False
        self._changed = threading.Condition()

    def monotonic(self) -> float:
        """Return how long all pauses were."""
        return self._now_s

    def sleep(self, pause_s: float) -> None:
        """Pause the command until the test lets so much time pass."""
        with self._changed:
            self._pausing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._now_s < self._until_s)
            self._pausing = False
            self._now_s += pause_s

    def let_pass(self, seconds: float) -> None:
        """Let time pass, and return as the command has looked and pauses again."""
        with self._changed:
            self._until_s = self._now_s + seconds
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._pausing and self._now_s >= self._until_s, 30)

    def end(self) -> None:
        """Let all time pass."""
        with self._changed:
            self._until_s = math.inf
            self._changed.notify_all()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    monkeypatch.setattr(requests, "time", looks)
    return looks


def named_in(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if "no response for" in record.getMessage()]


def test_a_holder_that_takes_no_request_is_named_once(
    store: TestStore, looks: Looks, caplog: pytest.LogCaptureFixture, expected_warnings: list[str]
) -> None:
    expected_warnings.append("no response for")
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.ask()
        looks.let_pass(requests.ANSWER_S)
        assert named_in(caplog) == []
        for _ in range(3):
            looks.let_pass(requests.ANSWER_S)
            assert len(named_in(caplog)) == 1
        assert f"the store is locked by process {os.getpid()} on " in named_in(caplog)[0]
    looks.end()
    command.join(30)
    assert command.result == DONE


@pytest.mark.parametrize("stopped", [False, True])
def test_a_holder_at_work_is_named_only_if_it_was_stopped(
    store: TestStore,
    looks: Looks,
    stopped: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    expected_warnings: list[str],
) -> None:
    expected_warnings.append("no response for")
    monkeypatch.setattr(performing, "_is_stopped", lambda _: stopped)
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.ask()
        assert requests.take_next(store.metadata, everything) is not None
        looks.let_pass(2 * requests.ANSWER_S)
        assert len(named_in(caplog)) == stopped
        looks.let_pass(requests.PROGRESS_S)
        assert len(named_in(caplog)) == 1  # as if it were stopped
    looks.end()
    command.join(30)


def test_a_holder_busy_with_another_request_is_not_named(
    store: TestStore, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    other = requests.submit(store.metadata, "gc", "", {})
    assert requests.take_next(store.metadata, everything) is not None
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.start()
        for done in range(6):
            requests.show_progress(store.metadata, other, Progress(done, 8, "s"))
            looks.let_pass(requests.PROGRESS_S / 4)
    looks.end()
    command.join(30)
    assert named_in(caplog) == []


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process that is in no transaction: with LMDB's lock it would stop whoever writes, too."""
    try:
        while True:
            os.kill(pid, signal.SIGSTOP)
            command = start_append()
            try:
                assert command.wait(_APPEND_S) == 0
                break
            except subprocess.TimeoutExpired:
                os.kill(pid, signal.SIGCONT)
                assert command.wait(30) == 0
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def start_append() -> forked.Child:
    nothing = tuple(os.open(os.devnull, flags) for flags in (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))
    return forked.start("tierfs", ["append", "other"], os.environ, nothing)


@pytest.mark.slow
def test_offload_beside_a_stopped_daemon_names_it_and_is_done_when_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    init_store(path)
    tierfs("config", "/", "offload_after=1d", store=path)
    tierfs("append", "s", "--seal", store=path, stdin=b"x" * 1000)
    tierfs("daemon", store=path)
    pid = tierfs("--json", "status", store=path).json["holder"]["pid"]
    monkeypatch.setenv("TIERFS_STORE", str(path))
    error = tmp_path / "error"
    try:
        with stopped(pid), error.open("wb") as stderr:
            streams = (os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), stderr.fileno())
            command = forked.start("tierfs", ["offload", "s"], os.environ, streams)
            assert eventually(lambda: "no response for" in error.read_text(), 20)
            with pytest.raises(subprocess.TimeoutExpired):
                command.wait(0.1)
        assert command.wait(30) == 0
        assert re.search(rf"locked by process {pid} on \S+ \(tierfs .*daemon -f\)", error.read_text())
        assert tierfs("--json", "info", "s", store=path).json["tiers"]["cold"]["bytes"] == 1000
    finally:
        os.kill(pid, signal.SIGTERM)
