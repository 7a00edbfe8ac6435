"""A store of its own for each test of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A new store whose cold tier is a directory in it."""
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    return path
