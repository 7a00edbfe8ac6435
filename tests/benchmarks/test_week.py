"""Twelve hours that stand for the week: metadata and garbage stay below their share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import week
from tierfs.base.words.types import MIB


@pytest.mark.slow
def test_metadata_and_garbage_stay_below_one_percent(tmp_path: Path) -> None:
    policy = week.POLICY | {"seal_bytes": str(16 * MIB), "retention_bytes": str(128 * MIB)}
    hours = list(week.live(tmp_path / "store", 12, policy))
    assert hours[-1].data_bytes < 12 * sum(week.RATES.values()) / 24 * 0.95  # retention took some of the fast stream
    assert any(one.garbage_bytes for one in hours)
    metadata_bytes = [one.lmdb_bytes + one.journal_bytes for one in hours]
    assert all(size < one.data_bytes * week.SHARE_LIMIT for size, one in zip(metadata_bytes, hours, strict=True))
    # What retention took waits for the grace period of one hour, and no longer.
    assert all(one.garbage_bytes <= 1.5 * week.RATES["fast"] / 24 for one in hours)
