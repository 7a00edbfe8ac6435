"""A store in fake time over a cold tier that fails on demand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store
from tests.upkeep.holder.holding import FlakyStorage, TrioClock


@pytest.fixture
def storage() -> FlakyStorage:
    return FlakyStorage(ManualClock())


@pytest.fixture
def store(tmp_path: Path, storage: FlakyStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", clock=TrioClock(), cold=storage) as opened:
        yield opened
