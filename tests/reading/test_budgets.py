"""Hourly budgets of users: what is spent fades, is shared by processes, and survives a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tierfs.base.options.config import ReadSettings
from tierfs.base.words.errors import BudgetSpent
from tierfs.base.words.types import MIB
from tierfs.reading.budgets import Budgets
from tierfs.reading.spending import HourlyAllowance, Spending, budgets_in, read_rows

ALICE, BOB = 1001, 1002
LIMIT = ReadSettings(hourly_bytes=360 * MIB, hourly_requests=100)
REFUSE = ReadSettings(hourly_bytes=360 * MIB, when_spent="refuse", exempt_users=f"nobody {BOB}")


class Place:
    """Budgets of processes that share a file."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.path, self.lock = directory / "budgets", directory / "lock"

    def process(self, settings: ReadSettings = LIMIT) -> Budgets:
        budgets = Budgets(self.path, self.lock, self.clock)
        budgets.limit(settings)
        return budgets


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_budget_fades_evenly_and_is_whole_after_an_hour() -> None:
    allowance = HourlyAllowance(3600, 60)
    spent = Spending(bytes=4000, requests=60, at_ms=0)
    assert spent.wait_s(allowance) == 400
    assert spent.faded(allowance, 400_000).wait_s(allowance) == 0
    assert spent.faded(allowance, 3_600_000) == Spending(400, 0, 3_600_000)
    assert spent.faded(allowance, 30_000_000) == Spending(0, 0, 30_000_000)
    assert spent.faded(allowance, -5_000).bytes == 4000, "a clock that was set back gives nothing"


def test_no_limit_lets_a_user_read_any_number() -> None:
    assert Spending(1 << 60, 1 << 60).wait_s(HourlyAllowance()) == 0
    assert Spending(1 << 60, 3).wait_s(HourlyAllowance(0, 4)) == 0
    assert Spending(1 << 60, 4).wait_s(HourlyAllowance(0, 4)) == 900


def test_who_has_spent_waits_and_the_others_do_not(place: Place) -> None:
    budgets = place.process()
    budgets.charge(ALICE, 370 * MIB, 1)
    assert (budgets.wait_s(ALICE), budgets.wait_s(BOB)) == (100.0, 0.0)
    place.clock.advance(101)
    assert budgets.wait_s(ALICE) == 0
    budgets.charge(ALICE, 0, 200)
    assert budgets.wait_s(ALICE) > 3600, "requests count too"


def test_a_refusal_says_how_much_was_read_and_when_more_may_be(
    place: Place, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    expected_warnings.extend(["reads are refused: user 1001 has read 360 MiB", "there is no user nosuchuser"])
    budgets = place.process(REFUSE)
    budgets.require(ALICE)
    budgets.charge(ALICE, 370 * MIB, 1)
    for _ in range(2):
        with pytest.raises(BudgetSpent, match=r"user 1001 has read 360 MiB .* allowed in 100s") as refused:
            budgets.require(ALICE)
    assert refused.value.remedy is not None
    assert len([record for record in caplog.records if "refused" in record.message]) == 1, "it is logged once"
    budgets.charge(BOB, 370 * MIB, 1)
    budgets.require(BOB)
    assert (budgets.told(BOB), budgets.wait_s(BOB)) == ("unlimited", 0)
    place.clock.advance(101)
    budgets.require(ALICE)


def test_what_was_spent_survives_a_restart(place: Place) -> None:
    before = place.process()
    before.charge(ALICE, 370 * MIB, 7)
    before.finish()
    place.clock.advance(50)
    after = place.process()
    assert after.wait_s(ALICE) == pytest.approx(50)
    shown = budgets_in(place.path, LIMIT, place.clock)
    assert [(row.uid, row.bytes, row.requests) for row in shown] == [(ALICE, 365 * MIB, 6)]
    assert budgets_in(place.path, ReadSettings(), place.clock) == []


def test_processes_of_a_store_share_a_budget(place: Place) -> None:
    mounts = [place.process(), place.process()]
    for mount in mounts:
        mount.charge(ALICE, 100 * MIB, 10)
        mount.charge(ALICE, -20 * MIB, 0)
        mount.finish()
    assert read_rows(place.path)[ALICE].bytes == 160 * MIB
    mounts[0].charge(ALICE, -10 * MIB, 0)  # given back after it was saved
    mounts[0].finish()
    assert read_rows(place.path)[ALICE].bytes == 150 * MIB


def test_a_changed_limit_keeps_what_was_spent(place: Place) -> None:
    budgets = place.process()
    budgets.charge(ALICE, 350 * MIB, 1)
    budgets.limit(ReadSettings(hourly_bytes=100 * MIB))
    assert budgets.wait_s(ALICE) == 9000
    budgets.limit(ReadSettings())
    assert budgets.wait_s(ALICE) == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"users": 3}', '{"users": {"x": {}}}', '{"users": {"1": {"bytes": null}}}']
)
def test_a_damaged_file_is_reported_and_begun_again(place: Place, text: str, expected_warnings: list[str]) -> None:
    expected_warnings.append("cannot be read; the budgets of users start at zero")
    place.path.write_text(text, encoding="utf-8")
    budgets = place.process()
    assert budgets.wait_s(ALICE) == 0
    budgets.charge(ALICE, MIB, 1)
    budgets.finish()
    assert read_rows(place.path)[ALICE].bytes == MIB


def test_a_file_that_cannot_be_written_is_reported_once_and_the_process_counts_alone(
    place: Place, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    expected_warnings.append("this process counts the budgets of users alone")
    place.lock = place.path / "missing" / "lock"
    budgets = place.process()
    for _ in range(2):
        budgets.charge(ALICE, 200 * MIB, 1)
        budgets.finish()
    assert len(caplog.records) == 1
    assert budgets.wait_s(ALICE) == 400
