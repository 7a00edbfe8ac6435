"""tierfs ledger status, trim and delete, and the state of an offload in ls and info."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.commands import started, tierfs
from tierfs.app import store as app
from tierfs.app.verbs import open_managed_ledger
from tierfs.base.words.errors import Closed, Fenced, NoColdTier
from tierfs.base.words.types import AttemptId, LocationId
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.ledger_records import OffloadProgress
from tierfs.engine.metadata.records import IntentRecord
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.segments.positions import Position
from tierfs.upkeep.holder.lock import hold


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def create(path: Path, *words: object) -> str:
    return tierfs("ledger", "create", *words, store=path).out.strip()


def closed(path: Path, managed_ledger: str, number: int) -> str:
    name = create(path, managed_ledger, "--id", number)
    tierfs("ledger", "append", name, store=path, stdin=b"entry")
    tierfs("seal", name, store=path)
    return name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with a cold tier and a topic of three closed ledgers and an open one."""
    (tmp_path / "cold").mkdir()
    store = tmp_path / "store"
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=store)
    for number in (1, 2, 10):
        closed(store, "t", number)
    tierfs("ledger", "append", create(store, "t", "--id", 11), store=store, stdin=b"open")
    return store


def name(number: int) -> str:
    return f"t/{number:020}"


def test_a_managed_ledger_offloads_what_it_is_asked_to_until_it_is_closed(path: Path) -> None:
    tierfs("config", "t", "ledger_entries=10", store=path)
    with app.open_store(path) as store:
        managed = open_managed_ledger(store, "t")
        managed.roll()
        added = managed.add_entries([b"x"] * 21)
        third = added[-1].last
        assert managed.offload_prefix(third) == Position(third.ledger_id, 0)
        managed.close()
        with pytest.raises(Closed):
            managed.offload_prefix(third)
    found = tierfs("ledger", "status", "t", "--json", store=path).json
    assert [one["offload"] for one in found["ledgers"]] == ["complete"] * 6 + ["none"]


def test_without_a_cold_tier_a_managed_ledger_cannot_offload(tmp_path: Path) -> None:
    store = tmp_path / "alone"
    tierfs("-q", "init", "--cold", "none", store=store)
    tierfs("ledger", "append", "t", store=store, stdin=b"entry")
    before = tierfs("ledger", "status", "t", "--json", store=store).json
    with app.open_store(store) as opened, closing(open_managed_ledger(opened, "t")) as managed:
        position = Position(before["ledgers"][0]["ledger_id"], 1)
        with pytest.raises(NoColdTier, match="offload of managed ledger t needs a cold tier"):
            managed.offload_prefix(position)
    assert tierfs("ledger", "status", "t", "--json", store=store).json == before


@pytest.mark.parametrize("target", ["t", name(11)])
def test_a_living_writer_is_fenced_on_request(path: Path, target: str) -> None:
    with app.open_store(path) as store:
        managed = open_managed_ledger(store, "t")
        refused = tierfs("ledger", "append", target, store=path, stdin=b"mine", check=False)
        assert (refused.code, "tierfs ledger append --take-over" in refused.err) == (5, True), refused
        tierfs("ledger", "append", target, "--take-over", store=path, stdin=b"mine")
        with pytest.raises(Fenced):
            managed.add([b"late"])
    assert tierfs("ledger", "read", name(11), store=path).out == "openmine"


def test_a_killed_attempt_is_not_in_progress(path: Path) -> None:
    with app.open_store(path) as store:
        with store.metadata.write() as txn:
            segment = directories.segment_by_name(txn, name(1))
            begun = replace(entries.find(txn, segment.id), offload=OffloadProgress.begun(uuid4(), "tierfs"))
            entries.put_ledger(txn, begun)
            intent = IntentRecord(
                attempt=AttemptId("x"),
                location_id=LocationId(1),
                name="x",
                segment_id=segment.id,
                start_offset=0,
                end_offset=1,
            )
            txn.put(INTENTS, b"x", intent)

        def shown() -> tuple[str, str, str]:
            status = tierfs("ledger", "status", "t", "--json", store=path).json["ledgers"][0]["offload"]
            listed = lines(tierfs("ledger", "ls", "--json", store=path).out)[0]["offload"]
            return status, listed, tierfs("info", name(1), "--json", store=path).json["ledger"]["offload"]

        assert shown() == ("failed", "failed", "failed")
        assert "1 to clean up" in tierfs("status", store=path).out
        with hold(store.paths.holder, store.clock):
            assert shown() == ("in progress", "in progress", "in progress")
            assert "1 in flight" in tierfs("status", store=path).out
    tierfs("-q", "offload", "t", store=path)
    assert "0 in flight" in tierfs("status", store=path).out


def test_ctrl_c_tells_what_is_durable(path: Path) -> None:
    words = ("ledger", "append", name(11), "--lines")
    with started(*words, store=path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nthr")
        while tierfs("info", name(11), "--json", store=path).json["ledger"]["entries"] < 3:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"2 entries are acknowledged: {name(11)} 1 3" in error.decode()
