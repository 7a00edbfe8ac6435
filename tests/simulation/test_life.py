"""Random verbs through the command line agree with memory, with the mount, and with what the bucket gives back."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.mount.waiting import eventually
from tests.simulation.by_commands import World
from tierfs.app import store as app
from tierfs.engine.metadata import directories

pytestmark = [pytest.mark.mount, pytest.mark.slow, pytest.mark.timeout(300, method="thread")]

STEPS = {"alone": 40, "mounted": 25}
"""With a mount each step waits until it shows there."""
POLICY = ("chunk_bytes=16KiB", "object_bytes=64KiB", "deletion_lag=1s", "read_priority=local-first")


@pytest.fixture(params=["directory", pytest.param("rgw", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Options of `init` and `recover` that name one cold tier."""
    if request.param == "directory":
        (tmp_path / "cold").mkdir()
        return ["--cold-dir", str(tmp_path / "cold")]
    endpoint, bucket = request.getfixturevalue("rgw_bucket")
    return ["--bucket", f"s3://{bucket}/life", "--endpoint-url", endpoint.endpoint_url]


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "mnt"
    point.mkdir()
    yield point
    if point.is_mount():
        subprocess.run(["umount", "-l", str(point)], check=True)


@pytest.mark.parametrize("way", STEPS)
def test_random_verbs_agree_with_memory_mount_and_bucket(
    place: list[str], way: str, mountpoint: Path, tmp_path: Path
) -> None:
    mounted = way == "mounted"
    world = World(tmp_path / "store", seed := random.randrange(2**32))
    world.steps.append(f"seed {seed}")
    world.command("init", *place)
    world.command("config", "/", *POLICY)
    if mounted:
        world.command("mount", mountpoint)
    for _ in range(STEPS[way]):
        world.step()
        assert stored_bytes(world.path) == expected_bytes(world), world.steps
        if mounted:
            assert eventually(lambda: mounted_bytes(mountpoint) == expected_bytes(world), within_s=15), world.steps
    if mounted:
        world.command("umount", mountpoint)
    world.command("offload")
    assert tierfs("check", store=world.path, check=False).code == 0, world.steps
    shutil.rmtree(world.path)
    world.command("recover", *place)
    assert stored_bytes(world.path) == expected_bytes(world), world.steps
    assert tierfs("check", "--read", store=world.path, check=False).code == 0, world.steps


def expected_bytes(world: World) -> dict[str, bytes]:
    return {name: one.readable for name, one in world.segments.items()}


def stored_bytes(path: Path) -> dict[str, bytes]:
    """Return the output of `tierfs cat` for every segment, without a process for each."""
    found: dict[str, bytes] = {}
    with app.open_store(path) as store:
        with store.metadata.read() as txn:
            root = directories.find(txn, "")
            assert root is not None
            names = [name for name, _ in directories.segments_below(txn, root, "")]
        for name in names:
            out = bytearray()
            verbs.cat(store, name, None, None, None, out.extend)
            found[name] = bytes(out)
    return found


def mounted_bytes(mountpoint: Path) -> dict[str, bytes]:
    """Return the bytes of the mount's files, without those that disappear or cannot be read meanwhile."""
    found: dict[str, bytes] = {}
    for path in mountpoint.rglob("*"):
        if path.is_file():
            with suppress(OSError):
                found[str(path.relative_to(mountpoint))] = path.read_bytes()
    return found
