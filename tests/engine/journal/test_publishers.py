"""Several processes publish for one store: one entry each, no false fence, and none waits for a stopped one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.engine.journal.test_publish import entries, publisher, slots
from tests.stores import TestStore
from tierfs.base.system.locks import LockFile
from tierfs.base.words.errors import Fenced
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.protocol import ChunkStorage, Source, StoredObject
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.journal import publish
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import policies


class Between(Wrapped):
    """A storage where another process acts once, just before a request of one kind."""

    def __init__(self, inner: ChunkStorage, request: str, act: object) -> None:
        super().__init__(inner)
        self._request = request
        self._act = act

    def _meets(self, request: str) -> None:
        if request == self._request and self._act is not None:
            act, self._act = self._act, None
            act()  # type: ignore[operator]

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        self._meets("put")
        return self._inner.put(name, source, metadata=metadata, create_only=create_only)

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        if prefix == JOURNAL_PREFIX:
            self._meets("list")
        return self._inner.list(prefix, after=after)


def change(store: TestStore, value: str = "1MiB") -> None:
    """Queue one change."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": str(len(value) << 20)})


def sequences(store: TestStore) -> list[int]:
    return [change.sequence for entry in entries(store) for change in entry.changes]


@pytest.mark.parametrize("request_kind", ["put", "list"])
def test_another_process_publishes_in_between(
    store: TestStore, request_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock both write the same entry; neither takes the other for another owner."""
    monkeypatch.setattr(publish, "TURN_S", 0.0)
    store.append("s", b"abcd", seal=True)
    change(store)

    def other() -> None:
        publisher(store).publish()
        change(store, "22")
        publisher(store).publish()

    Publisher(store.metadata, Between(store.cold, request_kind, other)).publish()
    change(store, "333")
    publisher(store).publish()
    assert sequences(store) == list(range(1, len(sequences(store)) + 1))
    with store.metadata.read() as txn:
        assert not txn.store.journal.fenced_by_epoch
        assert not txn.store.journal.intent.attempt


def test_a_checkpoint_of_another_process_is_no_owner(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "TURN_S", 0.0)
    store.append("s", b"abcd", seal=True)
    publisher(store).publish()
    change(store)

    def other() -> None:
        with store.holding() as work:
            change(store, "22")
            work.checkpointer.checkpoint()

    Publisher(store.metadata, Between(store.cold, "list", other)).publish()
    with store.metadata.read() as txn:
        assert not txn.store.journal.fenced_by_epoch


def test_a_slot_of_the_own_epoch_without_an_intent_still_fences(store: TestStore) -> None:
    """As of metadata from an old backup: the records do not change while they are compared."""
    store.append("s", b"abcd", seal=True)
    publisher(store).publish()
    with store.metadata.read() as txn:
        state = txn.store.journal
    change(store)
    publisher(store).publish()
    with store.metadata.write() as txn:
        txn.update_store(journal=state)
    with pytest.raises(Fenced):
        publisher(store).verify_ownership()


def test_publishers_take_turns(store: TestStore) -> None:
    """Many at once send each entry once."""
    store.append("s", b"abcd", seal=True)
    publisher(store).publish()
    before = len(slots(store))
    errors: list[BaseException] = []
    puts = []

    class Counted(Wrapped):
        def put(
            self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
        ) -> StoredObject:
            puts.append(name)
            return self._inner.put(name, source, metadata=metadata, create_only=create_only)

    def work(number: int) -> None:
        try:
            for step in range(5):
                change(store, "x" * (1 + number + step))
                Publisher(store.metadata, Counted(store.cold)).publish()
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    journal = [name for name in puts if name.startswith(JOURNAL_PREFIX)]
    assert len(journal) == len(set(journal)) == len(slots(store)) - before
    assert sequences(store) == list(range(1, len(sequences(store)) + 1))


def test_a_stopped_publisher_only_delays(store: TestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "TURN_S", 0.01)
    lock = LockFile(store.metadata.path / "publishing")
    assert lock.try_lock()
    change(store)
    assert publisher(store).publish() >= 1
    lock.close()


def test_publishing_up_to_a_change_leaves_later_ones(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_ENTRY_CHANGES", 1)
    store.append("s", b"abcd", seal=True)
    publisher(store).publish()
    with store.metadata.read() as txn:
        done = txn.store.journal.published_sequence
    for value in ("1", "22", "333"):
        change(store, value)
    publisher(store).publish(until=done + 2)
    with store.metadata.read() as txn:
        assert txn.store.journal.published_sequence == done + 2
    assert publisher(store).publish(until=done + 1) == 0


def test_rows_that_another_process_published_are_not_sent_again(
    store: TestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the intent and the look at its rows; a server that ignores create-only would take an empty entry."""
    store.append("s", b"abcd", seal=True)
    publisher(store).publish()
    change(store)
    read, others = store.metadata.read, [publisher(store)]

    def reading() -> object:
        if others and store_intends():
            others.pop().publish()
        return read()

    def store_intends() -> bool:
        with read() as txn:
            return bool(txn.store.journal.intent.attempt)

    monkeypatch.setattr(store.metadata, "read", reading)
    monkeypatch.setattr(publish, "TURN_S", 0.0)
    mine = publisher(store)
    assert mine._next_entry() is None
