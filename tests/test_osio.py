"""Directories that last: each one made is synced into the one above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disks import synced
from tierfs import app
from tierfs.clock import ManualClock
from tierfs.composition.dumping import dump_store, load_store
from tierfs.metadata.store import MetadataStore


def test_a_new_store_lasts_with_all_directories_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = synced(monkeypatch)
    root = tmp_path / "a" / "b" / "store"
    app.init_store(root, app.ColdChoice())
    above = {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}
    within = {root, root / "metadata", root / "chunks"}
    assert {str(path) for path in above | within} <= set(done)


def test_new_metadata_last_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = synced(monkeypatch)
    MetadataStore.create(tmp_path / "m", ManualClock()).close()
    assert {str(tmp_path), str(tmp_path / "m")} <= set(done)


def test_loaded_metadata_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app.init_store(tmp_path / "store", app.ColdChoice())
    with app.open_store(tmp_path / "store") as store:
        dump_store(store, str(tmp_path / "dump"))
    done = synced(monkeypatch)
    load_store(tmp_path / "new" / "store", tmp_path / "dump")
    assert {str(tmp_path), str(tmp_path / "new"), str(tmp_path / "new" / "store")} <= set(done)
