"""Stores with two places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.tiering.archive.two_places import DATA, World


@pytest.fixture
def bare(tmp_path: Path) -> World:
    world = World(tmp_path / "store", tmp_path / "cold", tmp_path / "nas")
    world.cold.mkdir()
    world.nas.mkdir()
    tierfs("-q", "init", "--cold-dir", world.cold, store=world.path)
    world.fill(DATA)
    return world


@pytest.fixture
def world(bare: World) -> World:
    bare.run("config", f"archive.place={bare.nas}", "-q")
    return bare
