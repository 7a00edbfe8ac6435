"""The holder at the quota of the cold tier: it waits for room, evicts meanwhile, and says why."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.stores import TestStore, assert_layout
from tests.tiering.test_quota import limit, stored_bytes, use
from tests.upkeep.holder.holding import MINUTE_S, SETTLED_S, failures, set_policy, working
from tierfs.upkeep.holder.failures import QUOTA
from tierfs.upkeep.holder.status import store_status
from tierfs.upkeep.holder.waits import Wait
from tierfs.upkeep.holder.why import reasons


def kinds(store: TestStore, name: str, *, held: bool) -> list[Wait]:
    with store.metadata.read() as txn:
        found = reasons(txn, store.segment(name), now_ms=store.clock.now_ms(), held=held)
    return [reason.kind for reason in found if not reason.cold]


@pytest.fixture
def refused(expected_warnings: list[str]) -> None:
    """The holder logs once that the quota keeps something out."""
    expected_warnings.append("quota failed: the cold tier has .* of .* .cold.quota_bytes.: no room for 8 B more")


@pytest.mark.usefixtures("refused")
async def test_the_holder_waits_for_room_and_evicts_meanwhile(store: TestStore, autojump_clock: MockClock) -> None:
    set_policy(store, deletion_lag="300")
    store.append("a", b"12345678", seal=True)
    async with working(store):
        await trio.sleep(SETTLED_S)
        assert_layout(store, "a", local=[4, 4], cold=[8])
        limit(store, 10)
        store.append("b", b"12345678", seal=True)
        await trio.sleep(MINUTE_S)
        assert_layout(store, "b", local=[4, 4], cold=[])
        (row,) = failures(store)
        assert (row.what, row.bytes) == (QUOTA, 8)
        assert "8 B of 10 B (cold.quota_bytes)" in row.error
        assert kinds(store, "b", held=True) == [Wait.QUOTA]
        report = store_status(store.metadata, store.files, store.paths.holder, store.path, allowed="")
        assert any("offloading is paused; the local disk will fill up; raise it" in text for text in report.warnings)
        assert {reason.kind for reason in report.backlog.reasons} == {Wait.QUOTA}
        await trio.sleep(5 * MINUTE_S)
        assert_layout(store, "a", local=[], cold=[8])
        store.engine.delete("a", recursive=False, cold_due_ms=0)
        await trio.sleep(SETTLED_S)
        assert_layout(store, "b", local=[4, 4], cold=[8])
        assert failures(store) == []
        assert use(store).bytes == stored_bytes(store) == 8


@pytest.mark.usefixtures("refused")
async def test_a_smaller_object_waits_too_and_a_raised_quota_counts_at_once(
    store: TestStore, autojump_clock: MockClock
) -> None:
    limit(store, 6)
    set_policy(store)
    store.append("a", b"12345678", seal=True)
    async with working(store):
        await trio.sleep(10 * MINUTE_S)  # the longest pause is over
        assert_layout(store, "a", local=[4, 4], cold=[])
        limit(store, 0)
        await trio.sleep(SETTLED_S)
        assert_layout(store, "a", local=[4, 4], cold=[8])
        assert failures(store) == []


@pytest.mark.usefixtures("refused")
async def test_what_was_refused_and_is_removed_keeps_nothing_waiting(
    store: TestStore, autojump_clock: MockClock
) -> None:
    limit(store, 6)
    set_policy(store)
    store.append("a", b"12345678", seal=True)
    async with working(store):
        await trio.sleep(MINUTE_S)
        assert [row.what for row in failures(store)] == [QUOTA]
        store.engine.delete("a", recursive=False, cold_due_ms=0)
        await trio.sleep(SETTLED_S)
        store.append("b", b"123", seal=True)
        await trio.sleep(SETTLED_S)
        assert_layout(store, "b", local=[3], cold=[3])
        assert failures(store) == []
