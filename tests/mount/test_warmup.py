"""tierfs warmup while a mount has the disk cache: the mount fills it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.mount.conftest import Mount, Mounted, append
from tests.mount.runner import SLOW_STORE_S
from tests.mount.waiting import eventually
from tests.reading.cache.cache_blocks import size_for
from tests.reality.reference import reference
from tierfs.app import store
from tierfs.base.words.types import CRC_BLOCK_BYTES
from tierfs.engine.metadata.holder_records import RequestRecord
from tierfs.engine.metadata.tables import REQUESTS
from tierfs.reading.cache_report import CacheReport

pytestmark = [pytest.mark.mount, pytest.mark.timeout(120, method="thread")]

SIZE = 9_000_001
LARGE = 60_000_000


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


def test_bytes_in_the_kernels_page_cache_are_stored_too(cold: store.Store, mount: Mount) -> None:
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


def warming_up(cold: store.Store, mount: Mount) -> tuple[Mounted, subprocess.Popen[str]]:
    """A mount with a slow cache disk, and a warmup that it has been working on for a while."""
    switch_on(cold, 1000, "streams = 1")
    append(cold, "large", reference(0, LARGE))
    verbs.offload(cold)
    verbs.evict(cold)
    mounted = mount(fault="slow-cache")
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tierfs", "--store", cold.path, "warmup", "large"]
    process = subprocess.Popen([*map(str, command), "--json"], stdout=-1, stderr=-1, text=True)
    assert eventually(lambda: any(row.done_bytes for row in rows(cold)))
    return mounted, process


def rows(store: store.Store) -> list[RequestRecord]:
    with store.metadata.read() as txn:
        return [row for _, row in txn.scan(REQUESTS)]


def test_ctrl_c_ends_the_filling_in_the_mount(cold: store.Store, mount: Mount) -> None:
    mounted, process = warming_up(cold, mount)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert rows(cold) == []
    used_bytes = [-1]

    def has_ended() -> bool:
        time.sleep(2 * SLOW_STORE_S)  # it would store something meanwhile
        used_bytes.append(report(mounted.path).used_bytes)
        return used_bytes[-1] == used_bytes[-2]

    assert eventually(has_ended)
    assert 0 < used_bytes[-1] < LARGE
    done = tierfs("warmup", "large", "--json", store=cold.path).json
    assert (done["held_bytes"], done["mountpoint"]) == (LARGE, str(mounted.path))


def test_the_command_goes_on_alone_when_the_mount_is_killed(cold: store.Store, mount: Mount) -> None:
    mounted, process = warming_up(cold, mount)
    mounted.process.kill()
    mounted.process.wait(30)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    done = json.loads(out)
    assert (done["held_bytes"], done["mountpoint"]) == (LARGE, None)
    assert done["already_held_bytes"] > 0
