"""tierfs report: amounts from the store, costs from a file, and clear errors without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import new_store, tierfs

DATA = b"x" * 200_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = new_store(tmp_path)
    tierfs("append", "a", "--seal", stdin=DATA, store=store)
    tierfs("-q", "offload", store=store)
    tierfs("evict", "--force", store=store, check=False)
    tierfs("cat", "a", store=store)
    return store


def test_a_report_has_the_bytes_and_requests_of_the_store_and_multiplies_them(store: Path, tmp_path: Path) -> None:
    shown = tierfs("--json", "report", store=store).json
    amounts = {line["what"]: line["amount"] for line in shown["lines"]}
    assert (amounts["storage STANDARD"], amounts["storage local"]) == (len(DATA), 0)
    assert amounts["requests write"] >= 30
    assert amounts["read (egress)"] >= 30 * len(DATA)
    assert (shown["total"], shown["listed_objects"]) == (None, None)
    prices = tmp_path / "prices.json"
    prices.write_text('{"currency": "EUR", "as_of": "2026-01", "storage": {"STANDARD": 5368.70912}}', encoding="utf-8")
    words = ("report", "--cost", "--prices", prices, "--list", "--replicas", 1)
    priced = tierfs("--json", *words, store=store).json
    assert priced["listed_objects"] > 1, "the journal is listed too"
    assert priced["total"] == pytest.approx(
        5368.70912 * next(line["amount"] for line in priced["lines"] if line["what"] == "storage STANDARD") / (1 << 30)
    )
    text = tierfs(*words, store=store).out
    assert f"total: {priced['total']:,.2f} EUR" in text
    assert "prices: no source, 2026-01" in text
    assert "without a price: requests write, requests list" in text
    assert "requests of 1 replica list" in text


def test_costs_without_prices_are_refused_with_the_way_to_them(store: Path) -> None:
    refused = tierfs("report", "--cost", store=store, check=False)
    assert (refused.code, refused.err.splitlines()) == (
        2,
        [
            "tierfs: --cost needs --prices FILE (InvalidRequest, exit 2)",
            "  write one: tierfs report --example-prices > prices.toml",
        ],
    )


def test_a_store_without_a_cold_tier_has_local_bytes_alone(tmp_path: Path) -> None:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "s", check=False)
    shown = tierfs("report", store=tmp_path / "s").out
    assert "requests: none are recorded yet" in shown
    assert "storage STANDARD" not in shown
    assert tierfs("report", "--list", store=tmp_path / "s", check=False).code == 2
