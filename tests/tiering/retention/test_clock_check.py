"""Trust in the wall clock: a function of what is known about the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.system.clock import LONGEST_REST_S, ClockReading, SystemClock
from tierfs.base.words.types import Tier
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE
from tierfs.tiering.garbage import clock_acceptance
from tierfs.tiering.garbage.clocks import ClockCheck, ClockDisagrees, ClockView, disagreement
from tierfs.tiering.garbage.retention import Expired
from tierfs.upkeep.holder.work import ColdWork

START_MS = 1_700_000_000_000

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


BOOTED_S = 1000


def view(
    *,
    ran_s: float = HOUR_S,
    wall_off_s: float = 0,
    rested_s: float = 0,
    server_off_s: float | None = None,
    seen: ClockReading | None = None,
) -> ClockView:
    """A process that began `ran_s` ago; `wall_off_s`: what its wall clock jumped since."""
    began = reading()
    now = reading(after_s=ran_s, wall_off_s=wall_off_s)
    server = None if server_off_s is None else replace(now, wall_ms=now.wall_ms + round(server_off_s * 1000))
    last_wall_ms = START_MS - round(rested_s * 1000)
    return ClockView(now, began, last_wall_ms, seen or ClockReading(wall_ms=last_wall_ms), server)


def reading(*, after_s: float = 0, wall_off_s: float = 0, boot: str = "this") -> ClockReading:
    """What the clocks showed so long after the process began, or before."""
    return ClockReading(
        boot_id=boot,
        boot_ms=round((BOOTED_S + after_s) * 1000),
        wall_ms=START_MS + round((after_s + wall_off_s) * 1000),
    )


BEFORE = reading(after_s=-BOOTED_S)
"""Of another process, which began with the machine."""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (view(), None),
        (view(wall_off_s=5 * MINUTE_S), None),
        (view(wall_off_s=5 * MINUTE_S + 0.001), "300 s later than the time since this machine's boot"),
        (view(wall_off_s=-5 * MINUTE_S - 0.001), "300 s earlier than the time since this machine's boot"),
        (view(wall_off_s=6 * MINUTE_S), "360 s later than the time since this machine's boot"),
        (view(wall_off_s=-HOUR_S), "3,600 s earlier than the time since this machine's boot"),
        (view(wall_off_s=365 * DAY_S), "later than the time since this machine's boot"),
        (view(wall_off_s=HOUR_S, server_off_s=0), None),
        (view(wall_off_s=0, server_off_s=-HOUR_S), "3,600 s later than the cold tier's server"),
        (view(wall_off_s=0, server_off_s=HOUR_S), "3,600 s earlier than the cold tier's server"),
        (view(ran_s=0, rested_s=-HOUR_S), "3,600 s earlier than the newest time in the store's metadata"),
        (view(ran_s=2 * HOUR_S, rested_s=-HOUR_S), None),
        (view(rested_s=LONGEST_REST_S), None),
        (view(rested_s=LONGEST_REST_S + 0.001), "4 hours old, and no server confirms this"),
        (view(rested_s=365 * DAY_S), "365 days old, and no server confirms this"),
        (view(rested_s=365 * DAY_S, server_off_s=0), None),
        (view(ran_s=DAY_S, rested_s=365 * DAY_S), None),
        (view(ran_s=DAY_S - 0.001, rested_s=365 * DAY_S), "no server confirms this"),
        (view(rested_s=365 * DAY_S, seen=BEFORE), None),
        (view(rested_s=-10 * DAY_S, seen=BEFORE), "earlier than the newest time in the store's metadata"),
        (
            view(seen=replace(BEFORE, wall_ms=BEFORE.wall_ms - 301_000)),
            "301 s later than the time since this machine's",
        ),
        (view(seen=replace(BEFORE, wall_ms=BEFORE.wall_ms - 300_000)), None),
        (
            view(seen=replace(BEFORE, wall_ms=BEFORE.wall_ms + 301_000)),
            "301 s earlier than the time since this machine's",
        ),
        (view(seen=replace(BEFORE, wall_ms=BEFORE.wall_ms - 10**9), server_off_s=0), None),
        (view(seen=reading(after_s=-HOUR_S, boot="before")), None),
        (view(seen=reading(after_s=-5 * HOUR_S, boot="before")), "5 hours old"),
        (view(seen=reading(after_s=-10 * DAY_S, boot="before")), "10 days old"),
        # A container shows one id for ever: its machine was started again.
        (view(seen=reading(after_s=2 * HOUR_S, wall_off_s=-5 * DAY_S)), "5 days old"),
        (view(seen=replace(reading(after_s=-5 * HOUR_S), boot_id="")), "5 hours old"),
    ],
)
def test_what_is_trusted(found: ClockView, said: str | None) -> None:
    reason = disagreement(found)
    assert (reason is None) == (said is None)
    assert said is None or (reason is not None and said in reason), reason


def test_the_answer_of_a_server_does_not_count_for_ever(tmp_path: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("not trusted")
    clock = ManualClock()
    with open_test_store(tmp_path / "store", clock=clock) as store:
        clocks = ClockCheck(store.metadata, clock, clock.now_ms)
        clock.jump(HOUR_S)
        clocks.ask()
        clock.advance(20 * MINUTE_S)
        assert clocks.reason() is None
        clock.advance(0.001)
        assert clocks.reason() is not None


def test_the_server_is_asked_by_the_connection_there_is(
    moto_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, bucket = moto_bucket
    place = Place.parsed(f"s3://{bucket}/p", Server(endpoint.endpoint_url))
    init_store(tmp_path / "store", place)
    original = Place.open
    made: list[ChunkStorage] = []

    def connected(*arguments: Any, **named: Any) -> ChunkStorage:
        made.append(original(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(Place, "open", connected)
    with app.open_store(tmp_path / "store") as store:
        clocks = store.cold_work().clocks
        clocks.require()
        assert clocks._server is not None
    assert len(made) == 1


HOUR_S = 3600

DAY_S = 24 * HOUR_S

YEAR_S = 365 * DAY_S

POLICY = {"chunk_bytes": "4", "object_bytes": "8", "retention_age": str(DAY_S), "deletion_lag": str(HOUR_S)}


def write_in_the_future(store: TestStore, clock: ManualClock) -> None:
    """Everything there is was made while the clock was a year ahead."""
    clock.jump(YEAR_S)
    store.append("s", b"abcdefgh", seal=True)
    store.append("gone", b"abcd", seal=True)
    store.offload()
    store.engine.delete("gone", recursive=False, cold_due_ms=clock.now_ms() + HOUR_S * 1000)
    store.cold_work().publish()
    clock.jump(-YEAR_S)


def waiting(store: TestStore) -> int:
    with store.metadata.read() as txn:
        return sum(row.tier is Tier.COLD for _, row in txn.scan(GARBAGE))


@pytest.mark.parametrize("force", [True, False])
def test_evict_by_command_goes_by_no_clock(
    store: TestStore, clock: ManualClock, expected_warnings: list[str], force: bool
) -> None:
    expected_warnings.append("not trusted")
    write_in_the_future(store, clock)
    assert store.cold_work().evict("", force=True, dry_run=True, report=lambda _: None).bytes == 8
    assert store.evict(force=force).bytes == 8
    assert_layout(store, "s", local=[], cold=[8])


def test_timed_deletions_go_on_once_the_clock_is_accepted(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("not trusted.*: tierfs gc --accept-clock")
    write_in_the_future(store, clock)
    work = store.cold_work()
    with pytest.raises(
        ClockDisagrees, match=r"earlier than the newest time.*if it is right now: tierfs gc --accept-clock"
    ):
        work.clocks.require()
    clock.advance(30 * DAY_S)
    assert (work.collect().deleted, work.end_lifetimes(), waiting(store)) == (0, Expired(), 1)
    done = clock_acceptance.accept(store.metadata, grace_s=HOUR_S)
    assert (done.segments, done.objects > 0, done.deletions) == (1, True, 2)
    work.clocks.require()  # a holder that runs notices
    settled(store, clock, work)
    assert clock_acceptance.accept(store.metadata, grace_s=HOUR_S).objects == 0


def settled(store: TestStore, clock: ManualClock, work: ColdWork) -> None:
    clock.advance(6 * HOUR_S + 1)
    assert work.collect().deleted == 2  # the file and the object
    assert waiting(store) == 0
    clock.advance(DAY_S)
    assert work.end_lifetimes() == Expired(removed=1, bytes=8)


def test_a_server_is_not_overruled(store: TestStore, clock: ManualClock, expected_warnings: list[str]) -> None:
    expected_warnings.append("not trusted")
    store.server_time_ms = clock.now_ms() + YEAR_S * 1000
    clocks = store.cold_work().clocks
    with pytest.raises(ClockDisagrees, match=r"is not trusted: it is .* earlier than the cold tier's server"):
        clocks.require_server_agrees()
    clock_acceptance.accept(store.metadata, grace_s=HOUR_S)
    assert "earlier than the cold tier's server" in (clocks.reason() or "")


def test_a_command_accepts_the_clock_once_that_is_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    tierfs("append", "s", store=path, stdin=b"bytes")
    ahead = ManualClock(SystemClock().now_ms() + DAY_S * 1000)
    metadata = MetadataStore(path / "metadata", ahead)
    with metadata.write() as txn:
        txn.update_store(next_change=txn.store.next_change + 1)
    metadata.close()
    assert "if it is right now: tierfs gc --accept-clock" in tierfs("status", store=path).out
    refused = tierfs("gc", "--accept-clock", store=path, check=False)
    assert (refused.code, "to confirm: tierfs gc --accept-clock --yes" in refused.err) == (2, True)
    assert "is accepted as the right time" in tierfs("gc", "--accept-clock", "--yes", store=path).out
    assert "clock" not in tierfs("status", store=path).out
