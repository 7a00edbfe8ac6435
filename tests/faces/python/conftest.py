"""A store with a cold tier in a directory, opened as a Python program does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tierfs
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "cold").mkdir()
    init_store(tmp_path / "store", Place.in_directory(tmp_path / "cold"))
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[tierfs.Store]:
    with tierfs.open_store(path) as opened:
        yield opened
