"""A store for each test of segments; its policy is the module's POLICY, if it has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def storage(clock: ManualClock) -> ScriptedStorage:
    """The cold tier of `store`."""
    return ScriptedStorage(MemoryStorage(clock))


@pytest.fixture
def store(
    tmp_path: Path, clock: ManualClock, storage: ScriptedStorage, request: pytest.FixtureRequest
) -> Iterator[TestStore]:
    policy = getattr(request.module, "POLICY", None)
    with open_test_store(tmp_path / "store", policy=policy, clock=clock, cold=storage) as opened:
        yield opened
