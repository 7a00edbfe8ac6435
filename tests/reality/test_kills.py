"""A few kills of each command at drawn system calls; `python -m tests.reality kills --every` is all of them."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import forked
from tests.conftest import Bucket
from tests.disks import disk
from tests.reality import kills
from tests.reality.lives import Life, buckets_at, directories_in
from tests.reality.reference import reference

SEED = os.environ.get("TIERFS_SEED", str(random.randrange(2**32)))
KILLS = 1
KILLED_BEFORE = {"load": (250,)}
"""Calls at which a defect was found."""
COLD = ("offload", "recover", "archive")
MORE_COLD = ("batch-write", "unarchive", "offload-ledgers", "evict", "consolidate", "compress", "gc", "move", "init")

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("command", kills.COMMANDS)
def test_a_killed_command_changed_all_or_nothing_and_can_be_repeated(command: str, tmp_path: Path) -> None:
    kills.run(tmp_path, directories_in(tmp_path), command, SEED, KILLS, at=KILLED_BEFORE.get(command, ()))


@pytest.mark.parametrize("command", [*COLD, *(pytest.param(name, marks=pytest.mark.whole) for name in MORE_COLD)])
def test_a_killed_command_on_s3(command: str, tmp_path: Path, rgw_bucket: Bucket) -> None:
    kills.run(tmp_path, buckets_at(rgw_bucket[0]), command, SEED, 1)


@pytest.mark.parametrize("count", [8, pytest.param(None, marks=pytest.mark.whole)])
def test_commands_on_a_disk_that_is_nearly_full(tmp_path: Path, count: int | None) -> None:
    """Each run draws others of all commands."""
    with disk(tmp_path / "disk", 200 << 20) as path:
        kills.run_full(path, directories_in(random.Random(SEED).choice([path, tmp_path])), SEED, 1, count)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory whose page cache tells what it has, where there is a disk: pytest's are in memory."""
    with TemporaryDirectory(prefix="tierfs-test-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.mark.mount
def test_a_mount_killed_during_reads_is_mounted_again(on_disk: Path) -> None:
    life = Life(on_disk, directories_in(on_disk), random.Random(SEED))
    life.append("s", reference(0, 8_000_000))
    (mnt := on_disk / "mnt").mkdir()
    for _ in range(3):
        process = forked.Talking("tests.mount.runner", life.path, mnt)
        assert process.line() == "ready\n"
        with subprocess.Popen(["cat", mnt / "s"], stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            reader.stdout.read(life.chosen.randrange(8_000_000))
            assert process.end()[1] == ""
            reader.stdout.close()
            reader.wait(30)  # with an error or with everything, but it ends
    process = forked.Talking("tests.mount.runner", life.path, mnt)
    assert process.line() == "ready\n"
    assert (mnt / "s").read_bytes() == reference(0, 8_000_000)
    process.end()
    subprocess.run(["umount", "-l", mnt] if os.geteuid() == 0 else ["fusermount3", "-uz", mnt], check=True)
