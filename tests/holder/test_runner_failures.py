"""The background writer over hours of fake time: what fails, is listed, waits and works again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import (
    HOUR_S,
    MINUTE_S,
    SETTLED_S,
    SLOWLY,
    FlakyStorage,
    failures,
    set_policy,
    working,
)
from tests.stores import TestStore, assert_layout
from tierfs.chunkstore.protocol import StoredObject
from tierfs.errors import DataLoss, Fenced, PermissionDenied
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import GARBAGE, INTENTS
from tierfs.tiering import evict
from tierfs.tiering.offload_source import ChunkSource
from tierfs.types import ChunkState, SegmentId


async def test_a_place_that_is_not_ours_is_one_row_of_trouble(
    store: TestStore, storage: FlakyStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings += ["not the store's cold tier"]
    store.offload()
    kept = list(storage.list(""))
    for found in kept:
        storage.delete(found.name)
    for number in range(10):
        store.append(f"s{number}", b"abcd", seal=True)
    async with working(store):
        await trio.sleep(HOUR_S)
        assert {row.what for row in failures(store)} == {"owner", "publish"}
        assert {row.error_kind for row in failures(store)} == {"WrongColdTier"}
    assert list(storage.list("")) == []


async def test_a_segment_that_cannot_be_evicted_is_listed_and_keeps_no_other(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("evict .* failed: its chain is damaged")
    for name in ("a", "b", "c"):
        store.append(name, b"abcd", seal=True)
    evict_one, bad = evict.evict, store.segment("a").id

    def refuse(metadata: MetadataStore, segment_id: SegmentId, *, cold_before_ms: int) -> evict.Evicted:
        if segment_id == bad:
            raise DataLoss("its chain is damaged")
        return evict_one(metadata, segment_id, cold_before_ms=cold_before_ms)

    monkeypatch.setattr(evict, "evict", refuse)
    async with working(store, SLOWLY):
        await trio.sleep(5 * HOUR_S)
        (row,) = failures(store)
        assert (row.what, row.name, row.error_kind) == (f"evict {bad}", "a", "DataLoss")
        assert_layout(store, "a", local=[4], cold=[4])
        for name in ("b", "c"):
            assert_layout(store, name, local=[], cold=[4])
        monkeypatch.undo()
        await trio.sleep(6 * MINUTE_S)
        assert failures(store) == []
        assert_layout(store, "a", local=[], cold=[4])


async def test_a_bug_in_one_task_ends_no_other(
    store: TestStore, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]
) -> None:
    expected_warnings.append("collect failed: a bug")
    calls = 0

    def broken(self: object) -> None:
        nonlocal calls
        calls += 1
        raise RuntimeError("a bug")

    monkeypatch.setattr("tierfs.holder.work.ColdWork.collect", broken)
    store.append("s", b"abcd", seal=True)
    async with working(store):
        await trio.sleep(MINUTE_S)
    assert calls > 3
    assert_layout(store, "s", local=[4], cold=[4])
    assert [row.what for row in failures(store)] == ["collect"]


async def test_a_fenced_store_stops_and_says_so(store: TestStore, autojump_clock: MockClock) -> None:
    store.append("s", b"abcd", seal=True)
    with store.metadata.write() as txn:
        txn.update_store(journal=replace(txn.store.journal, fenced_by_epoch=7))
    with pytest.raises(BaseExceptionGroup) as caught:
        async with working(store):
            await trio.sleep(MINUTE_S)
    assert caught.group_contains(Fenced)
    assert list(store.cold.list("segments/")) == []


async def test_why_nothing_can_be_evicted_is_one_row(
    store: TestStore,
    storage: FlakyStorage,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    expected_warnings: list[str],
) -> None:
    expected_warnings.append("failed: credentials refused")
    for number in range(5):
        store.append(f"s{number}", b"abcd", seal=True)
    store.offload()

    def denied(prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        raise PermissionDenied("credentials refused")

    monkeypatch.setattr(storage, "list", denied)
    async with working(store, SLOWLY):
        await trio.sleep(9 * HOUR_S)
        assert [row.what for row in failures(store) if row.what.startswith("evict")] == ["evict"]
        assert_layout(store, "s0", local=[4], cold=[4])
        monkeypatch.undo()
        await trio.sleep(9 * HOUR_S)
        assert_layout(store, "s0", local=[], cold=[4])
        assert failures(store) == []


@pytest.mark.parametrize("segments", [1, 40])
async def test_a_failure_of_ours_is_listed_with_its_traceback_backs_off_and_leaves_little(
    store: TestStore,
    autojump_clock: MockClock,
    expected_warnings: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    segments: int,
) -> None:
    """Each try is an object that is written and deleted: an offload of one, and a pack of many."""
    expected_warnings.append("a defect")
    read = ChunkSource.read

    def fail(self: ChunkSource, offset: int, length_bytes: int) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(ChunkSource, "read", fail)
    set_policy(store, object_bytes="1000")
    for number in range(segments):
        store.append(f"s{number}", b"abcd", seal=True)
    async with working(store):
        await trio.sleep(HOUR_S)
        (row,) = failures(store)
        assert row.attempts in range(15, 30)
        assert (row.error_kind, row.error) == ("ZeroDivisionError", "a defect")
        with store.metadata.read() as txn:
            assert txn.count(INTENTS.name) == 0
            assert txn.count(GARBAGE.name) <= row.attempts, "the second deletions of an hour"
        assert sum(record.exc_info is not None for record in caplog.records) == 1
        monkeypatch.setattr(ChunkSource, "read", read)
        await trio.sleep(5 * MINUTE_S + SETTLED_S)
        assert failures(store) == []
        for number in range(segments):
            assert_layout(store, f"s{number}", local=[4], cold=[4])
            assert [placed.chunk.state for placed in store.layout(f"s{number}").local] == [ChunkState.GOOD]
