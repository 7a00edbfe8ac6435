"""Performing a verb: done here, done by the holder, and done when either of them dies meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.mount.waiting import eventually
from tests.stores import TestStore, open_test_store
from tierfs.errors import Conflict, InvalidRequest, NotFound, StorageFull
from tierfs.garbage.collect import Collected
from tierfs.holder import requests
from tierfs.holder.lock import HeldElsewhere, hold
from tierfs.holder.verbs import (
    ACCEPT_LOSS,
    BEFORE,
    COLLECT,
    CONSOLIDATE,
    DRY_RUN,
    EVICT,
    FORCE,
    GRACE_S,
    LOAD,
    OFFLOAD,
    OFFLOAD_PREFIX,
    PLACE,
    VERBS,
    Options,
    Verb,
    VerbServer,
    flags,
    holding,
    perform,
    request,
)
from tierfs.holder.work import ColdWork, EvictReport
from tierfs.metadata.records import RequestRecord
from tierfs.metadata.tables import REQUESTS
from tierfs.parallel import Progress
from tierfs.segments.positions import Position
from tierfs.tiering.consolidate_command import ConsolidateReport
from tierfs.tiering.offload_command import OffloadReport
from tierfs.types import RequestState

pytestmark = pytest.mark.timeout(60)

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

    def run(self) -> None:
        try:
            self.result = perform(self._store, self._verb, self._path, self._options, self.seen.append)
        except Exception as exc:
            self.error = exc


def served(store: TestStore, command: Command) -> RequestRecord:
    """The request of a command, carried out by a holder."""
    server = VerbServer(store.metadata, store.cold_work())
    with hold(store.paths.holder, store.clock):
        command.start()
        assert eventually(lambda: rows(store) == 1)
        asked = server.next()
        assert asked is not None
        server.carry_out(asked)
        command.join(30)
    return asked


def rows(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return txn.count(REQUESTS.name)


def test_without_a_holder_it_is_done_here(store: TestStore) -> None:
    command = Command(store, "s")
    command.run()
    assert command.result == DONE
    assert rows(store) == 0


def test_the_holder_does_it_and_its_answer_arrives(store: TestStore) -> None:
    server = VerbServer(store.metadata, store.cold_work())
    with hold(store.paths.holder, store.clock):
        command = Command(store, "s")
        command.start()
        assert eventually(lambda: rows(store) == 1)
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
    server = VerbServer(store.metadata, store.cold_work())
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
    server = VerbServer(store.metadata, store.cold_work())
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
        command.start()
        assert eventually(lambda: rows(store) == 1)
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


def test_forgotten_answers_do_not_pile_up(store: TestStore) -> None:
    for _ in range(130):
        requests.finish(store.metadata, requests.submit(store.metadata, "gc", "", {}), {})
    assert rows(store) == 100


@pytest.mark.parametrize("verb", [CONSOLIDATE, EVICT, COLLECT], ids=lambda verb: verb.name)
def test_the_holder_gives_the_same_typed_result(store: TestStore, verb: Verb[Any]) -> None:
    store.settle()
    options = {GRACE_S: "0"} if verb is COLLECT else {}
    command = Command(store, "s", verb, options)
    asked = served(store, command)
    assert (asked.verb, asked.options) == (verb.name, options)
    assert command.result == perform(store, verb, "s", options)
    assert isinstance(command.result, (ConsolidateReport, EvictReport, Collected))


@pytest.mark.parametrize(
    ("verb", "noun"), [(OFFLOAD, "segment"), (EVICT, "segment"), (CONSOLIDATE, "segment"), (COLLECT, "cold object")]
)
def test_the_holder_tells_what_it_counted(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, verb: Verb[Any], noun: str
) -> None:
    if verb is not OFFLOAD:
        store.offload()
    options = {GRACE_S: "0"} if verb is COLLECT else {}
    number = requests.submit(store.metadata, verb.name, "", options)
    told: list[RequestRecord] = []
    write = requests.show_progress

    def note(*named: Any) -> None:
        write(*named)
        told.append(requests.get(store.metadata, number))

    monkeypatch.setattr(requests, "_REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(requests, "show_progress", note)
    server = VerbServer(store.metadata, store.cold_work())
    with hold(store.paths.holder, store.clock):
        asked = server.next()
        assert asked is not None
        server.carry_out(asked)
    last = [row for row in told if row.noun == noun][-1]
    assert (last.done_items, last.total_items) in ((1, 1), (1, 0))
    assert last.item


def test_rows_are_what_a_holder_of_another_version_reads() -> None:
    assert list(VERBS) == ["offload", "ledger offload", "consolidate", "evict", "load", "switch", "gc"]
    assert (ACCEPT_LOSS, BEFORE, FORCE, GRACE_S, PLACE) == ("accept_loss", "before", "force", "grace_s", "place")
    assert [verb.name for verb in VERBS.values() if verb.uploads] == ["offload", "ledger offload", "switch"]


@pytest.mark.parametrize("verb", [CONSOLIDATE, EVICT], ids=lambda verb: verb.name)
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
    assert "does not know 'sublimate'" in str(command.error)


def test_a_request_without_waiting_needs_a_holder_and_a_path(store: TestStore) -> None:
    with pytest.raises(Conflict, match="no process holds"):
        request(store, OFFLOAD, "s")
    with hold(store.paths.holder, store.clock):
        with pytest.raises(NotFound):
            request(store, OFFLOAD, "nowhere")
        number = request(store, OFFLOAD, "s")
    assert requests.get(store.metadata, number).state is RequestState.WAITING


def test_work_under_the_lock_is_refused_while_another_process_holds_it(store: TestStore) -> None:
    with hold(store.paths.holder, store.clock), pytest.raises(HeldElsewhere), holding(store, "a test"):
        pass


class NotedWork:
    """Cold work that notes how it is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **options: self.calls.append((name, words, options))


def report(_: Progress) -> None:
    """Compared by identity."""


@pytest.mark.parametrize(
    ("verb", "options", "call"),
    [
        (OFFLOAD, {}, ("offload", ("p", report), {})),
        (OFFLOAD_PREFIX, {}, ("offload_prefix", ("p", None, report), {})),
        (OFFLOAD_PREFIX, {BEFORE: "3:7"}, ("offload_prefix", ("p", Position(3, 7), report), {})),
        (CONSOLIDATE, {}, ("consolidate", ("p",), {"dry_run": False, "report": report})),
        (EVICT, {}, ("evict", ("p",), {"force": False, "dry_run": False, "report": report})),
        (EVICT, {FORCE: "1"}, ("evict", ("p",), {"force": True, "dry_run": False, "report": report})),
        (LOAD, {}, ("load_segment", ("p",), {"accept_loss": False, "report": report})),
        (LOAD, {ACCEPT_LOSS: "1"}, ("load_segment", ("p",), {"accept_loss": True, "report": report})),
        (COLLECT, {GRACE_S: "60"}, ("collect_all", (), {"grace_s": 60, "report": report})),
    ],
)
def test_each_verb_passes_its_options_to_the_work(verb: Verb[Any], options: Options, call: object) -> None:
    work = NotedWork()
    verb.run(cast("ColdWork", work), "p", options, report)
    assert work.calls == [call]


def test_flags_are_the_options_that_are_true() -> None:
    assert flags({FORCE: True, DRY_RUN: False}) == {FORCE: "1"}
