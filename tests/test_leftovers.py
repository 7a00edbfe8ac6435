"""A run of tests that was killed leaves no mount in the way of the next one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leftovers import LOCK, unmount_leftovers
from tests.mount.conftest import Mounted, opened_store, serving

pytestmark = pytest.mark.mount


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The temporary directory of another run."""
    return tmp_path / "runs" / "pytest-7"


@pytest.fixture
def mounted(run: Path, tmp_path: Path) -> Iterator[Mounted]:
    """A mount of that run whose process was killed."""
    (run / "mnt").mkdir(parents=True)
    with opened_store(tmp_path / "store") as store, serving(store.path, run / "mnt") as mounted:
        mounted.process.kill()
        mounted.process.wait(30)
        yield mounted


@pytest.mark.parametrize("lock", ["of a process that has ended", "none"])
def test_a_mount_of_a_run_that_is_over_is_unmounted(run: Path, mounted: Mounted, lock: str) -> None:
    if lock != "none":
        (run / LOCK).write_text(str(mounted.process.pid))
    assert mounted.is_mounted()
    unmount_leftovers(run.parent)
    assert not mounted.is_mounted()


def test_a_mount_of_a_run_in_progress_and_one_elsewhere_stay(run: Path, mounted: Mounted) -> None:
    (run / LOCK).write_text(str(os.getpid()))
    unmount_leftovers(run.parent)
    (run / LOCK).unlink()
    unmount_leftovers(run.parent / "other")
    assert mounted.is_mounted()
