"""A store in a container takes the memory that its limit allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tierfs.app.setup.create import INSIDE, init_store
from tierfs.app.store import open_store
from tierfs.base.system import memory_limit
from tierfs.base.system.memory_limit import MemoryLimit
from tierfs.base.words.types import MIB


def test_a_store_reads_and_sends_within_the_memory_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init_store(tmp_path / "store", INSIDE)
    monkeypatch.setattr(memory_limit, "find", lambda: MemoryLimit(272 * MIB, 272 * MIB, Path("/container")))
    with open_store(tmp_path / "store") as store:
        assert store.reader().settings.budget_bytes == 48 * MIB
        assert store.cold_location is not None
        assert store.place_of(store.cold_location).settings.parts_in_parallel == 4
