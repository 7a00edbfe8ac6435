"""A few kills of a server that hosts send their logs to; `python -m tests.reality senders` has many."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.reality import senders

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))


@pytest.mark.timeout(300)
def test_each_line_of_each_host_is_there_once_after_kills_of_the_server(tmp_path: Path) -> None:
    choice = random.Random(SEED)
    drill = senders.run(tmp_path, choice, hosts=2, logs=2, bytes_per_s=200_000, every_s=0.4, kills=2, most_calls=100)
    assert drill.wrong() == [], SEED
    assert (drill.server.kills, drill.logs.rotations > 1) == (2, True), SEED
