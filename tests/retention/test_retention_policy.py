"""Retention is a function: members of a stream and the time in, expiries out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierfs.policy import Policy
from tierfs.retention.policy import Expiry, Member, MemberRun, expired, next_expiry_ms
from tierfs.types import SegmentId

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
def test_what_goes(members: list[Member], expected: list[Expiry]) -> None:
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


def test_runs_are_read_no_further_than_they_expire() -> None:
    def runs():  # type: ignore[no-untyped-def]
        yield MemberRun(4, NOW_MS - OLD)
        yield MemberRun(8, NOW_MS)
        raise AssertionError("read on")

    endless = Member(SegmentId(1), AGE, 0, 10**12, runs(), sealed=True)
    assert list(expired([endless], NOW_MS)) == [Expiry(SegmentId(1), 4, 4)]


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
