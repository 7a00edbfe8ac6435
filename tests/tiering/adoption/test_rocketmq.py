"""RocketMQ: names in all their layouts, and which objects make which bytes of a queue's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import tierfs
from tests.tiering.adoption.foreign import cat, directory_state, states, write_files
from tests.tiering.adoption.planned import Picture, listed, picture, refused
from tierfs.tiering.adoption.plan import AdoptionPlan
from tierfs.tiering.adoption.rocketmq import Named, Queue, java_hash, md5_prefix, parse, plan_rocketmq

C, Q = "DefaultCluster", "broker-a/orders/3"
PLUGIN = f"{java_hash(C)}/{C}/{Q}/COMMIT_LOG"
POSIX = f"{md5_prefix(C)}_{C}/{Q}/COMMIT_LOG"
BEYOND_32_BITS = 5 << 30


def posix(base: int) -> str:
    return f"{POSIX}/{md5_prefix(str(base))}{base:020d}"


def planned(lengths: dict[str, int]) -> AdoptionPlan:
    plan = AdoptionPlan()
    plan_rocketmq(plan, listed(lengths), "in")
    return plan


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_hashes_are_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize(
    ("base", "name"),
    [
        (0, "cfcd208400000000000000000000"),
        (4294937144, "b10da56800000000004294937144"),
        (1073741775, "1f329fef00000000001073741775"),
        (2147483550, "dcb86ff200000000002147483550"),
    ],
)
def test_names_that_rocketmq_gave_its_files(base: int, name: str) -> None:
    """The first two are those of its own tests, the others of a broker under load."""
    assert posix(base).rpartition("/")[2] == name
    assert (md5_prefix("DefaultCluster"), md5_prefix("TieredStorageDailyTest")) == ("212d6b50", "161c08ff")


@pytest.mark.parametrize(
    ("name", "base", "position"),
    [
        (f"{C}/{Q}/COMMIT_LOG/seg-0/chunk-1024", 0, 1024),
        (f"{C}/{Q}/COMMIT_LOG/seg-1073741824/segment", 1 << 30, None),
        (f"{C}/{Q}/COMMIT_LOG-0/chunk-4096", 0, 4096),
        (f"{C}/{Q}/COMMIT_LOG-{BEYOND_32_BITS}-seg", BEYOND_32_BITS, None),
        (f"{PLUGIN}/seg-0/chunk/chunk-5120", 0, 5120),
        (f"{PLUGIN}/seg-{BEYOND_32_BITS}/segment/segment-0", BEYOND_32_BITS, None),
        (posix(0), 0, None),
        (posix(BEYOND_32_BITS), BEYOND_32_BITS, None),
    ],
)
def test_names_of_every_layout_are_parsed(name: str, base: int, position: int | None) -> None:
    found = parse(name)
    assert found is not None
    assert (found.queue.name, found.base, found.position, found.doubt) == (f"{Q}/COMMIT_LOG", base, position, "")


@pytest.mark.parametrize(
    "name",
    ["x", "a/b/seg-0", "a/b/seg-0/chunk-", "a/b/seg-0/chunk--1", "a/b/seg-x/chunk-0", f"a/b/seg-{2**63}/segment",
     f"a/b/seg-0/chunk-{2**63}", "a/b/seg-0/chunk-٣", "a/COMMIT_LOG/cfcd20840000", "tieredStoreMetadata.json"],
)  # fmt: skip
def test_what_is_no_name_of_rocketmqs(name: str) -> None:
    assert parse(name) is None


@given(
    st.from_regex(r"[a-zA-Z][\w.-]{0,8}", fullmatch=True),
    st.lists(st.from_regex(r"[a-zA-Z][\w.]{0,8}", fullmatch=True), min_size=3, max_size=3),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
)
def test_names_come_back(cluster: str, queue: list[str], base: int, position: int) -> None:
    path = "/".join(queue)
    above = f"{java_hash(cluster)}/{cluster}"
    name = f"{above}/{path}/INDEX/seg-{base}/chunk/chunk-{position}"
    assert parse(name) == Named(Queue(above, path, "INDEX"), base, position)


def test_a_wrong_hash_is_a_warning() -> None:
    plan = planned({f"12345/{C}/{Q}/INDEX/seg-0/chunk/chunk-0": 4, f"00000000_{C}/{Q}/INDEX/{'0' * 28}": 4})
    assert len(plan.warnings) == 2
    assert all("is not the hash of" in warning for warning in plan.warnings)


def test_chunks_and_sealed_segments_join_at_their_base_offsets() -> None:
    plan = planned(
        {
            f"{PLUGIN}/seg-100/segment/segment-0": 60,
            f"{PLUGIN}/seg-160/chunk/chunk-0": 10,
            f"{PLUGIN}/seg-160/chunk/chunk-9": 0,
            f"{PLUGIN}/seg-160/chunk/chunk-10": 5,
            f"{PLUGIN.replace('COMMIT_LOG', 'CONSUME_QUEUE')}/seg-0/chunk/chunk-0": 20,
        }
    )
    expected: Picture = {
        f"in/{Q}/COMMIT_LOG": (
            100,
            [
                (f"{PLUGIN}/seg-100/segment/segment-0", 60),
                (f"{PLUGIN}/seg-160/chunk/chunk-0", 10),
                (f"{PLUGIN}/seg-160/chunk/chunk-10", 5),
            ],
        ),
        f"in/{Q}/CONSUME_QUEUE": (0, [(f"{PLUGIN.replace('COMMIT_LOG', 'CONSUME_QUEUE')}/seg-0/chunk/chunk-0", 20)]),
    }
    assert picture(plan) == expected


COMMIT_LOG, INDEX = f"in/{Q}/COMMIT_LOG", f"in/{Q}/INDEX"
BASE = f"{C}/{Q}/COMMIT_LOG/seg-0"
OTHER = posix(0).replace("orders", "other")

QUEUES: dict[str, tuple[dict[str, int], Picture, dict[str, str], dict[str, str]]] = {
    "the sealed object wins over chunks left behind": (
        {f"{BASE}/segment": 13, f"{BASE}/chunk-0": 10, f"{BASE}/chunk-10": 3},
        {COMMIT_LOG: (0, [(f"{BASE}/segment", 13)])},
        {f"{BASE}/chunk-0": "that", f"{BASE}/chunk-10": "that"},
        {},
    ),
    "two objects for one byte refuse the whole queue and no other": (
        {posix(0): 11, posix(10): 10, OTHER: 1, "readme": 3},
        {"in/broker-a/other/3/COMMIT_LOG": (0, [(OTHER, 1)])},
        {"readme": ""},
        {COMMIT_LOG: "InvalidRequest"},
    ),
    "two clusters of the same queues are told apart by the user": (
        {f"one/{Q}/INDEX/seg-0/segment": 1, f"two/{Q}/INDEX/seg-0/segment": 1},
        {INDEX: (0, [(f"one/{Q}/INDEX/seg-0/segment", 1)])},
        {},
        {INDEX: "InvalidRequest"},
    ),
    "a place may be a part of the tree": (
        {"COMMIT_LOG/seg-0/chunk/chunk-0": 4, "INDEX-0/chunk-0": 2},
        {
            "in/COMMIT_LOG": (0, [("COMMIT_LOG/seg-0/chunk/chunk-0", 4)]),
            "in/INDEX": (0, [("INDEX-0/chunk-0", 2)]),
        },
        {},
        {},
    ),
}


@pytest.mark.parametrize(("lengths", "segments", "left", "wrong"), QUEUES.values(), ids=QUEUES)
def test_which_objects_make_a_queue(
    lengths: dict[str, int], segments: Picture, left: dict[str, str], wrong: dict[str, str]
) -> None:
    plan = planned(lengths)
    assert (picture(plan), refused(plan)) == (segments, wrong)
    assert {one.what for one in plan.left_out} >= left.keys()
    assert all(left[one.what] in one.why for one in plan.left_out if one.what in left)
    assert not plan.warnings


@pytest.mark.parametrize(
    ("sealed", "chunks", "taken", "hole"),
    [
        (12, {0: 10, 10: 3}, [("chunk-0", 10), ("chunk-10", 3)], False),
        (1, {0: 10}, [("chunk-0", 10)], False),
        (0, {0: 10}, [("chunk-0", 10)], False),
        (12, {10: 3}, [("segment", 10), ("chunk-10", 3)], False),
        (12, {4: 3, 10: 3, 13: 1}, [("segment", 10), ("chunk-10", 3), ("chunk-13", 1)], False),
        (10, {10: 3}, [("segment", 10), ("chunk-10", 3)], False),
        (9, {10: 3}, [("segment", 9), ("chunk-10", 3)], True),
        (10, {4: 8, 20: 2}, [("segment", 4), ("chunk-4", 8), ("chunk-20", 2)], True),
    ],
)
def test_chunks_that_reach_farther_than_their_sealed_segment_count(
    sealed: int, chunks: dict[int, int], taken: list[tuple[str, int]], hole: bool
) -> None:
    lengths = {f"{BASE}/chunk-{position}": length for position, length in chunks.items()}
    plan = planned({f"{BASE}/segment": sealed, **lengths})
    found = [(name.rpartition("/")[2], length) for _, extents in picture(plan).values() for name, length in extents]
    assert (found, len(plan.warnings)) == (taken, 1 + hole)
    assert f"{BASE}/segment: it ends before its chunks" in plan.warnings[0]
    everything = {name.rpartition("/")[2] for name in lengths} | {"segment"}
    assert {name for name, _ in found} | {one.what.rpartition("/")[2] for one in plan.left_out} == everything


@pytest.mark.parametrize("hole", [1, BEYOND_32_BITS - 20])
def test_behind_a_hole_begins_another_segment(hole: int) -> None:
    behind = 20 + hole
    plan = planned({posix(0): 10, posix(10): 10, posix(behind): 7})
    assert picture(plan) == {
        COMMIT_LOG: (0, [(posix(0), 10), (posix(10), 10)]),
        f"{COMMIT_LOG}.{behind}": (behind, [(posix(behind), 7)]),
    }
    assert plan.warnings == [
        f"{Q}/COMMIT_LOG: bytes 20 to {behind} are missing; the following bytes become a separate segment"
    ]


def test_a_posix_tree_reads_as_one_file(store: Path, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    root = write_files(tmp_path / "theirs", {posix(0): data[:200_000], posix(200_000): data[200_000:]})
    before = directory_state(root)
    done = tierfs("-q", "adopt", "--as", "rocketmq", root, "--into", "mq", "--json", store=store)
    assert states(done) == {f"mq/{Q}/COMMIT_LOG": "adopted"}
    assert cat(store, f"mq/{Q}/COMMIT_LOG") == data
    assert directory_state(root) == before
