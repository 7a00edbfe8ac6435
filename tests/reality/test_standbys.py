"""A few failovers under load; `python -m tests.reality standbys --failovers 10` is all of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.reality.lives import buckets_at, directories_in
from tests.reality.outages import Outages
from tests.reality.standbys import Failovers

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))

pytestmark = pytest.mark.timeout(300)


def test_failovers_lose_and_double_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    assert Failovers(tmp_path, directories_in(tmp_path), SEED).run(1)["records"]


@pytest.mark.whole
def test_failovers_on_s3(tmp_path: Path, rgw_bucket: Bucket) -> None:
    assert Failovers(tmp_path, buckets_at(rgw_bucket[0]), SEED).run(4)["records"]


@pytest.mark.whole
def test_an_outage_of_the_bucket_is_no_silence_of_the_owner(tmp_path: Path, rgw_bucket: Bucket) -> None:
    assert len(Outages(tmp_path, rgw_bucket[0]).run()) == 6
