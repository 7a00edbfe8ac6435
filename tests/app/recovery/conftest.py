"""A bucket in memory and a store for each test of recovery; its policy is the module's POLICY, if it has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.recovery.standing_by import Hosts, hosts_in
from tests.stores import TestStore, open_test_store
from tierfs.engine.chunkstore.memory import MemoryStorage


@pytest.fixture
def cold() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=getattr(request.module, "POLICY", None)) as opened:
        yield opened


@pytest.fixture
def hosts(tmp_path: Path, expected_warnings: list[str]) -> Iterator[Hosts]:
    expected_warnings += [
        "this standby takes the bucket over",
        "this store owns the bucket since",
        "the takeover failed, and is retried",
    ]
    with hosts_in(tmp_path) as hosts:
        yield hosts
