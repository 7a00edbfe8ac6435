"""`tierfs recover` as a user calls it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.journal.replaying import check_store
from tierfs.app.store import open_store
from tierfs.errors import PermissionDenied
from tierfs.metadata import tables
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.tables import LOCATIONS
from tierfs.types import LocationId

DATA = bytes(range(256)) * 400


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A directory as the cold tier whose store is lost: `a/s` sealed and cold, `a/o` open and half cold."""
    cold = tmp_path / "cold"
    cold.mkdir()
    store = tmp_path / "lost"
    tierfs("init", "--cold-dir", cold, store=store, check=False)
    tierfs("append", "a/s", "--seal", store=store, stdin=DATA)
    tierfs("append", "a/o", store=store, stdin=DATA)
    tierfs("policy", "set", "a", "chunk_bytes=4MiB", store=store)
    tierfs("offload", "a", store=store)
    tierfs("append", "a/o", store=store, stdin=b"never cold")
    shutil.rmtree(store)
    return cold


def recover(cold: Path, store: Path, *words: object, code: int = 0):  # type: ignore[no-untyped-def]
    """Its own warning, of a cold tier on the same filesystem, is expected."""
    done = tierfs("recover", "--cold-dir", cold, *words, store=store, check=False)
    assert done.code == code, done
    return done


def test_everything_cold_is_there_again(cold: Path, tmp_path: Path) -> None:
    store = tmp_path / "new"
    said = recover(cold, tmp_path / "first").out
    assert "recovered 2 segments" in said
    assert f"a/o: open, ends at {len(DATA)}: later bytes, if any, were not cold and are gone" in said
    again = recover(cold, tmp_path / "first", code=5)
    assert "is a tierfs store already (AlreadyExists, exit 5)" in again.err
    found = recover(cold, store, "--json").json
    assert (found["segments"], found["store_epoch"]) == (2, 3)
    assert [(one["segment"], one["length"], one["lost"]) for one in found["incomplete"]] == [("a/o", len(DATA), [])]
    assert tierfs("cat", "a/s", store=store).out == DATA.decode(errors="replace")
    info = tierfs("info", "a/o", "--json", store=store).json
    assert (info["length"], info["lost"], info["sealed"]) == (len(DATA), [], False)
    assert info["recovered_at"] is not None
    assert "4MiB         directory a" in tierfs("policy", "show", "a", store=store).out
    tierfs("fsck", store=store)
    tierfs("append", "a/o", store=store, stdin=b"goes on")
    tierfs("offload", "a", store=store)
    with open_store(store) as opened, opened.metadata.read() as txn:
        check_store(txn)


@pytest.mark.parametrize("count", [20, 21, 22])
def test_twenty_open_segments_are_listed_and_the_others_counted(tmp_path: Path, count: int) -> None:
    cold, lost = tmp_path / "cold", tmp_path / "lost"
    (tmp_path / "files").mkdir()
    cold.mkdir()
    for number in range(count):
        (tmp_path / "files" / str(number)).write_bytes(b"line\n")
    tierfs("init", "--cold-dir", cold, store=lost, check=False)
    tierfs("ingest", tmp_path / "files", "--into", "a", "--open", store=lost)
    tierfs("offload", "a", store=lost)
    shutil.rmtree(lost)
    said = recover(cold, tmp_path / "new").out
    assert said.count(": open, ends at 5") == 20
    rest = {20: "", 21: "and 1 more segment that may", 22: "and 2 more segments that may"}[count]
    assert rest in said
    assert ("more segment" in said) is bool(rest)
    assert recover(cold, tmp_path / "newer", "-v").out.count(": open, ends at 5") == count


def test_a_cold_tier_without_a_journal_names_the_other_way_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = recover(tmp_path / "empty", tmp_path / "new", code=3)
    assert "--from-objects" in done.err
    assert not (tmp_path / "new").exists()


def test_a_killed_recovery_leaves_no_store_and_is_started_again(cold: Path, tmp_path: Path) -> None:
    store = tmp_path / "new"
    killed = (
        "import os, signal; from tierfs.setup import create; from tierfs.cli.main import cli;"
        "create.write_settings = lambda paths: os.kill(os.getpid(), signal.SIGKILL); cli.main()"
    )
    words = ["--store", str(store), "recover", "--cold-dir", str(cold)]
    done = subprocess.run([sys.executable, "-c", killed, *words], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done
    assert tierfs("ls", store=store, check=False).code == 3
    assert "killed left it" in recover(cold, store, code=2).err
    shutil.rmtree(store)
    assert recover(cold, store, "--json").json["store_epoch"] == 3
    assert tierfs("cat", "a/s", store=store).out == DATA.decode(errors="replace")


def test_a_place_that_only_the_journal_named_is_unused_until_it_is_allowed(cold: Path, tmp_path: Path) -> None:
    store = tmp_path / "new"
    recover(cold, store)
    (tmp_path / "theirs").mkdir()
    place = LocationRecord(id=LocationId(7), url=f"file:{tmp_path / 'theirs'}", from_journal=True)
    with open_store(store) as opened:
        with opened.metadata.write() as txn:
            txn.put(LOCATIONS, tables.u32(place.id), place)
        with pytest.raises(PermissionDenied) as refused:
            opened.storage_of(place.id)
    assert refused.value.remedy is not None
    (store / "store.toml").write_text(f'[cold]\nallowed_locations = "{place.url}"\n')
    assert place.url in refused.value.remedy
    with open_store(store) as opened:
        assert list(opened.storage_of(place.id).list("")) == []


def test_recovered_from_ceph(rgw_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, name = rgw_bucket
    where = ("--bucket", f"s3://{name}/p", "--endpoint-url", endpoint.endpoint_url)
    tierfs("init", *where, store=tmp_path / "lost")
    tierfs("append", "a/s", "--seal", store=tmp_path / "lost", stdin=DATA)
    tierfs("offload", "a", store=tmp_path / "lost")
    shutil.move(tmp_path / "lost", tmp_path / "asleep")
    found = tierfs("recover", *where, "--json", store=tmp_path / "new").json
    assert (found["segments"], found["incomplete"]) == (1, [])
    assert tierfs("cat", "a/s", store=tmp_path / "new").out == DATA.decode(errors="replace")
    tierfs("append", "a/t", store=tmp_path / "asleep", stdin=b"late")
    fenced = tierfs("offload", "a", store=tmp_path / "asleep", check=False)
    assert (fenced.code, "Fenced" in fenced.err) == (6, True)
