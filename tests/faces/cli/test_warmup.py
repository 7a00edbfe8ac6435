"""tierfs warmup in its own process: the bytes it fetches and omits, and its messages."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.commands import tierfs
from tests.faces.cli.test_bad_input import fails, refused
from tests.mount.conftest import append
from tests.reading.cache.cache_blocks import BLOCK, size_for
from tests.reading.conftest import small_disk  # noqa: F401  # a fixture
from tests.reality.reference import reference
from tierfs.app import store as app
from tierfs.app.fill_cache import WarmReport, warm_up
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.progress import Progress, unseen
from tierfs.base.words.errors import DataLoss, Unavailable
from tierfs.base.words.types import ROOT_DIRECTORY
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.tables import GARBAGE
from tierfs.reading.cache.files import CacheFiles
from tierfs.upkeep.holder.perform import perform
from tierfs.upkeep.holder.verbs import CONSOLIDATE

SIZE = 5_000_001
NEVER_S = "1000000000"


def switch_on(store: Path, slots: int = 1000, *settings: str) -> None:
    lines = ["[read]", f"cache_bytes = {size_for(slots)}", *settings]
    (store / "store.toml").write_text("\n".join(lines))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with its cache on, and segments in objects of 1 MiB: `d/one` and `d/two` cold, `local` not."""
    path = tmp_path / "store"
    init_store(path)
    switch_on(path)
    with app.open_store(path) as opened:
        with opened.metadata.write() as txn:
            settings = {"chunk_bytes": str(1 << 20), "object_bytes": str(1 << 20), "offload_after": NEVER_S}
            policies.put(txn, ROOT_DIRECTORY, settings)
        for name in ("d/one", "d/two"):
            append(opened, name, reference(0, SIZE))
        verbs.offload(opened)
        verbs.evict(opened, "d/one")
        append(opened, "local", b"x" * 1000)
    return path


class Counted:
    """A storage that counts bytes read from it, and may fail or stop after some."""

    def __init__(self, storage: ChunkStorage) -> None:
        self._storage = storage
        self.read_bytes = 0
        self.fail_after: int | None = None
        self.meanwhile: Callable[[], object] | None = None
        """Run once, before the first read."""
        self.lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def read_into(self, name: str, offset: int, buffer: memoryview, **options: Any) -> None:
        with self.lock:
            if self.fail_after is not None and self.read_bytes >= self.fail_after:
                raise Unavailable("the cold tier does not respond")
            self.read_bytes += len(buffer)
            meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._storage.read_into(name, offset, buffer, **options)


@pytest.fixture
def counted(store: Path) -> Iterator[tuple[app.Store, Counted]]:
    with app.open_store(store) as opened:
        storage = Counted(opened.storage_of(opened.cold_location_id))
        opened.locations._following[opened.cold_location_id] = storage
        yield opened, storage


def warm(store: app.Store, *paths: str) -> WarmReport:
    return warm_up(store, paths, unseen)


def test_nothing_is_fetched_twice_and_a_damaged_block_once_more(counted: tuple[app.Store, Counted]) -> None:
    store, cold = counted
    seen: list[Progress] = []
    warm_up(store, ["d/one"], seen.append)
    assert cold.read_bytes == SIZE
    assert seen[-1] == Progress(SIZE, SIZE, "d/one", 5, 5, "range")
    assert warm(store, "d/one").already_held_bytes == SIZE
    assert cold.read_bytes == SIZE
    assert warm(store, "").already_held_bytes == SIZE
    assert cold.read_bytes == 2 * SIZE
    with (store.path / "cache" / "tierfs-cache.data").open("r+b") as file:
        file.seek(7 * BLOCK + 3)
        file.write(b"damage")
    report = warm(store, "d")
    assert (report.held_bytes, cold.read_bytes) == (2 * SIZE, 2 * SIZE + BLOCK)


def replace_objects(store: app.Store, *, collect: bool) -> None:
    """Join all objects of each segment into one; with `collect` delete the old ones."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"object_bytes": str(8 << 20), "offload_after": NEVER_S})
    perform(store, CONSOLIDATE, "d")
    if collect:
        with store.metadata.read() as txn:
            rows = [(key, row) for key, row in txn.scan(GARBAGE)]
        for _, row in rows:
            store.storage_of(row.location_id).delete(row.name)


@pytest.mark.parametrize("collect", [False, True])
def test_objects_that_are_replaced_meanwhile_are_followed(counted: tuple[app.Store, Counted], collect: bool) -> None:
    store, cold = counted
    cold.meanwhile = lambda: replace_objects(store, collect=collect)
    report = warm(store, "d")
    assert (report.cold_bytes, report.held_bytes) == (2 * SIZE, 2 * SIZE)
    fetched = cold.read_bytes
    assert warm(store, "d").already_held_bytes == 2 * SIZE
    assert cold.read_bytes == fetched


def test_an_object_that_is_missing_is_told(counted: tuple[app.Store, Counted]) -> None:
    store, cold = counted
    for found in list(cold.list("segments/d/one/")):
        cold.delete(found.name)
    with pytest.raises(DataLoss, match="d/one"):
        warm(store, "d")


def test_a_cold_tier_that_goes_down_on_the_way(counted: tuple[app.Store, Counted]) -> None:
    store, cold = counted
    cold.fail_after = SIZE
    with pytest.raises(Unavailable, match="does not respond"):
        warm(store, "d")
    fetched, cold.fail_after = cold.read_bytes, None
    report = warm(store, "d")
    assert report.held_bytes == 2 * SIZE
    assert 0 < report.already_held_bytes <= fetched
    assert cold.read_bytes - fetched == 2 * SIZE - report.already_held_bytes


def test_a_cache_disk_without_room(store: Path, small_disk: Path) -> None:  # noqa: F811
    switch_on(store, 1000, f'cache_directory = "{small_disk}/cache"')
    refused(fails("warmup", "d", store=store), 28, "has no space", "read.cache_directory")


def test_a_cache_disk_that_fails(store: Path, monkeypatch: pytest.MonkeyPatch, expected_warnings: list[str]) -> None:
    expected_warnings.append("failed and is disabled until the next start")

    def fail(*some: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(CacheFiles, "write", fail)
    with app.open_store(store) as opened, pytest.raises(Unavailable, match=r"disk cache .* failed"):
        warm(opened, "d")


def test_ctrl_c_keeps_what_was_fetched(store: Path) -> None:
    switch_on(store, 1000, "streams = 1")
    process = subprocess.Popen(
        [
            "env",
            "--default-signal=INT",
            sys.executable,
            "-m",
            "tests.faces.cli.commands.stalling",
            str(store),
            str(4 << 20),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "stalled\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert said == "tierfs: interrupted; 4 MiB were warmed up (Interrupted, exit 130)\n  to continue, run it again\n"
    done = tierfs("warmup", "d", "--json", store=store).json
    assert (done["held_bytes"], done["already_held_bytes"]) == (2 * SIZE, 4 << 20)
