"""Adopting what Pulsar itself wrote: every entry is the one that it was given, and what it lost is told."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Done, tierfs
from tests.engine.ledger.pulsar_goldens import PULSAR, made_of
from tests.tiering.adoption.foreign import directory_state
from tierfs import open_store

TOPIC = "public/default/persistent/topic"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tierfs("-q", "init", "--cold", "none", store=tmp_path / "store")
    return tmp_path / "store"


def adopt(store: Path, directory: str, *words: str) -> Done:
    place = PULSAR / directory
    return tierfs("-q", "adopt", "--as", "pulsar", place, "--into", "in", "--json", *words, store=store, check=False)


def read(store: Path, name: str) -> list[str]:
    """SHA-256 of each entry."""
    lines = tierfs("ledger", "read", name, "--json", store=store).out.splitlines()
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert [one["entry_id"] for one in found] == list(range(len(found)))
    return [one["sha256"] for one in found]


@pytest.mark.parametrize(("directory", "managed_ledger"), [("whole", TOPIC), ("streaming", "unknown")])
def test_every_entry_is_what_pulsar_was_given(store: Path, directory: str, managed_ledger: str) -> None:
    before = directory_state(PULSAR / directory)
    done = adopt(store, directory)
    assert (done.code, {one["deviations"]["count"] for one in done.json["segments"]}) == (0, {0})
    expected = made_of(directory)
    names = {f"in/{managed_ledger}/{ledger_id:020d}": entries for ledger_id, entries in expected.items()}
    assert {one["segment"] for one in done.json["segments"]} == names.keys()
    for name, entries in names.items():
        assert read(store, name) == entries
    assert directory_state(PULSAR / directory) == before


def test_times_that_pulsar_itself_wrote_are_found(store: Path) -> None:
    """By publish times up to entry 18; later ones have brokers' times, of another year, and what no time was given."""
    adopt(store, "whole")
    rows = [json.loads(line) for line in (PULSAR / "whole.messages").read_text().splitlines()][:19]
    times = [row["messages"][0]["publish_time_ms"] for row in rows]
    assert times == sorted(set(times))
    with open_store(store) as opened:
        ledger = opened.segment(f"in/{TOPIC}/{8:020d}")
        for entry_id, time_ms in enumerate(times):
            at = datetime.fromtimestamp(time_ms / 1000, UTC)
            place = ledger.find_time(at)
            assert (place.entry_id, place.time_ms) == (entry_id, time_ms)


def test_what_pulsar_lost_is_told(store: Path) -> None:
    refused = adopt(store, "lost")
    assert (refused.code, {one["state"] for one in refused.json["segments"]}) == (74, {"failed"})
    done = adopt(store, "lost", "--accept-loss")
    expected = made_of("lost")
    for one in done.json["segments"]:
        entries = expected[int(one["segment"][-20:])]
        assert one["lost_entries"] == len(entries) - one["entries"] > 0
        assert read(store, one["segment"]) == entries[: one["entries"]]


def test_ledgers_are_counted_and_not_their_objects(store: Path) -> None:
    """Of the four, one lies in two objects."""
    done = tierfs(
        "adopt", "--as", "pulsar", PULSAR / "streaming", "--into", "in", "--dry-run", store=store, check=False
    )
    assert "managed ledger of 4 ledgers is unknown: unknown/... is used" in done.err


def test_blocks_that_are_more_than_full_are_refused(store: Path) -> None:
    done = adopt(store, "overfull", "--accept-loss")
    assert (done.code, [one["state"] for one in done.json["segments"]]) == (74, ["failed", "failed"])
    assert {one["kind"] for one in done.json["errors"]} == {"DataLoss"}
