"""A few objects to a class and back, with kills; `python -m tests.reality --place rgw archives` is a thousand."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.conftest import Bucket
from tests.reality.archives import ArchiveDrill
from tests.reality.lives import buckets_at, directories_in

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))

pytestmark = [pytest.mark.timeout(300), pytest.mark.whole]


def test_objects_that_go_to_a_second_place_and_back_under_kills(tmp_path: Path) -> None:
    places = directories_in(tmp_path)
    assert ArchiveDrill(tmp_path, places, SEED, 12, places()).run(2)["kills"] == 2


def test_objects_that_go_to_a_class_and_back_under_kills(tmp_path: Path, rgw_bucket: Bucket) -> None:
    assert ArchiveDrill(tmp_path, buckets_at(rgw_bucket[0]), SEED, 12).run(2)["kills"] == 2
