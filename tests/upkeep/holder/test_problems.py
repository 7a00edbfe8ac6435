"""The problems of a store: the kind, severity and remedy of each state that deserves one, worst first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.stores import TestStore
from tierfs.base.system.mounts import MountState
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.records import PolicyRecord
from tierfs.engine.metadata.tables import ENTRIES, POLICIES, u64
from tierfs.engine.segments.endangered import Endangered, UnreachablePlace
from tierfs.upkeep.holder.failures import CLOCKS, LOOK, OWNER, PUBLISH, QUOTA
from tierfs.upkeep.holder.lock import Holder
from tierfs.upkeep.holder.problem import Gravity, Problem, ProblemKind, worst, worst_first
from tierfs.upkeep.holder.problems import problems_of
from tierfs.upkeep.holder.standby_note import Phase, StandbyNote
from tierfs.upkeep.holder.status import BacklogStatus, GapStatus, StoreStatus, store_status
from tierfs.upkeep.holder.waits import longest_allowed_s

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
HOLDER = Holder(7, "host", "tierfs daemon", NOW_MS - HOUR_MS)
SAFE = Endangered(0, 0, 0)
NOTHING = BacklogStatus(0, 0, 0)
K = ProblemKind


@pytest.fixture
def healthy(store: TestStore) -> StoreStatus:
    status = store_status(store.metadata, store.files, store.path / "holder", store.path, allowed="")
    journal = replace(status.journal, unpublished=0, queued_ms=0)
    return replace(status, cold_url="s3://b", holder=HOLDER, journal=journal, standing=(), backlog=NOTHING)


def kinds(status: StoreStatus, floor_bytes: int = 0, **named: Any) -> list[ProblemKind]:
    return [problem.kind for problem in problems_of(status, floor_bytes=floor_bytes, now_ms=NOW_MS, **named)]


def failed(what: str, error_kind: str = "Unavailable", name: str = "") -> FailureRecord:
    return FailureRecord(what=what, name=name, error="no answer", error_kind=error_kind, attempts=1)


def journal(status: StoreStatus, **changes: Any) -> StoreStatus:
    return replace(status, journal=replace(status.journal, **changes))


def stands_by(status: StoreStatus, *, is_held: bool = True, **known: Any) -> StoreStatus:
    follows = journal(status, replica=True)
    return replace(follows, holder=HOLDER if is_held else None, standby=StandbyNote(after_s=60, **known))


def has_standby(status: StoreStatus, age_s: float | None) -> StoreStatus:
    return replace(status, standby=StandbyNote(phase=Phase.OWNER, after_s=60, other_host="b"), standby_age_s=age_s)


STATES: dict[str, tuple[Callable[[StoreStatus], StoreStatus], list[ProblemKind]]] = {
    "healthy": (lambda s: s, []),
    "lost": (lambda s: replace(s, endangered=replace(SAFE, lost_bytes=1)), [K.LOST]),
    "suspect": (lambda s: replace(s, endangered=replace(SAFE, suspect_cold_bytes=1)), [K.SUSPECT]),
    "away": (
        lambda s: replace(s, endangered=replace(SAFE, unreachable=(UnreachablePlace("file:/x", "empty", 1),))),
        [K.NOT_REACHABLE],
    ),
    "nobody works": (lambda s: replace(s, holder=None, backlog=BacklogStatus(1, 0, 0)), [K.NO_HOLDER]),
    "nobody publishes": (lambda s: journal(replace(s, holder=None), unpublished=1), [K.NO_HOLDER]),
    "nobody, and nothing to do": (lambda s: replace(s, holder=None), []),
    "nobody, and no policy moves them": (lambda s: replace(s, holder=None, backlog=BacklogStatus(0, 0, 0, 9)), []),
    "nobody, in a replica": (lambda s: journal(replace(s, holder=None), unpublished=1, replica=True), []),
    "late": (lambda s: replace(s, backlog=replace(NOTHING, late_s=3600)), [K.OFFLOAD_LATE]),
    "not late yet": (lambda s: replace(s, backlog=replace(NOTHING, late_s=3599)), []),
    "unpublished": (lambda s: journal(s, unpublished=2, queued_ms=NOW_MS - 600_000), [K.UNPUBLISHED]),
    "not long unpublished": (lambda s: journal(s, unpublished=2, queued_ms=NOW_MS - 599_999), []),
    "overdue": (lambda s: replace(s, overdue_bytes=1, overdue_reason="a: off"), [K.OVERDUE]),
    "garbage": (lambda s: replace(s, garbage_errors=("denied",)), [K.GARBAGE_KEPT]),
    "gap": (lambda s: replace(s, gaps=(GapStatus("a", 5, NOW_MS, "deleted"),)), [K.GAP]),
    "stuck": (lambda s: replace(s, troubles=(failed(PUBLISH), failed("evict 2"))), [K.STUCK]),
    "damaged": (
        lambda s: replace(s, troubles=(failed(PUBLISH), failed("offload 2 0", "DataLoss"))),
        [K.DAMAGED, K.STUCK],
    ),
    "unreadable": (lambda s: replace(s, troubles=(failed(f"{LOOK} 2"),)), [K.UNREADABLE_RECORDS]),
    "no answer": (lambda s: replace(s, troubles=(failed(OWNER),)), [K.OWNER_UNKNOWN]),
    "not ours": (lambda s: replace(s, troubles=(failed(OWNER, "WrongColdTier"),)), [K.WRONG_COLD_TIER]),
    "not ours, twice": (
        lambda s: replace(
            s, troubles=(failed(OWNER, "WrongColdTier"),), standing=(Problem(K.WRONG_COLD_TIER, "t", "r"),)
        ),
        [K.WRONG_COLD_TIER],
    ),
    "clocks": (lambda s: replace(s, troubles=(failed(CLOCKS),)), [K.CLOCK]),
    "quota, by its use": (lambda s: replace(s, troubles=(failed(QUOTA),)), []),
    "follows": (lambda s: stands_by(s, phase=Phase.FOLLOWS), []),
    "silent": (lambda s: stands_by(s, phase=Phase.SILENT), [K.OWNER_SILENT]),
    "blocked": (lambda s: stands_by(s, phase=Phase.BLOCKED, why="w"), [K.STANDBY_BLOCKED]),
    "paused": (lambda s: stands_by(s, phase=Phase.FOLLOWS, paused="w"), [K.STANDBY_BLOCKED]),
    "nobody stands by": (lambda s: stands_by(s, is_held=False, phase=Phase.FOLLOWS), [K.STANDBY_BLOCKED]),
    "shows life": (lambda s: has_standby(s, 59), []),
    "shows no life": (lambda s: has_standby(s, 60), [K.OWNER_SILENT]),
    "shows no life since the start": (lambda s: has_standby(s, None), [K.OWNER_SILENT]),
    "was replaced": (lambda s: journal(has_standby(s, 60), fenced_by_epoch=2), []),
    "standing": (lambda s: replace(s, standing=(Problem(K.FENCED, "t", "r"),)), [K.FENCED]),
}


@pytest.mark.parametrize(("change", "expected"), STATES.values(), ids=STATES.keys())
def test_each_state_has_its_problem(
    healthy: StoreStatus, change: Callable[[StoreStatus], StoreStatus], expected: list[ProblemKind]
) -> None:
    problems = problems_of(change(healthy), floor_bytes=0, now_ms=NOW_MS)
    assert [problem.kind for problem in problems] == expected
    assert all(problem.text and problem.remedy for problem in problems)


def test_appends_fail_below_the_floor(healthy: StoreStatus) -> None:
    assert kinds(replace(healthy, local_free_bytes=9), floor_bytes=10) == [K.DISK_FULL]
    assert kinds(replace(healthy, local_free_bytes=10), floor_bytes=10) == []


def test_mounts_and_waiting_reads_are_problems_of_the_store(healthy: StoreStatus) -> None:
    states = {"/a": MountState.ALIVE, "/c": MountState.COVERED, "/s": MountState.SILENT, "/d": MountState.DEAD}
    expected = [K.STALE_MOUNT, K.SILENT_MOUNT, K.READS_WAIT, K.COVERED_MOUNT]
    assert kinds(healthy, mounts=states, waiting=["2 reads at /a"]) == expected


def test_the_worst_is_first_and_notes_are_ok() -> None:
    problems = [Problem(kind, "t", "r") for kind in (K.SAME_DISK, K.STUCK, K.SUSPECT, K.LOST)]
    assert [problem.kind for problem in worst_first(problems)] == [K.LOST, K.SUSPECT, K.STUCK, K.SAME_DISK]
    levels = (Gravity.NOTE, Gravity.WARNING, Gravity.CRITICAL)
    assert [worst(problems[:length]) for length in (1, 2, 3)] == [*levels]
    assert [int(level) for level in levels] == [0, 1, 2]
    assert worst([]) is Gravity.NOTE


def test_a_failure_is_shown_by_the_name_of_its_segment(healthy: StoreStatus) -> None:
    rows = (failed("offload 2 0", name="logs/a"), failed("offload 3 0", name="logs/b"))
    (problem,) = problems_of(replace(healthy, troubles=rows), floor_bytes=0, now_ms=NOW_MS)
    assert problem.text == "logs/a: no answer (and 1 other)"


@pytest.mark.parametrize(
    ("settings", "allowed_s"),
    [
        ({}, 600),
        ({"offload_after": "3600"}, 4200),
        ({"chunk_age": "7200"}, 7200),
        ({"offload_after": "off"}, 600),
        ({"offload_above_bytes": "4096"}, None),
    ],
)
def test_bytes_are_late_after_the_longest_wait_of_any_policy(
    store: TestStore, settings: dict[str, str], allowed_s: int | None
) -> None:
    with store.metadata.write() as txn:
        txn.put(POLICIES, u64(77), PolicyRecord(target_id=77, settings=settings))
    with store.metadata.read() as txn:
        assert longest_allowed_s(txn) == allowed_s


def test_an_open_ledger_waits_without_a_time(store: TestStore) -> None:
    with store.metadata.write() as txn:
        txn.put_raw(ENTRIES.name, u64(9), b"")
    with store.metadata.read() as txn:
        assert longest_allowed_s(txn) is None


def test_a_brief_status_has_the_backlog_without_reasons(store: TestStore) -> None:
    store.append("a", b"x" * 9, seal=True)
    full, brief = (
        store_status(store.metadata, store.files, store.path / "holder", store.path, allowed="", brief=brief)
        for brief in (False, True)
    )
    assert (full.backlog.pending_bytes, brief.backlog.pending_bytes) == (9, 9)
    assert [len(status.backlog.reasons) for status in (full, brief)] == [1, 0]
    with store.metadata.write() as txn:
        off = PolicyRecord(target_id=ROOT_DIRECTORY, settings={"offload_after": "off"})
        txn.put(POLICIES, u64(ROOT_DIRECTORY), off)
    brief = store_status(store.metadata, store.files, store.path / "holder", store.path, allowed="", brief=True)
    assert (brief.backlog.pending_bytes, brief.backlog.kept_bytes) == (0, 9)
