"""Ledgers and the background writer: closed ones become cold and lose their local bytes by themselves."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.fsck.looking import flip_local
from tests.holder.holding import (
    HOUR_S,
    MINUTE_S,
    SETTLED_S,
    SLOWLY,
    FlakyStorage,
    failures,
    nothing_left,
    set_policy,
    storage,
    store,
    working,
)
from tests.stores import TestStore, assert_layout
from tierfs import policy
from tierfs.config import BackgroundSettings
from tierfs.holder import requests
from tierfs.metadata import chain_edits, chains
from tierfs.segments import ledgers
from tierfs.types import ChunkState, Tier

__all__ = ["storage", "store"]


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


async def test_a_ledger_goes_its_way_by_itself(store: TestStore, autojump_clock: MockClock) -> None:
    async with working(store, SLOWLY):
        write(store, "t/1", b"abc", b"defghij", close=False)
        await trio.sleep(HOUR_S)
        assert_layout(store, "t/1", local=[4, 4, 2], cold=[])
        write(store, "t/1", b"kl", close=False)
        assert_layout(store, "t/1", local=[4, 4, 4], cold=[])  # the active chunk did not end early
        store.engine.seal("t/1")
        await trio.sleep(MINUTE_S)
        assert_layout(store, "t/1", local=[4, 4, 4], cold=[12])
        await trio.sleep(3 * HOUR_S)
        assert_layout(store, "t/1", local=[4, 4, 4], cold=[12])
        await trio.sleep(2 * HOUR_S)
        assert_layout(store, "t/1", local=[], cold=[12])
        assert nothing_left(store)
        assert list(store.files.names()) == []


async def test_a_ledger_waits_for_as_long_as_policy_says(store: TestStore, autojump_clock: MockClock) -> None:
    set_policy(store, offload_after=str(HOUR_S))
    async with working(store, SLOWLY):
        write(store, "t/1", b"abcd", close=False)
        await trio.sleep(HOUR_S)
        store.engine.seal("t/1")
        await trio.sleep(HOUR_S - MINUTE_S)
        assert_layout(store, "t/1", local=[4], cold=[])
        await trio.sleep(2 * MINUTE_S)
        assert_layout(store, "t/1", local=[4], cold=[4])


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


async def test_size_counts_each_managed_ledger_for_itself_and_goes_on(
    store: TestStore, autojump_clock: MockClock
) -> None:
    set_policy(store, offload_above_bytes="50", offload_after="off")
    async with working(store):
        for number in (1, 2, 10):
            write(store, f"t/{number}", bytes(20))
            write(store, f"u/{number}", bytes(10))
            await trio.sleep(SETTLED_S)
        assert cold_ones(store) == ["t/1"]
        write(store, "t/11", bytes(20), close=False)
        await trio.sleep(SETTLED_S)
        assert cold_ones(store) == ["t/1", "t/2"]
        store.engine.delete("t/11", recursive=False, cold_due_ms=0)
        set_policy(store, offload_above_bytes="19", offload_after="off")
        await trio.sleep(SETTLED_S)
        assert cold_ones(store) == ["t/1", "t/10", "t/2", "u/1", "u/2"]


def cold_ones(store: TestStore) -> list[str]:
    with store.metadata.read() as txn:
        return sorted(one.segment for one in ledgers.below(txn, "") if store.segment(one.segment).cold.count)


async def test_a_policy_that_was_off_counts_as_soon_as_it_is_on(store: TestStore, autojump_clock: MockClock) -> None:
    set_policy(store, offload_after="off")
    async with working(store):
        write(store, "t/1", b"abcd")
        store.append("s", b"abcd", seal=True)
        await trio.sleep(HOUR_S)
        assert (store.segment("t/1").cold.bytes, store.segment("s").cold.bytes) == (0, 0)
        set_policy(store)
        await trio.sleep(SETTLED_S)
        assert (store.segment("t/1").cold.bytes, store.segment("s").cold.bytes) == (4, 4)


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


@pytest.mark.parametrize("lag", ["off", "0", "60"])
async def test_local_bytes_go_when_the_lag_has_passed(store: TestStore, autojump_clock: MockClock, lag: str) -> None:
    set_policy(store, deletion_lag=lag)
    async with working(store):
        write(store, "t/1", b"abcd")
        write(store, "t/2", b"abcd", close=False)
        await trio.sleep(SETTLED_S + 1)  # offload, publish and evict may each take a tick
        assert store.segment("t/1").local.bytes == (0 if lag == "0" else 4)
        await trio.sleep(MINUTE_S)
        assert store.segment("t/1").local.bytes == (4 if lag == "off" else 0)
        assert store.segment("t/2").local.bytes == 4


async def test_an_empty_ledger_is_left(store: TestStore, autojump_clock: MockClock) -> None:
    async with working(store):
        write(store, "t/1", b"", b"")
        store.engine.create_ledger("t/2")
        store.engine.seal("t/2")
        await trio.sleep(SETTLED_S)
        assert_layout(store, "t/1", local=[], cold=[])
    assert failures(store) == []


async def test_a_ledger_that_fails_is_listed_and_holds_up_no_other(
    store: TestStore, storage: FlakyStorage, autojump_clock: MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("bytes from 4 on are missing or damaged")
    write(store, "t/1", b"abcd", b"efgh")
    write(store, "t/2", b"ijkl")
    with store.metadata.read() as txn:
        chunk = chains.chunk_at(txn, store.segment("t/1").id, Tier.LOCAL, 4)
    assert chunk is not None
    flip_local(store, "t/1", 5)
    chain_edits.set_state(store.metadata, store.segment("t/1").id, Tier.LOCAL, chunk, ChunkState.SUSPECT)
    async with working(store):
        await trio.sleep(SETTLED_S)
        assert_layout(store, "t/2", local=[4], cold=[4])
        (row,) = failures(store)
        assert (row.name, row.bytes, row.error_kind) == ("t/1", 8, "DataLoss")


async def test_open_ledgers_make_no_other_segment_end_early(store: TestStore, autojump_clock: MockClock) -> None:
    set_policy(store, chunk_bytes="1000", object_bytes="1000")
    async with working(store, BackgroundSettings(high_watermark_bytes=200)):
        write(store, "t/1", bytes(150), close=False)
        store.append("s", b"x")
        await trio.sleep(SETTLED_S)
        assert_layout(store, "s", local=[1], cold=[])
        assert_layout(store, "t/1", local=[150], cold=[])


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


async def test_the_holder_offloads_a_prefix_on_request(store: TestStore, autojump_clock: MockClock) -> None:
    set_policy(store, offload_after=str(HOUR_S))
    for number in (1, 2, 3):
        write(store, f"t/{number}", b"abcd")
    some = requests.submit(store.metadata, "ledger offload", "t", {"before": "3:0"})
    wrong = requests.submit(store.metadata, "ledger offload", "t", {"before": "4:0"})
    async with working(store):
        await trio.sleep(SETTLED_S)
        assert [store.segment(f"t/{number}").cold.count for number in (1, 2, 3)] == [1, 1, 0]
        everything = requests.submit(store.metadata, "ledger offload", "t", {})
        await trio.sleep(SETTLED_S)
    assert '"first_unoffloaded": "3:0"' in requests.get(store.metadata, some).result
    assert requests.get(store.metadata, wrong).error_kind == "InvalidRequest"
    assert '"ledgers": 1' in requests.get(store.metadata, everything).result
