"""Open what a data frame names: a directory, or a bucket followed by a replica of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import append
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.app.sources import open_source
from tierfs.base.words.errors import InvalidRequest, NotFound, PermissionDenied
from tierfs.base.words.types import ROOT_DIRECTORY, EntryKind
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.directories import Entry


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[app.Store]:
    """A store whose cold tier is a directory, with one cold segment."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "store", Place.in_directory(tmp_path / "cold"))
    with app.open_store(tmp_path / "store") as opened:
        append_cold(opened, b"one\n")
        yield opened


def append_cold(store: app.Store, data: bytes) -> None:
    """Add bytes, and let the bucket hold them."""
    append(store, "logs/web", data)
    verbs.offload(store, "logs/web")


def names_and_lengths(store: app.Store) -> dict[str, int]:
    with store, store.metadata.read() as txn:
        root = Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY)
        return {name: segment.length for name, segment in directories.segments_below(txn, root, "")}


def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'cold'}"


def test_a_store_is_opened_by_its_directory_or_the_environment(
    store: app.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names_and_lengths(open_source(str(tmp_path / "store"))) == {"logs/web": 4}
    monkeypatch.setenv("TIERFS_STORE", str(tmp_path / "store"))
    assert names_and_lengths(open_source()) == {"logs/web": 4}


def test_a_bucket_is_followed(store: app.Store, tmp_path: Path) -> None:
    first = open_source(url(tmp_path))
    assert first.is_replica
    assert names_and_lengths(first) == {"logs/web": 4}
    append_cold(store, b"two\n")
    again = open_source(url(tmp_path))
    assert again.path == first.path, "the replica is kept"
    assert names_and_lengths(again) == {"logs/web": 8}


def test_a_replica_that_was_removed_is_made_again(store: app.Store, tmp_path: Path) -> None:
    with open_source(url(tmp_path)) as first:
        pass
    shutil.rmtree(first.path)
    assert names_and_lengths(open_source(url(tmp_path))) == {"logs/web": 4}


@pytest.mark.parametrize("entries", [0, 20])
def test_a_bucket_that_became_another_stores_is_read_as_that(store: app.Store, tmp_path: Path, entries: int) -> None:
    """Its journal may be shorter than what the replica of the store before has applied, or longer."""
    for _ in range(3):
        append_cold(store, b"more\n")
    open_source(url(tmp_path)).close()
    shutil.rmtree(tmp_path / "cold")
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "other", Place.in_directory(tmp_path / "cold"))
    with app.open_store(tmp_path / "other") as other:
        for _ in range(entries):
            append_cold(other, b"new\n")
    expected = {"logs/web": 4 * entries} if entries else {}
    assert names_and_lengths(open_source(url(tmp_path))) == expected


def test_a_failed_replica_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "cold").mkdir()
    with pytest.raises(NotFound):
        open_source(url(tmp_path))
    assert [path for path in tmp_path.glob("tierfs-replicas-*/*")] == []


def test_what_is_no_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERFS_STORE", raising=False)
    with pytest.raises(InvalidRequest, match="no store is given"):
        open_source()
    with pytest.raises(InvalidRequest, match="hdfs://x contains no name node"):
        open_source("hdfs://x")
    with pytest.raises(InvalidRequest, match="unknown kind of cold tier"):
        open_source("ftp://x")
    with pytest.raises(NotFound, match="is not a tierfs store"):
        open_source(str(tmp_path / "missing"))


def replicas(tmp_path: Path) -> Path:
    """Return the directory of this user's replicas, before anything made it."""
    return tmp_path / "temporary" / f"tierfs-replicas-{os.geteuid()}"


def test_a_replica_follows_no_link_that_somebody_put_into_the_temporary_directory(
    store: app.Store, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    for target in (mine, tmp_path / "missing"):
        replicas(tmp_path).symlink_to(target)
        with pytest.raises(PermissionDenied, match="cannot be used for a replica: it is a link") as caught:
            open_source(url(tmp_path))
        assert "TMPDIR" in (caught.value.remedy or "")
        replicas(tmp_path).unlink()
    assert list(mine.iterdir()) == []
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o750, 0o701])
def test_a_directory_that_others_may_use_is_no_place_for_a_replica(store: app.Store, tmp_path: Path, mode: int) -> None:
    open_source(url(tmp_path)).close()
    replicas(tmp_path).chmod(mode)
    with pytest.raises(PermissionDenied, match="other users have access to it"):
        open_source(url(tmp_path))


def test_a_directory_of_another_user_is_no_place_for_a_replica(store: app.Store, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a directory to another user needs root")
    replicas(tmp_path).mkdir(mode=0o700)
    os.chown(replicas(tmp_path), 54321, -1)
    with pytest.raises(PermissionDenied, match="it belongs to another user"):
        open_source(url(tmp_path))
    assert list(replicas(tmp_path).iterdir()) == []
