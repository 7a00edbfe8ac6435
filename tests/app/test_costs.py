"""The bill of a month: its arithmetic, the file of prices, and the requests that a store remembers."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tierfs.app.costs import (
    GIB,
    LOCAL,
    BillLine,
    MonthlyAmounts,
    PriceList,
    bill,
    of_replicas,
    requests_of,
    saved,
    total,
    unpriced,
)
from tierfs.app.price_file import EXAMPLE, read_prices
from tierfs.app.request_log import DAYS_KEPT, Calls, RequestLog, read_days
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.types import MIB

PRICES = PriceList(
    storage={"STANDARD": 0.02, "IA": 0.01},
    requests={"write": 5.0, "list": 5.0, "read": 0.5},
    egress_gib=0.1,
    retrieval_gib={"IA": 0.04},
)
AMOUNTS = MonthlyAmounts(
    storage_bytes={LOCAL: 5 * GIB, "STANDARD": 100 * GIB, "IA": 300 * GIB},
    requests={"write": 2000, "list": 100, "read": 4000, "delete": 7},
    read_bytes=40 * GIB,
    replicas=2,
    replica_requests={"list": 1000, "read": 2000},
)


def costs(lines: list[BillLine]) -> dict[str, float | None]:
    return {line.what: None if line.cost is None else round(line.cost, 9) for line in lines}


def test_a_bill_multiplies_amounts_by_prices() -> None:
    lines = bill(AMOUNTS, PRICES)
    assert costs(lines) == {
        "storage local": None,
        "storage STANDARD": 2.0,
        "storage IA": 3.0,
        "requests write": 10.0,
        "requests list": 0.5,
        "requests read": 2.0,
        "requests delete": None,
        "read (egress)": 4.0,
        "read (retrieval IA)": 1.2,
        "requests of 2 replicas list": 5.0,
        "requests of 2 replicas read": 1.0,
    }
    assert total(lines) == pytest.approx(28.7)
    assert [line.what for line in unpriced(lines)] == ["requests delete"], "a disk of one's own costs nothing"


def test_what_compression_saves_is_of_all_classes_evenly_and_in_no_total() -> None:
    less = saved(replace(AMOUNTS, saved_bytes=800 * GIB), PRICES)
    assert costs(less) == {
        "storage STANDARD": 4.0,
        "storage IA": 6.0,
        "read (egress)": 8.0,
        "read (retrieval IA)": 2.4,
    }
    assert total(bill(replace(AMOUNTS, saved_bytes=800 * GIB), PRICES)) == total(bill(AMOUNTS, PRICES))
    assert saved(AMOUNTS, PRICES) == []


def test_without_prices_there_are_amounts_alone() -> None:
    lines = bill(AMOUNTS, None)
    assert {line.cost for line in lines} == {None}
    assert [line.amount for line in lines[:3]] == [5 * GIB, 100 * GIB, 300 * GIB]


def test_parts_of_uploads_are_requests_and_calls_have_the_kind_of_their_price() -> None:
    calls = {"put": (3, 64 * MIB), "list": (2, 0), "read": (4, GIB), "stat": (1, 0), "delete": (6, 0), "new": (1, 0)}
    assert requests_of(calls) == {"write": 3 + 8 + 1, "list": 2, "read": 5, "delete": 6}


def test_replicas_at_rest_list_once_a_minute_and_look_in_between() -> None:
    assert of_replicas(0, 5.0) == {}
    assert of_replicas(2, 5.0) == {"list": 2 * 43_200, "read": 2 * 475_200}
    assert of_replicas(1, 600.0) == {"list": 4320, "read": 0}


def test_the_example_is_a_list_of_prices_in_both_forms(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert read_prices(path).storage == {"STANDARD": 0.0}
    path = tmp_path / "p.json"
    path.write_text('{"as_of": "2026-01-31", "storage": {"X": 1}, "egress": {"gib": 2}}', encoding="utf-8")
    assert read_prices(path) == PriceList({"X": 1}, {}, 2, {}, as_of="2026-01-31")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("storage = 3", "storage = 3: expected a table"),
        ("[storage]\nX = -1", r"storage.X = -1: expected a number"),
        ("[storage]\nX = nan", r"storage.X = nan: expected a number"),
        ('[requests]\nread = "1"', r"requests.read = '1': expected a number"),
        ("[requests]\nget = 1", "unknown price 'requests.get'"),
        ("[egress]\ngb = 1", "unknown price 'egress.gb'"),
        ("[stroage]\nX = 1", "unknown price 'stroage'"),
        ("[storage", "not valid TOML"),
    ],
)
def test_a_price_that_is_none_is_refused_by_its_name(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=told):
        read_prices(path)
    with pytest.raises(NotFound):
        read_prices(tmp_path / "missing")


class Process:
    """A process that requests, on a clock that the test moves."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self.path, self.metrics = directory / "requests.json", Metrics()
        self.log = RequestLog(self.path, directory / "lock", clock, self.metrics)

    def ask(self, verb: str, number: int, length_bytes: int, tier: str = "cold") -> None:
        self.metrics.count(MetricName.STORAGE_REQUESTS, number, tier=tier, verb=verb)
        self.metrics.count(MetricName.STORAGE_BYTES, length_bytes, tier=tier, verb=verb)


def test_requests_of_all_processes_add_up_by_day_and_old_days_are_dropped(tmp_path: Path) -> None:
    clock = ManualClock(1_767_225_600_000)  # 2026-01-01T00:00Z
    first, second = Process(tmp_path, clock), Process(tmp_path, clock)
    first.ask("read", 3, 30)
    first.ask("read", 9, 90, tier="local")
    second.ask("read", 1, 10)
    for process in (first, second, first):
        process.log.save()
    clock.advance(86_400)
    first.ask("put", 1, 5)
    first.log.save()
    assert read_days(first.path) == {
        date(2026, 1, 1): {"read": Calls(4, 40)},
        date(2026, 1, 2): {"put": Calls(1, 5)},
    }
    clock.advance(86_400 * (DAYS_KEPT - 1))
    second.ask("list", 1, 0)
    second.log.save()
    assert min(read_days(first.path)) == date(2026, 1, 2)


def test_a_child_of_fork_adds_nothing_of_its_parent(tmp_path: Path) -> None:
    process = Process(tmp_path, ManualClock())
    process.ask("read", 3, 30)
    process.log.forget()
    process.ask("read", 1, 1)
    process.log.save()
    assert [*read_days(process.path).values()] == [{"read": Calls(1, 1)}]


def test_a_file_that_cannot_be_written_is_added_to_later(tmp_path: Path) -> None:
    process = Process(tmp_path / "later", ManualClock())
    process.ask("read", 3, 30)
    process.log.save()
    assert read_days(process.path) == {}
    (tmp_path / "later").mkdir()
    process.log.save()
    assert [*read_days(process.path).values()] == [{"read": Calls(3, 30)}]


def test_a_damaged_file_is_reported_and_replaced(tmp_path: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("the requests of earlier days are unknown")
    process = Process(tmp_path, ManualClock())
    process.path.write_text('{"days": {"x": 1}}', encoding="utf-8")
    process.ask("read", 3, 30)
    process.log.save()
    assert [*read_days(process.path).values()] == [{"read": Calls(3, 30)}]
