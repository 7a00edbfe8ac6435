"""Ledgers and the background writer: closed ones become cold and lose their local bytes by themselves."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.holder.holding import (
    HOUR_S,
    SETTLED_S,
    set_policy,
    working,
)
from tests.stores import TestStore
from tierfs import policy
from tierfs.segments import ledgers


def write(store: TestStore, name: str, *payloads: bytes, close: bool = True) -> None:
    """Append entries to a ledger, which is made if it is missing."""
    with store.metadata.read() as txn:
        known = any(one.segment == name for one in ledgers.below(txn, ""))
    if not known:
        store.engine.create_ledger(name)
    writer = store.engine.open_ledger(name)
    writer.append_entries(payloads, last=True)
    store.engine.close_writer(writer)
    if close:
        store.engine.seal(name)


@pytest.mark.parametrize("above", ["off", "-1", "1", "100"])
@pytest.mark.parametrize("after", ["off", "-1", "0", "1", "1w"])
async def test_closed_ledgers_are_due_by_age_or_by_size(
    store: TestStore, autojump_clock: MockClock, above: str, after: str
) -> None:
    wanted = {"offload_above_bytes": above, "offload_after": after}
    set_policy(store, **{key: policy.parse(key, value) for key, value in wanted.items()})
    for number in range(1, 4):
        write(store, f"t/{number}", bytes(40))
    write(store, "t/4", bytes(20), close=False)
    async with working(store):
        await trio.sleep(2 * SETTLED_S)
        cold = [store.segment(f"t/{number}").cold.bytes > 0 for number in range(1, 5)]
    by_size = {"off": 0, "-1": 0, "1": 3, "100": 1}[above]  # 140 bytes in all, of which 20 cannot go
    by_age = 3 if after in ("0", "1") else 0
    assert cold == [number < max(by_size, by_age) for number in range(4)]


def cold_ones(store: TestStore) -> list[str]:
    with store.metadata.read() as txn:
        return sorted(one.segment for one in ledgers.below(txn, "") if store.segment(one.segment).cold.count)


async def test_ledgers_that_close_while_others_are_offloaded_follow(
    store: TestStore, autojump_clock: MockClock
) -> None:
    async with working(store):
        for number in range(1, 30):
            write(store, f"t/{number}", b"abcd")
            await trio.sleep(0.1)
        await trio.sleep(SETTLED_S)
    assert len(cold_ones(store)) == 29
    assert len([found for found in store.cold.list("") if "-ledger-" in found.name]) == 2 * 29  # each once


async def test_status_counts_an_open_ledger_from_its_first_byte(store: TestStore, autojump_clock: MockClock) -> None:
    async with working(store):
        write(store, "t/1", b"abcd", close=False)
        began_ms = store.segment("t/1").began_ms
        await trio.sleep(HOUR_S)
        write(store, "t/1", b"efgh", close=False)
        await trio.sleep(SETTLED_S)
        with store.metadata.read() as txn:
            assert txn.oldest_local_only_ms == began_ms
            assert txn.sums is not None
            assert txn.sums.not_offloaded_bytes == 8
        store.engine.seal("t/1")
        await trio.sleep(SETTLED_S)
        with store.metadata.read() as txn:
            assert txn.sums is not None
            assert (txn.oldest_local_only_ms, txn.sums.not_offloaded_bytes) == (0, 0)
