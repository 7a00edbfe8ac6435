"""A few kills of a follower under the real logrotate; `python -m tests.reality follow` has many."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.reality import followed

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))

pytestmark = pytest.mark.timeout(300)


# tests/app/follow has each way to rotate, without kills; these two begin new files, and use one again.
IN_EACH_RUN = ("copytruncate", "dateext delaycompress")


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[pytest.mark.whole] * (mode not in IN_EACH_RUN)) for mode in followed.MODES]
)
def test_every_line_once_under_logrotate(tmp_path: Path, mode: str) -> None:
    choice = random.Random(f"{SEED} {mode}")
    drill = followed.run(tmp_path, mode, choice, count=4, bytes_per_s=500_000, every_s=0.2, kills=3, most_calls=150)
    assert drill.wrong() == [], SEED
    assert (drill.gaps, drill.rotated.rotations > 1) == ("", True), SEED
