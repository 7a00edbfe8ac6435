"""A store made by the command, for each test that adopts by the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import tierfs


@pytest.fixture
def store(tmp_path: Path) -> Path:
    tierfs("-q", "init", store=tmp_path / "store")
    return tmp_path / "store"
