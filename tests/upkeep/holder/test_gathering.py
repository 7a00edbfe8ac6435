"""The holder gathers small changes for its journal: at most a request a second, and at once for those who wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, assert_layout, open_test_store
from tests.upkeep.holder.holding import FlakyStorage, TrioClock, set_policy, working
from tierfs.base.options.config import BackgroundSettings
from tierfs.engine.chunkstore.protocol import Source, StoredObject
from tierfs.engine.metadata.tables import OUTBOX_NAME

MINUTE_S = 60


class Busy(FlakyStorage):
    """A place during each of whose answers more changes are made."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.entries = 0
        self.requests = 0
        """About the journal."""
        self.change = lambda: None

    def put(
        self, name: str, source: Source, *, metadata: Mapping[str, str] | None = None, create_only: bool = True
    ) -> StoredObject:
        stored = super().put(name, source, metadata=metadata, create_only=create_only)
        if name.startswith("journal/"):
            self.requests += 1
            self.entries += 1
            assert self.entries < 1000, "it never ends"
            self.change()
        return stored

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        self.requests += prefix.startswith("journal/")
        return super().list(prefix, after=after)


@pytest.fixture
def storage() -> Busy:
    return Busy()


@pytest.fixture
def store(tmp_path: Path, storage: Busy) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=TrioClock(), cold=storage) as opened:
        yield opened


def names() -> Iterator[str]:
    number = 0
    while True:
        yield f"s{number:04}"
        number += 1


@pytest.mark.parametrize(("apart_s", "for_s"), [(0.05, 15), (1.0, MINUTE_S), (7.0, MINUTE_S)])
async def test_segments_that_come_one_by_one_take_a_request_a_second_at_most(
    store: TestStore, storage: Busy, autojump_clock: MockClock, apart_s: float, for_s: int
) -> None:
    made = names()
    async with working(store):
        await trio.sleep(5)
        before, until = storage.requests, trio.current_time() + for_s
        while trio.current_time() < until:
            store.append(next(made), b"ab", seal=True)
            await trio.sleep(apart_s)
        assert storage.requests - before <= for_s
        await trio.sleep(7)
        with store.metadata.read() as txn:
            assert not txn.count(OUTBOX_NAME)


async def test_changes_that_come_while_an_entry_is_written_wait_for_the_next(
    store: TestStore, storage: Busy, autojump_clock: MockClock
) -> None:
    made = names()
    storage.change = lambda: store.append(next(made), b"ab", seal=True)
    async with working(store):
        await trio.sleep(MINUTE_S)
        assert MINUTE_S // 6 <= storage.entries <= MINUTE_S // 3 + 1
        storage.change = lambda: None
        await trio.sleep(7)
        with store.metadata.read() as txn:
            assert not txn.count(OUTBOX_NAME)


def test_a_command_publishes_all_that_was_there_and_ends_though_more_comes(store: TestStore, storage: Busy) -> None:
    made = names()
    with store.holding() as work:
        for _ in range(5):
            store.append(next(made), b"ab", seal=True)
        newest = newest_change(store)
        storage.change = lambda: store.append(next(made), b"ab", seal=True)
        assert work.publish() == 1
        with store.metadata.read() as txn:
            assert txn.store.journal.published_sequence == newest
            assert txn.count(OUTBOX_NAME)
        done = work.offload("s0000", lambda _: None)
        assert done.bytes == 2
        assert done.journal_entries <= 2


def newest_change(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return txn.store.next_outbox - 1


def test_more_than_one_entry_holds_is_published_at_once(
    store: TestStore, storage: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierfs.engine.journal.publish._ENTRY_CHANGES", 3)
    store.settle()
    before = storage.entries
    for number in range(10):
        store.append(f"s{number}", b"ab", seal=True)
    with store.metadata.read() as txn:
        queued = txn.count(OUTBOX_NAME)
    store.settle()
    assert storage.entries - before == -(-queued // 3)
    with store.metadata.read() as txn:
        assert not txn.count(OUTBOX_NAME)


async def test_a_full_disk_does_not_wait_for_the_second_to_end(
    store: TestStore, storage: Busy, autojump_clock: MockClock
) -> None:
    """What makes room is published once it is uploaded, and evicted once it is published."""
    set_policy(store, deletion_lag="3600", chunk_bytes="100", object_bytes="100")
    async with working(store, BackgroundSettings(high_watermark_bytes=10, tick_s=600)):
        await trio.sleep(1)
        store.append("big", bytes(100), seal=True)
        await trio.sleep(602)
        assert_layout(store, "big", local=[], cold=[100])
