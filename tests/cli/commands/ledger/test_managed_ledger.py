"""tierfs ledger status, trim and delete, and the state of an offload in ls and info."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.commands.ledger.test_ledger import closed, create, lines
from tests.commands import tierfs
from tierfs.app import store as app
from tierfs.app.verbs import open_managed_ledger
from tierfs.errors import Closed, Fenced, NoColdTier
from tierfs.holder.lock import hold
from tierfs.metadata import directories, entries
from tierfs.metadata.ledger_and_batch_records import OffloadProgress
from tierfs.metadata.records import IntentRecord
from tierfs.metadata.tables import INTENTS
from tierfs.segments.positions import Position
from tierfs.types import AttemptId, LocationId


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


def objects(store: Path) -> list[str]:
    return [found.name for found in (store.parent / "cold").iterdir() if "-ledger-" in found.name]


def test_status_tells_how_far_each_ledger_is(path: Path) -> None:
    tierfs("ledger", "offload", "t", "--before", "10:0", store=path)
    tierfs("evict", name(1), store=path)
    found = tierfs("ledger", "status", "t", "--json", store=path).json
    told = [(one["ledger_id"], one["state"], one["entries"], one["offload"]) for one in found["ledgers"]]
    assert told == [
        (1, "closed", 1, "complete"),
        (2, "closed", 1, "complete"),
        (10, "closed", 1, "none"),
        (11, "open", 1, "none"),
    ]
    assert [one["local_deleted"] for one in found["ledgers"]] == [True, False, False, False]
    assert [bool(one["offloaded"]) for one in found["ledgers"]] == [True, True, False, False]
    assert [bool(one["closed"]) for one in found["ledgers"]] == [True, True, True, False]
    assert {one["uuid"] for one in found["ledgers"][:2]} == {key[:36] for key in objects(path)}
    sums = {key: found[key] for key in ("entries", "bytes", "local_bytes", "offloaded_bytes", "not_offloaded_bytes")}
    assert sums == {"entries": 4, "bytes": 19, "local_bytes": 14, "offloaded_bytes": 10, "not_offloaded_bytes": 9}
    assert (found["next_to_offload"], found["terminated"]) == ("10:0", False)
    shown = tierfs("ledger", "status", "t", store=path).out
    assert "next to offload: 10:0" in shown
    assert "local bytes deleted" in shown.splitlines()[0]
    tierfs("ledger", "offload", "t", store=path)
    tierfs("ledger", "terminate", "t", store=path)
    tierfs("ledger", "offload", "t", store=path)
    shown = tierfs("ledger", "status", "t", store=path).out
    assert "4 entries of 4 ledgers: 19 B, 19 B offloaded, 0 B not, 14 B local; nothing to offload; terminated" in shown


def test_ls_and_info_tell_of_the_offload(path: Path) -> None:
    tierfs("ledger", "offload", "t", "--before", "2:0", store=path)
    found = lines(tierfs("ledger", "ls", "--json", store=path).out)
    assert [one["offload"] for one in found] == ["complete", "none", "none", "none"]
    info = tierfs("ledger", "info", name(1), "--json", store=path).json
    assert (info["offload"], info["local_deleted"], bool(info["offloaded"])) == ("complete", False, True)
    assert objects(path)[0].startswith(info["offload_uuid"])
    assert "complete since" in tierfs("ledger", "info", name(1), store=path).out
    info = tierfs("ledger", "info", name(2), "--json", store=path).json
    assert (info["offload"], info["offload_uuid"], info["offloaded"]) == ("none", None, None)


def test_a_trim_deletes_closed_ledgers_in_both_tiers(path: Path) -> None:
    tierfs("ledger", "offload", "t", store=path)
    dry = tierfs("ledger", "trim", "t", "--before", 10, "--dry-run", store=path)
    assert dry.out == "would delete 2 ledgers of t: 10 B local, 10 B cold\n"
    refused = tierfs("ledger", "trim", "t", "--before", 10, store=path, check=False)
    assert (refused.code, "needs a confirmation" in refused.err) == (2, True)
    done = tierfs("ledger", "trim", "t", "--before", 10, "--yes", "--json", store=path).json
    assert (done["segments"], done["local_bytes"], done["cold_bytes"], done["removed"]) == (2, 10, 10, True)
    assert len(lines(tierfs("ledger", "ls", "--json", store=path).out)) == 2
    assert "deleted 1 ledger of t" in tierfs("ledger", "trim", "t", "--before", 11, "--yes", store=path).out
    assert [one["state"] for one in lines(tierfs("ledger", "ls", "--json", store=path).out)] == ["open"]
    assert "deleted 0 ledgers" in tierfs("ledger", "trim", "t", "--before", "11:1", store=path).out


def test_a_delete_takes_closed_ledgers_or_none(path: Path) -> None:
    tierfs("ledger", "offload", "t", store=path)
    refused = tierfs("ledger", "delete", name(1), name(11), "--yes", store=path, check=False)
    assert (refused.code, f"{name(11)} is open" in refused.err) == (2, True)
    assert tierfs("ledger", "delete", name(1), "--dry-run", store=path).out.startswith(
        "would delete 1 ledger: 5 B local"
    )
    done = tierfs("ledger", "delete", name(1), name(2), name(1), "--now", "--yes", store=path)
    assert done.out == "deleted 2 ledgers: 10 B local, 10 B cold; for good\n"
    assert [one["ledger_id"] for one in lines(tierfs("ledger", "ls", "--json", store=path).out)] == [10, 11]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["status", "nowhere"], 3, "nowhere does not exist"),
        (["status", name(1)], 2, "is a segment, not a managed ledger"),
        (["trim", "nowhere", "--before", 1], 3, "nowhere does not exist"),
        (["trim", "t", "--before", 44, "--yes"], 2, "it has no ledger 44 (it has 1 to 11)"),
        (["trim", "t", "--before", 44, "--dry-run"], 2, "it has no ledger 44"),
        (["trim", "t", "--before", 3, "--yes"], 2, "it has no ledger 3"),
        (["trim", "t", "--before", "2:2", "--yes"], 2, "ledger 2 ends at 1"),
        (["trim", "t", "--before", "-1", "--yes"], 2, "-1 is not a position"),
        (["offload", "t", "--before", 44], 2, "it has no ledger 44"),
        (["delete", "t", "--yes"], 2, "is a directory"),
        (["delete", "t/99", "--yes"], 3, "does not exist"),
    ],
)
def test_bad_input(path: Path, words: list[object], code: int, told: str) -> None:
    refused = tierfs("ledger", *words, store=path, check=False)
    assert (refused.code, told in refused.err) == (code, True), refused
    assert len(lines(tierfs("ledger", "ls", "--json", store=path).out)) == 4


def test_a_managed_ledger_offloads_what_it_is_asked_to_until_it_is_closed(path: Path) -> None:
    tierfs("policy", "set", "t", "ledger_entries=10", store=path)
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
            return status, listed, tierfs("ledger", "info", name(1), "--json", store=path).json["offload"]

        assert shown() == ("failed", "failed", "failed")
        assert "1 to clean up" in tierfs("status", store=path).out
        with hold(store.paths.holder, store.clock):
            assert shown() == ("in progress", "in progress", "in progress")
            assert "1 in flight" in tierfs("status", store=path).out
    tierfs("ledger", "offload", "t", store=path)
    assert "0 in flight" in tierfs("status", store=path).out
