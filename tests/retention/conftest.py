"""A store whose clock the tests of lifetimes move; its policy is the module's POLICY."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=request.module.POLICY, clock=clock) as opened:
        yield opened
