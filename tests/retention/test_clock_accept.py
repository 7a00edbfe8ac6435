"""A clock that ran ahead and was set back: what goes by no clock, and how an operator accepts the present time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.stores import TestStore, assert_layout
from tierfs.clock import ManualClock, SystemClock
from tierfs.config import BackgroundSettings
from tierfs.errors import Unavailable
from tierfs.holder.failures import Failures
from tierfs.holder.work import ColdWork
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import GARBAGE
from tierfs.retention import clocks as clock_accept
from tierfs.retention.clocks import ClockDisagrees
from tierfs.retention.retention import Expired
from tierfs.types import Tier

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
    with pytest.raises(ClockDisagrees, match=r"behind the newest time.*if it is right now: tierfs gc --accept-clock"):
        work.tools.clocks.require()
    clock.advance(30 * DAY_S)
    assert (work.collect().deleted, work.end_lifetimes(), waiting(store)) == (0, Expired(), 1)
    done = clock_accept.accept(store.metadata, grace_s=HOUR_S)
    assert (done.segments, done.objects > 0, done.deletions) == (1, True, 2)
    work.tools.clocks.require()  # a holder that runs notices
    settled(store, clock, work)
    assert clock_accept.accept(store.metadata, grace_s=HOUR_S).objects == 0


def settled(store: TestStore, clock: ManualClock, work: ColdWork) -> None:
    clock.advance(6 * HOUR_S + 1)
    assert work.collect().deleted == 2  # the file and the object
    assert waiting(store) == 0
    clock.advance(DAY_S)
    assert work.end_lifetimes() == Expired(removed=1, bytes=8)


def test_a_holder_whose_clock_was_set_back_goes_on_once_it_is_accepted(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("not trusted")
    clock.jump(YEAR_S)
    work = store.cold_work()
    clock.jump(-YEAR_S)
    assert "behind the time since this machine's boot" in (work.tools.clocks.reason() or "")
    clock_accept.accept(store.metadata, grace_s=HOUR_S)
    assert work.tools.clocks.reason() is None


def test_a_server_is_not_overruled(store: TestStore, clock: ManualClock, expected_warnings: list[str]) -> None:
    expected_warnings.append("not trusted")
    store.server_time_ms = clock.now_ms() + YEAR_S * 1000
    clocks = store.cold_work().tools.clocks
    with pytest.raises(ClockDisagrees, match=r"is not taken for right: it is .* behind the cold tier's server"):
        clocks.require_server_agrees()
    clock_accept.accept(store.metadata, grace_s=HOUR_S)
    assert "behind the cold tier's server" in (clocks.reason() or "")


def test_work_that_failed_in_the_future_is_tried_now(
    store: TestStore, clock: ManualClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("publish failed")
    clock.jump(YEAR_S)
    failures = Failures(store.metadata, BackgroundSettings())
    failures.failed("publish", Unavailable("the server does not answer"))
    assert not failures.may_try("publish")
    clock.jump(-YEAR_S)
    assert failures.may_try("publish")


def test_the_command(tmp_path: Path) -> None:
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
