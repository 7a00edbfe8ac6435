"""The check's child is this process, and the cold tier is in memory."""

from __future__ import annotations

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.upkeep.check.checked import read_metadata_here
from tierfs.engine.chunkstore.memory import MemoryStorage


@pytest.fixture(autouse=True)
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """See read_metadata_here; `monkeypatch.undo` gives a test children again."""
    read_metadata_here(monkeypatch)


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock)
