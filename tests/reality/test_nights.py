"""A full disk and one that the kernel made read-only; `python -m tests.reality nights` is more of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.disks import disk, failing_disk
from tests.reality.lives import directories_in
from tests.reality.nights import Nights

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))
DISK_BYTES = 200 << 20

pytestmark = [pytest.mark.mount, pytest.mark.slow, pytest.mark.timeout(600)]


def nights_on(path: Path, tmp_path: Path) -> Nights:
    for name in ("places", "mnt"):
        (tmp_path / name).mkdir()
    return Nights(path, directories_in(tmp_path / "places"), SEED, tmp_path / "mnt")


@pytest.mark.parametrize("nights", [1, pytest.param(2, marks=pytest.mark.whole)])
def test_a_disk_that_is_full_under_everything(tmp_path: Path, nights: int) -> None:
    with disk(tmp_path / "disk", DISK_BYTES) as path:
        assert nights_on(path, tmp_path).full(nights)["records"]


def test_a_disk_that_fails_under_everything(tmp_path: Path) -> None:
    with failing_disk(tmp_path / "disk", DISK_BYTES) as bad:
        assert nights_on(bad.path, tmp_path).read_only(bad, 1)["appends refused"]
