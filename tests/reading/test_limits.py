"""Limits of a reader that is at work: set, tightened and removed while it reads."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.reading.readers import DATA, check, make_cold, reading
from tests.stores import TestStore
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.throttle import Throttle
from tierfs.base.words.errors import BudgetSpent
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.reading.spending import read_rows

FAST = 1 << 40


async def test_limits_count_from_when_they_are_set_until_they_are_removed(
    store: TestStore, tmp_path: Path, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tierfs")
    expected_warnings.append("reads are refused: user ")
    make_cold(store)
    throttle, file = Throttle(), tmp_path / "budgets"

    async with reading(store) as (reader, handle):

        def limit(**settings: object) -> None:
            reader.limit(ReadSettings(**settings), lambda: throttle, (file, tmp_path / "lock"))  # type: ignore[arg-type]

        await check(handle, 0, 1000)
        assert reader.gate is None
        limit(bandwidth=FAST, hourly_bytes=FAST)
        await check(handle, 2_500_000, 1000)
        assert CRC_BLOCK_BYTES <= throttle.granted_bytes <= len(DATA)
        limit(hourly_bytes=1, when_spent="refuse")
        for _ in range(3):
            with pytest.raises(BudgetSpent):
                await handle.read(1_500_000, 1000)
        assert sum("(read.hourly_bytes)" in line for line in caplog.messages) == 1, "the reason is logged once"
        await check(handle, 2_500_000, 1000)  # in memory
        limit()
        await check(handle, 1_500_000, 1000)
    (spent,) = read_rows(file).values()
    assert spent.bytes > 1
