"""fsck's child is this process, and the cold tier is in memory."""

from __future__ import annotations

import pytest

from tests.fsck.checked import read_metadata_here
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.clock import ManualClock


@pytest.fixture(autouse=True)
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """See read_metadata_here; `monkeypatch.undo` gives a test children again."""
    read_metadata_here(monkeypatch)


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock)
