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
from tests.stores import quiet
from tierfs.app.recovery import from_objects, inventory
from tierfs.app.store import open_store
from tierfs.base.words.errors import PermissionDenied, Unavailable
from tierfs.base.words.types import LocationId
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.tables import LOCATIONS

DATA = bytes(range(256)) * 400


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A directory as the cold tier whose store is lost."""
    cold, store = tmp_path / "cold", tmp_path / "lost"
    cold.mkdir()
    tierfs("-q", "init", "--cold-dir", cold, store=store)
    tierfs("append", "a/s", "--seal", store=store, stdin=DATA)
    tierfs("offload", "a", store=store)
    shutil.rmtree(store)
    return cold


def recover(cold: Path, store: Path, *words: object, code: int = 0):  # type: ignore[no-untyped-def]
    """Its own warning, of a cold tier on the same filesystem, is expected."""
    done = tierfs("recover", "--cold-dir", cold, *words, store=store, check=False)
    assert done.code == code, done
    return done


def test_a_killed_recovery_leaves_no_store_and_is_started_again(cold: Path, tmp_path: Path) -> None:
    store = tmp_path / "new"
    killed = (
        "import os, signal; from tierfs.app.setup import store_directory; from tierfs.faces.cli.main import cli;"
        "store_directory.write_settings = lambda paths: os.kill(os.getpid(), signal.SIGKILL); cli.main()"
    )
    words = ["--store", str(store), "recover", "--cold-dir", str(cold)]
    done = subprocess.run([sys.executable, "-c", killed, *words], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done
    assert tierfs("ls", store=store, check=False).code == 3
    assert "recover that was killed" in recover(cold, store, code=2).err
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
            opened.storage_of(place.id).stat("s")
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


@pytest.mark.parametrize(
    ("failure", "told"),
    [(Unavailable("the server does not answer"), "does not answer"), (KeyboardInterrupt(), "interrupted")],
)
def test_a_listing_that_fails_at_the_end_keeps_the_store(
    cold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, told: str
) -> None:
    def fail(_: ChunkStorage) -> str:
        raise failure

    monkeypatch.setattr(inventory, "names_now", fail)
    done = from_objects.recover_from_objects(tmp_path / "new", Place.in_directory(cold), quiet, lambda _: None)
    assert [warning for warning in done.warnings if told in warning]
    assert tierfs("cat", "a/s", store=tmp_path / "new").out == DATA.decode(errors="replace")
