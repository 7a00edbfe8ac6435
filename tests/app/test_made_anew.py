"""A store is removed, and another one made at its path: what is open says so, and a new handle is of the new one."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import closing
from pathlib import Path

import fsspec
import pytest

import tierfs as python
from tests.commands import new_store, tierfs
from tests.mount.conftest import serving
from tests.mount.waiting import errno_of, eventually
from tierfs.app.store import open_store
from tierfs.base.system.clock import SystemClock
from tierfs.base.words.errors import Fenced
from tierfs.engine.metadata import store as metadata
from tierfs.engine.metadata.store import MetadataStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(metadata, "_LOOK_S", 0.0)
    path = new_store(tmp_path)
    tierfs("-q", "append", "old", store=path, stdin=b"old")
    return path


def make_anew(store: Path) -> None:
    """Do as a user does who begins again."""
    shutil.rmtree(store)
    shutil.rmtree(store.parent / "cold")
    new_store(store.parent)
    tierfs("-q", "append", "new", store=store, stdin=b"new")


def test_an_old_handle_says_so_and_a_new_one_is_of_the_new_store(store: Path) -> None:
    with open_store(store) as old:
        writer = old.engine.open_writer("old")
        writer.append(b"more")
        make_anew(store)
        with pytest.raises(Fenced, match="was removed, and another store is there now"):
            writer.append(b"lost")
        with open_store(store) as new:
            assert new.metadata.store_id != old.metadata.store_id
            with new.metadata.read(), pytest.raises(Fenced), old.metadata.read():
                pass
            with pytest.raises(Fenced):
                old.metadata.last_transaction_id()


def test_a_store_that_is_gone_acknowledges_nothing(store: Path) -> None:
    with open_store(store) as old:
        writer = old.engine.open_writer("old")
        store.rename(store.with_name("elsewhere"))
        with pytest.raises(Fenced, match=r"was removed$"):
            writer.append(b"lost")
        store.with_name("elsewhere").rename(store)
        writer.append(b"kept")


def test_a_store_is_made_where_one_is_open(tmp_path: Path) -> None:
    old = MetadataStore.create(tmp_path / "m", SystemClock())
    shutil.rmtree(tmp_path / "m")
    new = MetadataStore.create(tmp_path / "m", SystemClock())
    assert new.store_id != old.store_id
    new.close()
    old.close()


def test_python_and_fsspec_open_the_new_store(store: Path) -> None:
    files = fsspec.filesystem("tierfs", store=str(store))
    with python.open_store(str(store)) as old, closing(files):
        reader = old.open("old")
        assert files.ls("", detail=False) == ["old"]
        make_anew(store)
        assert files.ls("", detail=False) == ["new"]
        assert fsspec.filesystem("tierfs", store=str(store)).cat_file("new") == b"new"
        with python.open_store(str(store)) as new:
            assert new.open("new").read() == b"new"
        with pytest.raises(Fenced, match="another store is there now"):
            old.ls()
        with pytest.raises(Fenced, match="another store is there now"):
            reader.read()


def test_a_mount_of_the_old_store_is_stale(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    with serving(store, tmp_path / "mnt") as mounted:
        assert (mounted.path / "old").read_bytes() == b"old"
        make_anew(store)
        assert eventually(lambda: errno_of(lambda: os.listdir(mounted.path)) == errno.ESTALE)
        assert errno_of((mounted.path / "new").read_bytes) == errno.ESTALE
    (tmp_path / "second").mkdir()
    with serving(store, tmp_path / "second") as mounted:
        assert (mounted.path / "new").read_bytes() == b"new"
