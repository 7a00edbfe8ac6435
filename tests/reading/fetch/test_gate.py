"""The gate before fetches: by a clock that the test moves, without threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from tests.doubles.manual_clock import ManualClock
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.prometheus import Metrics
from tierfs.base.system.throttle import Throttle
from tierfs.base.words.errors import BudgetSpent, TierfsError, Unavailable
from tierfs.base.words.types import MIB, ByteRange, LocationId, ObjectId, Payer, Tier
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.budgets import Budgets
from tierfs.reading.fetch.buffers import BufferPool
from tierfs.reading.fetch.gate import FetchGate, ahead_limits
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.fetch.queue import WANTED_NOW
from tierfs.reading.fetch.span import Span
from tierfs.reading.fetch.span_cache import SpanCache

HOLDER = ObjectRecord(id=ObjectId(1), tier=Tier.COLD, location_id=LocationId(1), name="o", length=1 << 40, etag="e")
ALICE, BOB = Payer(1001, 1), Payer(1002, 2)
AHEAD = 5


class TrioClock(ManualClock):
    """The clock of the loop, which jumps when all its tasks wait."""

    def monotonic_s(self) -> float:
        return trio.current_time()

    def now_ms(self) -> int:
        return round(trio.current_time() * 1000)


class Gated:
    """A gate, and spans whose fetches end at once."""

    def __init__(self, directory: Path, **settings: object) -> None:
        clock = TrioClock()
        self.throttle = Throttle(0, clock)
        self.passed: list[Span] = []
        self.failed: list[TierfsError] = []
        self.metrics = Metrics()
        self.gate = FetchGate(
            self.throttle,
            Budgets(directory / "budgets", directory / "lock", clock),
            self.fetch,
            lambda span, error: self.failed.append(error),
            self.metrics,
        )
        self.spans = SpanCache(BufferPool(1 << 40))
        self.spans.settle = self.gate.settle
        self.next_offset = 0
        self.limit(**settings)

    def limit(self, **settings: object) -> None:
        self.gate.limit(ReadSettings(**settings))  # type: ignore[arg-type]

    def ask(self, payer: Payer, length_bytes: int = MIB, priority: int = WANTED_NOW) -> Span:
        grid = Grid(ByteRange(self.next_offset, self.next_offset + length_bytes), b"")
        self.next_offset += length_bytes
        span = self.spans.add(HOLDER, grid, waited_for=True)
        assert span is not None
        span.urgent = priority == WANTED_NOW
        self.gate.require(payer, priority)
        if not self.gate.keeps(span, payer, priority):
            self.fetch(span)
        return span

    def fetch(self, span: Span, fetched: int | None = None) -> None:
        transfer = span.transfers[0]
        assert transfer.own(), "it is fetched once"
        transfer.filled = len(transfer.view)
        span.leader = transfer
        self.passed.append(span)
        self.spans.ended(transfer, None)


async def test_fetches_pass_at_the_set_rate(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    gated = Gated(tmp_path, bandwidth=10 * MIB)
    nursery.start_soon(gated.gate.run)
    spans = [gated.ask(ALICE) for _ in range(200)]
    began_s = trio.current_time()
    while len(gated.passed) < 200:  # noqa: ASYNC110 - the clock jumps
        await trio.sleep(0.01)
    assert trio.current_time() - began_s == pytest.approx(19.8, abs=0.1)
    assert gated.passed == spans, "in their order"
    assert gated.gate.waiting == 0


async def test_a_waiting_reader_passes_before_read_ahead_and_a_hurried_one_too(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    gated = Gated(tmp_path, bandwidth=MIB)
    first, *ahead = [gated.ask(ALICE, priority=AHEAD + number) for number in range(4)]
    wanted = gated.ask(BOB)
    assert gated.gate.hurries(ahead[2], ALICE)
    ahead[2].urgent = True
    nursery.start_soon(gated.gate.run)
    await trio.sleep(10)
    assert gated.passed[0] is first, "there was bandwidth for it when it was requested"
    assert {*map(id, gated.passed[1:3])} == {id(wanted), id(ahead[2])}
    assert gated.passed[3:] == ahead[:2]
    assert not gated.gate.hurries(wanted, BOB)


async def test_each_user_has_a_rate_of_its_own(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    gated = Gated(tmp_path, user_bandwidth=MIB)
    nursery.start_soon(gated.gate.run)
    for _ in range(30):
        gated.ask(ALICE)
    for _ in range(2):
        gated.ask(BOB)
    await trio.sleep(10.5)
    by = [span.start for span in gated.passed]
    assert len([start for start in by if start >= 30 * MIB]) == 2
    assert 10 <= len(by) - 2 <= 12


async def test_a_user_without_budget_waits_while_others_read_and_continues_later(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("reads wait: user 1001 has read 36 MiB")
    gated = Gated(tmp_path, hourly_bytes=36 * MIB)
    nursery.start_soon(gated.gate.run)
    for _ in range(38):
        gated.ask(ALICE)
    assert (len(gated.passed), gated.gate.holds(ALICE.uid)) == (37, True)
    assert isinstance(gated.gate.late(ALICE.uid), BudgetSpent)
    gated.ask(BOB)
    await trio.testing.wait_all_tasks_blocked()
    assert len(gated.passed) == 38
    assert not gated.gate.holds(BOB.uid)
    await trio.sleep(99)
    assert len(gated.passed) == 38
    await trio.sleep(2)
    assert len(gated.passed) == 39


async def test_a_span_that_a_user_without_budget_waits_for_is_paid_for_by_another(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("reads wait: user 1001")
    gated = Gated(tmp_path, hourly_bytes=MIB)
    nursery.start_soon(gated.gate.run)
    for _ in range(3):
        gated.ask(ALICE)
    shared = gated.ask(ALICE)
    assert gated.gate.hurries(shared, BOB)
    await trio.sleep(0.001)
    assert gated.passed[-1] is shared
    assert gated.gate.budgets.wait_s(BOB.uid) == 0
    assert [row.bytes for row in gated.gate.budgets.shown if row.uid == BOB.uid] == [MIB]


async def test_a_refused_user_gets_the_error_at_once_and_what_waits_fails(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, expected_warnings: list[str]
) -> None:
    expected_warnings.append("reads are refused: user 1001")
    gated = Gated(tmp_path, hourly_requests=3, when_spent="refuse", bandwidth=MIB)
    nursery.start_soon(gated.gate.run)
    for _ in range(5):
        gated.ask(ALICE)  # one passes, the others wait for bandwidth
    await trio.sleep(60)
    assert (len(gated.passed), len(gated.failed)) == (3, 2)
    with pytest.raises(BudgetSpent, match="3 requests"):
        gated.ask(ALICE)
    gated.ask(BOB)
    assert "tierfs_read_budget_refusals_total 1.0" in gated.metrics.exposition().decode()


async def test_bytes_that_were_not_fetched_are_given_back(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    gated = Gated(tmp_path, hourly_bytes=1 << 40, bandwidth=100 * MIB)
    grids = (Grid(ByteRange(at, at + MIB), b"") for at in (0, MIB))
    withdrawn, broken = (gated.spans.add(HOLDER, grid, waited_for=True) for grid in grids)
    assert withdrawn is not None
    assert broken is not None
    for span in (withdrawn, broken):
        assert not gated.gate.keeps(span, ALICE, AHEAD)
    assert gated.gate.budgets.shown[0].bytes == 2 * MIB
    gated.spans.abandon(withdrawn)
    broken.transfers[0].filled = MIB // 4
    gated.spans.ended(broken.transfers[0], Unavailable("no answer"))
    assert gated.gate.budgets.shown[0].bytes == MIB // 4
    assert gated.throttle.granted_bytes == MIB // 4


async def test_a_limit_that_is_removed_lets_all_pass(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    gated = Gated(tmp_path, bandwidth=MIB, user_bandwidth=MIB)
    nursery.start_soon(gated.gate.run)
    for _ in range(100):
        gated.ask(ALICE)
    await trio.sleep(3)
    assert len(gated.passed) < 10
    gated.limit()
    await trio.testing.wait_all_tasks_blocked()
    assert len(gated.passed) == 100


async def test_withdrawn_fetches_leave_the_queue(tmp_path: Path) -> None:
    gated = Gated(tmp_path, bandwidth=MIB)
    gated.ask(ALICE)
    for _ in range(500):
        gated.spans.abandon(gated.ask(ALICE, priority=AHEAD))
    assert gated.gate.waiting == 0
    assert gated.gate.queued < 100


def test_read_ahead_is_short_within_a_limit_and_memory_alone_bounds_it_without() -> None:
    assert ahead_limits(ReadSettings()) is None
    assert ahead_limits(ReadSettings(hourly_requests=1)) is None
    assert ahead_limits(ReadSettings(hourly_bytes=1)) == (MIB // 4, None)
    assert ahead_limits(ReadSettings(hourly_bytes=360 * MIB)) == (3 * MIB, None)
    assert ahead_limits(ReadSettings(bandwidth=100 * MIB, user_bandwidth=10 * MIB)) == (MIB, 20 * MIB)
