"""Restore drills by the tools that people have."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.app.recovery.test_copied_tier import TOOLS, copy_bucket, rclone_bucket
from tests.conftest import Bucket
from tests.reality.drills import drill
from tests.reality.lives import Place, buckets_at, directories_in

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("tool", ["tar", pytest.param("rclone", marks=pytest.mark.whole)])
def test_a_directory_is_restored_from_its_copies(tool: str, tmp_path: Path) -> None:
    def copy(source: Place, target: Place) -> None:
        Path(target.url).rmdir()
        TOOLS[tool](Path(source.url), Path(target.url))

    drill(tmp_path, directories_in(tmp_path), copy, SEED, large=False)


# The same as with directories; test_copied_tier.py recovers from a copied bucket in each run.
@pytest.mark.whole
@pytest.mark.parametrize(("tool", "large"), [(copy_bucket, False), (copy_bucket, True), (rclone_bucket, True)])
def test_a_bucket_is_restored_from_its_copies(
    tool: Callable[..., None], tmp_path: Path, rgw_bucket: Bucket, large: bool
) -> None:
    endpoint, _ = rgw_bucket

    def copy(source: Place, target: Place) -> None:
        tool(endpoint, *(urlsplit(place.url).netloc for place in (source, target)))

    drill(tmp_path, buckets_at(endpoint), copy, SEED, large=large)
