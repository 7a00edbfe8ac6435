"""Asking the holder: done here, done there, and done whoever dies meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mount.waiting import eventually
from tests.stores import TestStore, open_test_store, quiet
from tierfs.background import requests
from tierfs.background.ask import Question, ask
from tierfs.background.holder import hold
from tierfs.background.serve import RequestServer
from tierfs.background.upload import Progress
from tierfs.errors import NotFound, StorageFull
from tierfs.metadata.tables import REQUESTS
from tierfs.types import RequestState

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        opened.append("s", b"abcdefgh", seal=True)
        yield opened


class Asker(threading.Thread):
    """A command that asks, in a thread of its own."""

    def __init__(self, store: TestStore, path: str) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._path = path
        self.seen: list[Progress] = []
        self.result: dict[str, Any] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        work = self._store.work()
        question = Question("offload", self._path, {}, lambda: {"bytes": work.offload(self._path, quiet).bytes})
        try:
            self.result = ask(self._store.metadata, question, self.seen.append)
        except Exception as exc:
            self.error = exc


def rows(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return txn.count(REQUESTS.name)


def test_without_a_holder_it_is_done_here(store: TestStore) -> None:
    asker = Asker(store, "s")
    asker.run()
    assert asker.result == {"bytes": 8}
    assert rows(store) == 0


def test_the_holder_does_it_and_its_answer_arrives(store: TestStore) -> None:
    server = RequestServer(store.metadata, store.cold_work())
    with hold(store.path / "holder", store.clock):
        asker = Asker(store, "s")
        asker.start()
        assert eventually(lambda: rows(store) == 1)
        request = server.next()
        assert request is not None
        requests.show_progress(store.metadata, request.id, Progress(3, 8, "s"))
        assert eventually(lambda: Progress(3, 8, "s") in asker.seen)
        server.carry_out(request)
        asker.join(30)
    assert asker.result is not None
    assert asker.result["objects"] == 1
    assert rows(store) == 0


def test_the_holders_error_is_the_commands(store: TestStore) -> None:
    server = RequestServer(store.metadata, store.cold_work())
    with hold(store.path / "holder", store.clock):
        asker = Asker(store, "nowhere")
        asker.start()
        assert eventually(lambda: rows(store) == 1)
        request = server.next()
        assert request is not None
        server.carry_out(request)
        asker.join(30)
    assert isinstance(asker.error, NotFound)
    assert "nowhere" in str(asker.error)


def test_what_a_full_disk_kept_from_being_answered_is_done_again(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = RequestServer(store.metadata, store.cold_work())
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


@pytest.mark.parametrize("taken", [False, True])
def test_a_holder_that_dies_is_no_failure(store: TestStore, taken: bool) -> None:
    with hold(store.path / "holder", store.clock):
        asker = Asker(store, "s")
        asker.start()
        assert eventually(lambda: rows(store) == 1)
        if taken:
            assert requests.take_next(store.metadata) is not None
    asker.join(30)
    assert asker.result == {"bytes": 8}
    assert rows(store) == 0


def test_the_next_holder_takes_what_the_last_one_left(store: TestStore) -> None:
    number = requests.submit(store.metadata, "offload", "s", {})
    assert requests.take_next(store.metadata) is not None
    assert requests.take_next(store.metadata) is None
    assert requests.restart(store.metadata) == 1
    found = requests.take_next(store.metadata)
    assert found is not None
    assert found.id == number


def test_forgotten_answers_do_not_pile_up(store: TestStore) -> None:
    for _ in range(130):
        requests.finish(store.metadata, requests.submit(store.metadata, "gc", "", {}), {})
    assert rows(store) == 100
