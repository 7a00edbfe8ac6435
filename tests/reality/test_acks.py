"""A few kills while appends wait for the cold tier; `python -m tests.reality acks --kills 200` is all of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.reality.acks import Drill
from tests.reality.lives import buckets_at, directories_in

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))

pytestmark = pytest.mark.timeout(300)


def test_kills_lose_and_double_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    assert Drill(tmp_path, directories_in(tmp_path), SEED).run(4)["records"]


@pytest.mark.parametrize("kills", [2, pytest.param(4, marks=pytest.mark.whole)])
def test_kills_on_s3(tmp_path: Path, rgw_bucket: Bucket, kills: int) -> None:
    assert Drill(tmp_path, buckets_at(rgw_bucket[0]), SEED).run(kills)["records"]
