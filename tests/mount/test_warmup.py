"""tierfs warmup while a mount has the disk cache: the mount fills it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.faults.worker import reference
from tests.mount.conftest import Mount, append
from tests.reading.cache.cache_blocks import BLOCK, size_for
from tierfs.app import store
from tierfs.reading.stats import CacheReport
from tierfs.types import CRC_BLOCK_BYTES

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

SIZE = 9_000_001


def switch_on(store: store.Store, slots: int, *settings: str) -> None:
    lines = ["[read]", f"cache_bytes = {size_for(slots)}", *settings]
    (store.path / "store.toml").write_text("\n".join(lines))


@pytest.fixture
def cold(store: store.Store) -> store.Store:
    """The store with its cache on and `d/one` and `d/two` cold."""
    switch_on(store, 1000)
    for name in ("d/one", "d/two"):
        append(store, name, reference(0, SIZE), seal=name == "d/one")
    verbs.offload(store)
    verbs.evict(store, "d")
    return store


def report(mountpoint: Path) -> CacheReport:
    return CacheReport.decode((mountpoint / ".tierfs/cache").read_bytes())


def empty_objects(store: store.Store) -> None:
    """Make every object of the cold tier useless."""
    for path in (store.path / "cold").rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def test_the_mount_with_the_cache_fills_it(cold: store.Store, mount: Mount, tmp_path: Path) -> None:
    first, second = mount(), mount()
    assert (report(first.path).state, report(second.path).state) == ("on", "off")
    done = tierfs("warmup", second.path / "d", "--json", store=cold.path).json
    assert done["paths"] == ["d"]
    assert done["held_bytes"] == 2 * SIZE
    assert done["already_held_bytes"] == CRC_BLOCK_BYTES  # the mount's rehearsal
    assert done["mountpoint"] == str(first.path)
    assert (cold.path / "cache/tierfs-cache.data").stat().st_size >= 2 * SIZE
    empty_objects(cold)
    before = report(first.path)
    again = tierfs("warmup", "d", "--json", store=cold.path).json
    assert (again["held_bytes"], again["already_held_bytes"]) == (2 * SIZE, 2 * SIZE)
    assert report(first.path).misses == before.misses
    first.process.terminate()
    assert first.process.wait(30) == 0
    third = mount().path  # with an empty memory, and without a cold tier
    assert (third / "d/one").read_bytes() == (third / "d/two").read_bytes() == reference(0, SIZE)


def test_bytes_in_the_page_cache_are_read_anew(cold: store.Store, mount: Mount) -> None:
    switch_on(cold, 72, 'budget_bytes = "16MiB"', 'max_window_bytes = "2MiB"')
    append(cold, "other", reference(0, 2 * SIZE))
    verbs.offload(cold)
    verbs.evict(cold)
    mnt = mount().path
    (mnt / "d/one").read_bytes()
    (mnt / "other").read_bytes()  # pushes it out of the disk cache and of the mount's memory, not of the kernel's
    done = tierfs("warmup", "d/one", "--json", store=cold.path).json
    assert done["already_held_bytes"] < done["held_bytes"] == SIZE


def test_a_disk_that_lags_behind_is_waited_for(cold: store.Store, mount: Mount) -> None:
    switch_on(cold, 1000, 'budget_bytes = "24MiB"', 'max_window_bytes = "2MiB"')
    append(cold, "large", reference(0, 24_000_000))
    append(cold, "small", reference(0, 1000))
    verbs.offload(cold)
    verbs.evict(cold)
    mount(fault="slow-cache")
    done = tierfs("warmup", "large", "small", "--json", store=cold.path).json
    assert done["held_bytes"] == 24_001_000


def test_what_the_mount_reads_locally_is_skipped(cold: store.Store, mount: Mount) -> None:
    append(cold, "d/three", reference(0, 1000))
    verbs.offload(cold)  # in both tiers, and local bytes go first
    mount()
    done = tierfs("warmup", "d", "--json", store=cold.path).json
    assert (done["held_bytes"], done["local_bytes"]) == (2 * SIZE, 1000)


def test_more_than_fits(cold: store.Store, mount: Mount) -> None:
    switch_on(cold, 64, 'max_window_bytes = "2MiB"')
    mount()
    done = tierfs("warmup", "d/one", "--json", store=cold.path, check=False)
    assert done.code == 0
    assert "only the beginning was warmed up" in json.loads(done.err)["warning"]
    assert done.json["held_bytes"] == 32 * BLOCK


def test_a_mount_that_cannot_deliver(cold: store.Store, mount: Mount) -> None:
    mount()
    empty_objects(cold)
    done = tierfs("warmup", "d", store=cold.path, check=False)
    assert done.code == 11
    assert "d/one cannot be read through the mount at" in done.err
