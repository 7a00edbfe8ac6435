"""Retention on a real store: heads go, streams lose their oldest members, and nothing that only this disk has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.segments.test_streams import members
from tests.stores import TestStore, assert_layout
from tierfs.clock import ManualClock
from tierfs.holder.status import store_status
from tierfs.metadata import chains, directories, policies, tables
from tierfs.metadata.tables import CHUNKS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.retention import policy as retention_policy
from tierfs.retention import retention as retention_module
from tierfs.retention.retention import Expired, Retention
from tierfs.types import ROOT_DIRECTORY, ByteRange, ChunkState, ObjectId, Tier

DAY_S = 86_400
HOUR_S = 3600
BASE = {"chunk_bytes": "4", "object_bytes": "8"}


POLICY = BASE | {"retention_age": str(DAY_S)}


def expire(store: TestStore) -> Expired:
    return Retention(store.metadata, store.engine, grace_s=HOUR_S).expire()


def set_policy(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, BASE | settings)


def test_whole_chunks_go_from_the_head_when_their_last_byte_is_old_enough(store: TestStore, clock: ManualClock) -> None:
    store.append("s", b"abcdefgh", b"ij")
    store.offload()
    inode = store.segment("s").inode
    clock.advance(HOUR_S)
    store.append("s", b"kl")
    store.offload()
    clock.advance(DAY_S - HOUR_S - 1)
    assert expire(store) == Expired()
    clock.advance(1)
    assert expire(store) == Expired(bytes=10)
    found = store.segment("s")
    assert (found.start_offset, found.length) == (10, 12)
    assert found.inode != inode
    assert_layout(store, "s", local=[2], cold=[2])
    clock.advance(HOUR_S)
    assert expire(store) == Expired(bytes=2)
    assert store.segment("s").range == ByteRange(12, 12)  # an open segment is never removed
    store.append("s", b"m")
    assert store.read("s")[12:] == b"m"


def test_a_late_upload_makes_nothing_younger(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, object_bytes="4", retention_age=str(DAY_S))
    store.append("s", b"abcd", b"e")
    clock.advance(DAY_S)
    store.append("s", b"f")
    store.offload()
    assert expire(store) == Expired(bytes=4)


def test_it_waits_for_offload_and_for_the_journal_unless_told_otherwise(store: TestStore, clock: ManualClock) -> None:
    store.append("s", b"abcd", seal=True)
    store.append("open", b"abcdef")
    clock.advance(2 * DAY_S)
    assert expire(store) == Expired()
    store.offload("s")
    with store.metadata.write() as txn:
        (chunk,) = chains.chunks(txn, store.segment("s").id, Tier.COLD)
        holder = chains.object_of(txn, chunk)
        published = txn.store.journal.published_sequence
        unpublished = replace(holder, linked_sequence=published + 1)
        txn.put(OBJECTS, tables.u64(holder.id), unpublished)
    assert expire(store) == Expired()
    with store.metadata.write() as txn:
        txn.put(OBJECTS, tables.u64(holder.id), holder)
    assert expire(store) == Expired(removed=1, bytes=4)
    set_policy(store, retention_age=str(DAY_S), retention_needs_offload="no")
    assert expire(store) == Expired(bytes=4)  # the active chunk's end is not known
    assert store.segment("open").range == ByteRange(4, 6)


def test_objects_go_after_the_journal_and_the_grace_period(store: TestStore, clock: ManualClock) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload()
    clock.advance(DAY_S)
    work = store.cold_work()
    assert work.end_lifetimes() == Expired(removed=1, bytes=4)
    work.collect()
    assert list(store.files.names()) == []
    assert len(list(store.cold.list("segments/"))) == 1
    clock.advance(HOUR_S)
    work.collect()
    assert len(list(store.cold.list("segments/"))) == 1  # the journal still names it
    work.publish()
    work.collect()
    assert list(store.cold.list("segments/")) == []


def test_a_stream_loses_its_oldest_members_and_keeps_its_name(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, seal_bytes="8", retention_age=str(DAY_S))
    for _ in range(5):
        store.append("d/s", b"abcdefgh")
        clock.advance(HOUR_S)
    store.offload()
    clock.advance(DAY_S - 3 * HOUR_S)
    assert expire(store) == Expired(removed=2, bytes=24)
    assert members(store) == {
        "d/s": (8, 8, "SEALED_BY_POLICY"),  # empty; appends to the name go on where the stream is
        "d/s.24": (24, 32, "SEALED_BY_POLICY"),
        "d/s.32": (32, 40, "OPEN"),
    }
    store.append("d/s", b"x")
    assert members(store)["d/s.40"] == (40, 41, "OPEN")
    clock.advance(10 * DAY_S)
    store.engine.seal("d/s")
    store.offload()
    clock.advance(DAY_S)
    assert expire(store).removed == 4
    assert members(store) == {}


@pytest.mark.parametrize(
    ("settings", "parts", "kept", "expired"),
    [
        ({"seal_bytes": "8"}, [8] * 4, 12, Expired(removed=1, bytes=16)),
        ({"seal_bytes": "8"}, [8] * 4, 16, Expired(removed=1, bytes=16)),
        ({"seal_bytes": "8"}, [8] * 4, 17, Expired(bytes=8)),
        ({"object_bytes": "4"}, [19], 9, Expired(bytes=8)),
        ({"object_bytes": "4"}, [19], 11, Expired(bytes=8)),
        ({"object_bytes": "4"}, [19], 12, Expired(bytes=4)),
        ({"object_bytes": "4"}, [19], 19, Expired()),
    ],
)
def test_size_counts_a_stream_as_one_and_keeps_at_least_so_much(
    store: TestStore, settings: dict[str, str], parts: list[int], kept: int, expired: Expired
) -> None:
    set_policy(store, retention_bytes=str(kept), **settings)
    store.append("s", *(bytes(length) for length in parts))
    store.offload()
    assert expire(store) == expired
    whole = sorted(members(store).values())
    assert whole[0][0] == min(expired.bytes, 8)
    assert whole[-1][1] - expired.bytes >= kept
    assert whole[-1][2] == "OPEN"


def test_what_is_switched_off_below_stays(store: TestStore, clock: ManualClock) -> None:
    store.append("logs/s", b"abcd", seal=True)
    store.append("keep/s", b"abcd", seal=True)
    with store.metadata.write() as txn:
        policies.change(txn, "keep", put_settings={"retention_age": "off"})
    store.offload()
    clock.advance(DAY_S)
    assert expire(store) == Expired(removed=1, bytes=4)
    assert list(members(store)) == ["keep/s"]


def test_a_living_writer_loses_only_what_is_behind_it(store: TestStore, clock: ManualClock) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"abcdef")
    store.offload()
    clock.advance(DAY_S)
    assert expire(store) == Expired(bytes=6)
    assert writer.append(b"gh") == ByteRange(6, 8)
    assert store.read("s")[6:] == b"gh"


def test_much_goes_in_several_commits(store: TestStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "_RUNS_PER_COMMIT", 2)
    set_policy(store, object_bytes="4", seal_bytes="12", retention_age=str(DAY_S))
    store.append("s", *[b"abcd"] * 10)
    store.offload()
    clock.advance(DAY_S)
    assert expire(store) == Expired(removed=2, bytes=40)
    assert members(store) == {"s": (12, 12, "SEALED_BY_POLICY"), "s.36": (40, 40, "OPEN")}


def test_a_lost_extent_goes_with_what_is_behind_it(store: TestStore, clock: ManualClock) -> None:
    set_policy(store, object_bytes="4", retention_age=str(DAY_S))
    store.append("s", b"abcdefgh", seal=True)
    store.offload()
    store.evict()
    with store.metadata.write() as txn:
        key = tables.chunk(store.segment("s").id, Tier.COLD, 0)
        chunk = txn.get(CHUNKS, key)
        assert chunk is not None
        txn.put(CHUNKS, key, replace(chunk, object_id=ObjectId(0), state=ChunkState.LOST))
        segment = store.segment("s")
        cold = replace(segment.cold, bytes=4)
        txn.put(SEGMENTS, tables.u64(segment.id), replace(segment, cold=cold))
    assert expire(store) == Expired()
    clock.advance(DAY_S)
    assert expire(store) == Expired(removed=1, bytes=8)


def test_a_clock_that_jumps_a_year_deletes_nothing(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("not trusted")
    store.append("s", b"abcd", seal=True)
    store.append("gone", b"abcd", seal=True)
    store.offload()
    work = store.cold_work()
    store.engine.delete("gone", recursive=False, cold_due_ms=clock.now_ms() + HOUR_S * 1000)
    work.publish()
    clock.jump(365 * DAY_S)
    assert work.end_lifetimes() == Expired()
    work.collect()
    assert len(list(store.cold.list("segments/"))) == 2
    assert waiting(store, Tier.COLD) == 1
    clock.jump(-365 * DAY_S)
    clock.advance(DAY_S)
    assert work.end_lifetimes() == Expired(removed=1, bytes=4)
    work.collect()
    assert waiting(store, Tier.COLD) == 1  # the other one's grace period begins now


def waiting(store: TestStore, tier: Tier) -> int:
    with store.metadata.read() as txn:
        return sum(row.tier is tier for _, row in txn.scan(GARBAGE))


def test_a_server_that_shows_another_time_stops_deletions_and_one_that_agrees_allows_them(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("ahead of the cold tier's server")
    store.append("s", b"abcd", seal=True)
    store.offload()
    store.server_time_ms = clock.now_ms()
    clock.jump(365 * DAY_S)  # while nobody held the store
    work = store.cold_work()
    assert work.end_lifetimes() == Expired()
    clock.advance(HOUR_S)
    store.server_time_ms = clock.now_ms()  # it was the server's clock that was wrong
    assert work.end_lifetimes() == Expired(removed=1, bytes=4)


def test_policies_are_looked_at_only_where_one_is_set(store: TestStore) -> None:
    store.append("a/s", b"x")
    store.append("b/s", b"x")
    set_policy(store)
    with store.metadata.write() as txn:
        policies.change(txn, "a", put_settings={"seal_age": "5"})
        policies.change(txn, "b", put_settings={"seal_age": "off"})
        policies.change(txn, "b/s", put_settings={"retention_bytes": "5"})
    with store.metadata.read() as txn:
        found = retention_policy.governed(txn)
        wanted = {directories.segment_by_name(txn, name).id for name in ("a/s", "b/s")}
    assert set(found) == wanted


def test_status_tells_when_the_next_bytes_go(store: TestStore, clock: ManualClock) -> None:
    assert expiry_shown(store) == 0
    store.append("s", b"abcd", seal=True)
    written_ms = clock.now_ms()
    store.offload()
    clock.advance(HOUR_S)
    store.append("later", b"abcd", seal=True)
    store.offload()
    expire(store)
    assert expiry_shown(store) == written_ms + DAY_S * 1000
    clock.advance(DAY_S - HOUR_S)
    expire(store)
    assert expiry_shown(store) == written_ms + (HOUR_S + DAY_S) * 1000
    clock.advance(HOUR_S)
    expire(store)
    assert expiry_shown(store) == 0


def expiry_shown(store: TestStore) -> int:
    return store_status(store.metadata, store.files, store.paths.holder, store.path).next_expiry_ms


def overdue(store: TestStore) -> tuple[int, str]:
    status = store_status(store.metadata, store.files, store.paths.holder, store.path)
    return status.overdue_bytes, status.overdue_reason


def test_status_counts_what_is_past_its_retention_and_waits_and_names_the_policy(
    store: TestStore, clock: ManualClock
) -> None:
    store.append("a/s", b"abcdefgh", b"ij")
    store.append("t", b"abcd", seal=True)
    expire(store)
    assert overdue(store) == (0, "")
    clock.advance(DAY_S - 1)
    expire(store)
    assert overdue(store) == (0, "")
    clock.advance(1)
    assert expire(store) == Expired()
    waits = "retention_needs_offload is yes (built-in) and they are not offloaded yet"
    assert overdue(store) == (12, f"a/s: {waits}"), "the active chunk's end is not known"
    store.offload("a")
    expire(store)
    assert overdue(store) == (4, f"t: {waits}")
    set_policy(store, retention_age=str(DAY_S), offload_after="off", offload_above_bytes="100")
    expire(store)
    assert overdue(store) == (4, "t: offload_above_bytes is 100 (directory /)")
    with store.metadata.write() as txn:  # as settings of a host may leave it
        policies.put(txn, store.segment("t").id, {"offload_above_bytes": "off"})
    expire(store)
    assert overdue(store) == (4, "t: offload_after is off (directory /)")
    set_policy(store, retention_age=str(DAY_S), retention_needs_offload="no")
    assert expire(store) == Expired(removed=1, bytes=4)
    assert overdue(store) == (0, "")


def test_a_stream_of_many_runs_that_wait_is_counted_up_to_a_limit(
    store: TestStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "_RUNS_COUNTED", 3)
    store.append("s", bytes(40), seal=True)
    clock.advance(DAY_S)
    assert expire(store) == Expired()
    assert overdue(store)[0] == 12
