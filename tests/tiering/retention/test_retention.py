"""Retention on a real store: heads go, streams lose their oldest members, and nothing that only this disk has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.manual_clock import ManualClock
from tests.engine.segments.test_streams import members
from tests.stores import TestStore, assert_layout
from tierfs.base.bytes.joins import MAX_JOINS
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.options.policy import Policy
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, ChunkState, ObjectId, SegmentId, Tier
from tierfs.engine.metadata import chains, directories, policies, tables
from tierfs.engine.metadata.tables import CHUNKS, GARBAGE, OBJECTS, SEGMENTS
from tierfs.tiering.garbage import lifetimes
from tierfs.tiering.garbage import retention as retention_module
from tierfs.tiering.garbage.lifetimes import Expiry, Member, MemberRun, expired, next_expiry_ms
from tierfs.tiering.garbage.retention import Expired, Retention
from tierfs.upkeep.holder.status import store_status

DAY_S = 86_400

HOUR_S = 3600

BASE = {"chunk_bytes": "4", "object_bytes": "8"}

POLICY = BASE | {"retention_age": str(DAY_S)}


def expire(store: TestStore) -> Expired:
    attempts = Attempts()
    done = Retention(store.metadata, store.engine, grace_s=HOUR_S).expire(attempts)
    attempts.end()
    return done


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


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("sources", [1, 2, MAX_JOINS, MAX_JOINS + 1])
@pytest.mark.parametrize("grows", [False, True])
def test_bytes_before_older_ones_of_a_concat_are_as_young_as_they_were(
    store: TestStore, clock: ManualClock, cold: bool, sources: int, grows: bool
) -> None:
    for number in range(sources):
        store.append(f"old-{number}", b"abcdefgh", seal=True)
    clock.advance(DAY_S - HOUR_S)
    store.append("s", b"y")
    store.engine.seal("s")
    store.engine.unseal("s")
    for number in range(sources):
        store.engine.concat("s", f"old-{number}")
    set_policy(store, retention_age=str(DAY_S), retention_needs_offload="yes" if cold else "no")
    for _ in range(23 if grows else 1):  # what is appended behind it keeps nothing before it
        if grows:
            store.append("s", b"new")
        if cold:
            store.offload()
        clock.advance(HOUR_S if grows else 23 * HOUR_S)
    clock.advance(HOUR_S - 1)
    assert expire(store) == Expired()
    clock.advance(1)
    assert expire(store).bytes == 1 + 8 * sources + 3 * (grows and cold)  # an object of its own, of the same hour


def test_retention_waits_for_offload_and_for_the_journal_unless_told_otherwise(
    store: TestStore, clock: ManualClock
) -> None:
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


def test_policies_are_looked_at_only_where_one_is_set(store: TestStore) -> None:
    store.append("a/s", b"x")
    store.append("b/s", b"x")
    set_policy(store)
    with store.metadata.write() as txn:
        policies.change(txn, "a", put_settings={"seal_age": "5"})
        policies.change(txn, "b", put_settings={"seal_age": "off"})
        policies.change(txn, "b/s", put_settings={"retention_bytes": "5"})
    with store.metadata.read() as txn:
        found = lifetimes.governed(txn)
        wanted = {directories.segment_by_name(txn, name).id for name in ("a/s", "b/s")}
    assert set(found) == wanted


def overdue(store: TestStore) -> tuple[int, str]:
    status = store_status(store.metadata, store.files, store.paths.holder, store.path, allowed="")
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


NOW_MS = 1_700_000_000_000

DAY_MS = 86_400_000

AGE = Policy(retention_age_s=86_400)

SIZE = Policy(retention_bytes=10)

BOTH = Policy(retention_age_s=86_400, retention_bytes=10)


def member(number: int, start: int, *runs: tuple[int, int], policy: Policy = AGE, **fields: object) -> Member:
    """A sealed segment; each run is its end and its age in ms."""
    length = fields.pop("length", runs[-1][0] if runs else start)
    held = tuple(MemberRun(end, NOW_MS - age_ms) for end, age_ms in runs)
    fields = {"sealed": True, "ended_ms": NOW_MS} | fields
    return Member(SegmentId(number), policy, start, length, held, **fields)  # type: ignore[arg-type]


OLD, YOUNG = DAY_MS, DAY_MS - 1

CASES = {
    "nothing set": ([member(1, 0, (4, 10 * OLD), policy=Policy())], []),
    "age, to the millisecond": ([member(1, 0, (4, OLD), (8, YOUNG))], [Expiry(SegmentId(1), 4, 4)]),
    "old behind young stays": ([member(1, 0, (4, YOUNG), (8, OLD))], []),
    "all of a sealed one": ([member(1, 0, (4, OLD), (8, OLD))], [Expiry(SegmentId(1), 8, 8, True)]),
    "an open one is only cut": ([member(1, 0, (4, OLD), (8, OLD), sealed=False)], [Expiry(SegmentId(1), 8, 8)]),
    "what may not go yet holds back": ([member(1, 0, (4, OLD), length=8)], [Expiry(SegmentId(1), 4, 4)]),
    "what a cut left": ([member(1, 6, (8, OLD), length=12)], [Expiry(SegmentId(1), 8, 2)]),
    "size keeps at least so much": (
        [member(1, 0, (4, 0), (8, 0), (12, 0), (16, 0), policy=SIZE, sealed=False)],
        [Expiry(SegmentId(1), 4, 4)],
    ),
    "size counts all members": (
        [member(1, 0, (4, 0), policy=SIZE), member(2, 4, (9, 0), policy=SIZE), member(3, 9, (19, 0), policy=SIZE)],
        [Expiry(SegmentId(1), 4, 4, True), Expiry(SegmentId(2), 9, 5, True)],
    ),
    "either is enough": (
        [member(1, 0, (4, 0), (8, OLD), (16, 0), policy=BOTH)],
        [Expiry(SegmentId(1), 8, 8)],
    ),
    "either is enough, in order": (
        [member(1, 0, (4, OLD), (8, 0), (18, 0), policy=BOTH)],
        [Expiry(SegmentId(1), 8, 8)],
    ),
    "the member with the stream's name stays, empty": (
        [member(1, 0, (4, OLD), names_stream=True), member(2, 4, (8, OLD)), member(3, 8, (12, YOUNG), sealed=False)],
        [Expiry(SegmentId(1), 4, 4), Expiry(SegmentId(2), 8, 4, True)],
    ),
    "empty already": ([member(1, 4, names_stream=True, ended_ms=0), member(2, 4, (8, YOUNG))], []),
    "younger members wait for older ones": (
        [member(1, 0, (4, OLD), length=8), member(2, 8, (12, OLD))],
        [Expiry(SegmentId(1), 4, 4)],
    ),
    "a member that is kept keeps those behind it": (
        [member(1, 0, (4, OLD), policy=Policy()), member(2, 4, (8, OLD))],
        [],
    ),
    "empty and sealed long ago": ([member(1, 0, ended_ms=NOW_MS - OLD)], [Expiry(SegmentId(1), 0, 0, True)]),
    "empty and sealed just now": ([member(1, 0, ended_ms=NOW_MS - YOUNG)], []),
    "empty and open": ([member(1, 0, ended_ms=0, sealed=False)], []),
    "an age in the future": ([member(1, 0, (4, -5 * DAY_MS))], []),
}


@pytest.mark.parametrize(("members", "expected"), CASES.values(), ids=CASES.keys())
def test_members_expire_as_in_the_table(members: list[Member], expected: list[Expiry]) -> None:
    assert list(expired(members, NOW_MS)) == expected


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3 * DAY_MS)), max_size=4), max_size=4),
    st.sampled_from([AGE, SIZE, BOTH]),
)
def test_nothing_goes_too_early_and_what_stays_is_one_range(shape: list[list[tuple[int, int]]], policy: Policy) -> None:
    at, members, lengths = 0, [], []
    for number, runs in enumerate(shape, 1):
        start, ends = at, []
        for size, age_ms in runs:
            at += size
            ends.append((at, age_ms))
            lengths.append((at, age_ms))
        members.append(member(number, start, *ends, policy=policy))
    gone = list(expired(members, NOW_MS))
    cut = max((one.before_offset for one in gone), default=0)
    assert sum(one.bytes for one in gone) == cut
    for end, age_ms in lengths:
        if end <= cut:
            too_old = policy.retention_age_s is not None and age_ms >= DAY_MS
            surplus = policy.retention_bytes is not None and at - end >= policy.retention_bytes
            assert too_old or surplus


@pytest.mark.parametrize(
    ("members", "in_ms"),
    [
        ([member(1, 0, (4, YOUNG), (8, 5))], 1),
        ([member(1, 4, ended_ms=NOW_MS - 5), member(2, 4, (8, 3))], DAY_MS - 5),
        ([member(1, 4, names_stream=True), member(2, 4, (8, 3))], DAY_MS - 3),
        ([member(1, 0, length=8)], None),
        ([member(1, 0, (4, 1), policy=SIZE)], None),
        ([], None),
    ],
    ids=["the first run", "an empty member", "the stream's name stays", "not cold yet", "by size alone", "nothing"],
)
def test_the_next_expiry_is_that_of_the_first_bytes_that_may_go(members: list[Member], in_ms: int | None) -> None:
    assert next_expiry_ms(members) == (None if in_ms is None else NOW_MS + in_ms)
