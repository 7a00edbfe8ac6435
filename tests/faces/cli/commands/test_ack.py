"""`--ack cold` and `ack=cold` by commands: what they promise is in the bucket when they return."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import tierfs

COLD = ("init", "--ack", "cold")


def recovered(store: Path, other: Path) -> None:
    """Lose the host, and make the store again from the bucket."""
    shutil.move(store / "cold", other.parent / "bucket")
    shutil.rmtree(store)
    tierfs("recover", "--cold-dir", str(other.parent / "bucket"), store=other, check=False)


def test_a_store_of_appends_that_are_acknowledged_cold_survives_its_host(tmp_path: Path) -> None:
    store = tmp_path / "s"
    tierfs(*COLD, store=store, check=False)
    assert "ack" in tierfs("config", "/", store=store).out
    for number in range(3):
        tierfs("append", "d/s", store=store, stdin=b"line %d\n" % number)
    tierfs("append", "d/local", "--ack", "local", store=store, stdin=b"only here")
    recovered(store, tmp_path / "again")
    assert tierfs("cat", "d/s", store=tmp_path / "again").out == "line 0\nline 1\nline 2\n"
    assert json.loads(tierfs("--json", "info", "d/s", store=tmp_path / "again").out)["length"] == 21
    local = tierfs("--json", "info", "d/local", store=tmp_path / "again", check=False)
    assert local.code or not local.json["length"]


def test_an_ingest_is_offloaded_before_it_returns(tmp_path: Path) -> None:
    store, files = tmp_path / "s", tmp_path / "files"
    tierfs("init", store=store, check=False)
    for name, size in (("a", 0), ("b", 1), ("c", 100_000), ("sub/d", 9 << 20)):
        (files / name).parent.mkdir(exist_ok=True, parents=True)
        (files / name).write_bytes(b"x" * size)
    tierfs("append", "in/marker", store=store, stdin=b"m")
    tierfs("config", "in", "ack=cold", store=store)
    tierfs("ingest", str(files), "--into", "in", store=store)
    recovered(store, tmp_path / "again")
    for name, size in (("a", 0), ("b", 1), ("c", 100_000), ("sub/d", 9 << 20)):
        info = json.loads(tierfs("--json", "info", f"in/{name}", store=tmp_path / "again").out)
        assert (info["length"], info["sealed"]) == (size, True)


@pytest.mark.parametrize("words", [("init", "--cold", "none", "--ack", "cold"), ("init", "--ack", "disk")])
def test_an_ack_that_no_store_can_keep_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert tierfs(*words, store=tmp_path / "s", check=False).code == 2
    assert not (tmp_path / "s").exists()


def test_without_a_cold_tier_an_ack_of_it_is_refused_and_nothing_is_created(tmp_path: Path) -> None:
    store = tmp_path / "s"
    tierfs("init", "--cold", "none", store=store, check=False)
    result = tierfs("append", "s", "--ack", "cold", store=store, stdin=b"x", check=False)
    assert "needs a cold tier, but this store has no cold tier" in result.err
    assert "config cold.url=URL" in result.err
    assert tierfs("ls", store=store).out == ""
    assert "no cold tier that could acknowledge" in tierfs("config", "/", "ack=cold", store=store, check=False).err
