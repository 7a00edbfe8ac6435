"""Warm-up requests: served by the process with the cache, given up with who asked, and done by who asked without it."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.mount.conftest import append
from tests.mount.waiting import eventually
from tests.reading.cache.cache_blocks import BLOCK, size_for
from tests.reality.reference import reference
from tierfs.app import fill_cache
from tierfs.app import store as app
from tierfs.app.fill_cache import WarmReport, warm_up
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.progress import Progress, unseen
from tierfs.base.words.errors import Conflict, DataLoss, Fenced, StorageFull
from tierfs.base.words.types import ROOT_DIRECTORY, RequestState
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.holder_records import RequestRecord
from tierfs.engine.metadata.tables import REQUESTS
from tierfs.reading.cache.cache import DiskCache
from tierfs.upkeep.holder import perform, requests
from tierfs.upkeep.holder.requests import RequestServer

pytestmark = pytest.mark.timeout(60)

SIZE = 9_000_001
MOUNTPOINT = Path("/mnt/of/a/test")


class MountEnds(BaseException):
    """Raised in the server's thread, as trio's Cancelled is."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[app.Store]:
    """A store whose segment `d/one` is cold, in objects of 1 MiB, and a mount that is said to have its cache."""
    init_store(tmp_path / "store")
    (tmp_path / "store" / "store.toml").write_text(f"[read]\ncache_bytes = {size_for(1000)}\nstreams = 1\n")
    monkeypatch.setattr(fill_cache, "_mount_with", lambda *_: MOUNTPOINT)
    with app.open_store(tmp_path / "store") as opened:
        with opened.metadata.write() as txn:
            sizes = {"chunk_bytes": str(1 << 20), "object_bytes": str(1 << 20)}
            policies.put(txn, ROOT_DIRECTORY, sizes | {"read_priority": "local-first", "offload_after": "1000000000"})
        append(opened, "d/one", reference(0, SIZE), seal=True)
        verbs.offload(opened)
        verbs.evict(opened)
        yield opened


@pytest.fixture
def cache(store: app.Store) -> Iterator[DiskCache]:
    """The cache, as a mount has it open."""
    opened = store.reader(cached=True).cache
    assert opened is not None
    with closing(opened):
        yield opened


def server(store: app.Store, cache: DiskCache, *, directory: str = "cache", ends: bool = False) -> RequestServer:
    def go_on() -> None:
        if ends:
            raise MountEnds

    return fill_cache.server(store, cache, store.path / directory, go_on, lambda: None)


class Command(threading.Thread):
    """`tierfs warmup d`, in a thread of its own."""

    def __init__(self, store: app.Store) -> None:
        super().__init__(daemon=True)
        self._store = store
        self.seen: list[Progress] = []
        self.result: WarmReport | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = warm_up(self._store, ["d"], self.seen.append)
        except Exception as exc:
            self.error = exc

    def asked(self) -> RequestRecord:
        self.start()
        assert eventually(lambda: len(rows(self._store)) == 1)
        return rows(self._store)[0]


def rows(store: app.Store) -> list[RequestRecord]:
    with store.metadata.read() as txn:
        return [row for _, row in txn.scan(REQUESTS)]


def slow_down(store: app.Store, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.05) -> None:
    """Let every GET of the cold tier take its time."""
    location_id = store.cold_location_id
    assert location_id is not None
    storage = store.storage_of(location_id)
    original = storage.read_into

    def slow(*some: Any, **options: Any) -> Any:
        time.sleep(seconds)
        return original(*some, **options)

    monkeypatch.setattr(storage, "read_into", slow)


def test_the_process_with_the_cache_fills_it(
    store: app.Store, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_down(store, monkeypatch, 0.1)
    append(store, "d/local", b"x" * 1000)
    verbs.offload(store)  # in both tiers, and a mount reads it from the disk
    command = Command(store)
    command.asked()
    server(store, cache).serve()
    command.join(30)
    assert command.result == WarmReport(2, SIZE, SIZE, 0, 1000, mountpoint=str(MOUNTPOINT))
    assert cache.stats.used_bytes >= SIZE
    assert rows(store) == []
    assert any(0 < progress.done_bytes < SIZE == progress.total_bytes for progress in command.seen)


def test_an_error_of_the_process_with_the_cache_is_the_commands(
    store: app.Store, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill_cache, "room_bytes", lambda *_: 0)
    command = Command(store)
    command.asked()
    server(store, cache).serve()
    command.join(30)
    assert isinstance(command.error, StorageFull)
    assert "has no space" in str(command.error)


def test_a_command_that_went_away_ends_the_filling(
    store: app.Store, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_down(store, monkeypatch, 0.2)
    options = {"cache": str((store.path / "cache").resolve()), "paths": '["d"]', "mountpoint": "/m"}
    number = requests.submit(store.metadata, requests.WARM_UP, "d", options)
    serving = threading.Thread(target=server(store, cache).serve, daemon=True)
    serving.start()
    assert eventually(lambda: cache.stats.used_bytes > 0)
    requests.withdraw(store.metadata, number)
    serving.join(10)
    assert not serving.is_alive()
    assert 0 < cache.stats.used_bytes < SIZE // 2
    assert rows(store) == []


def test_a_command_fills_the_cache_itself_when_the_mount_ends(
    store: app.Store, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(store)
    command.asked()
    with pytest.raises(MountEnds):
        server(store, cache, ends=True).serve()
    assert rows(store)[0].state is RequestState.RUNNING
    cache.close()
    command.join(30)
    assert command.result == WarmReport(1, SIZE, SIZE)
    assert rows(store) == []


def test_the_next_mount_takes_what_a_dead_one_left(store: app.Store, cache: DiskCache) -> None:
    command = Command(store)
    command.asked()
    with pytest.raises(MountEnds):
        server(store, cache, ends=True).serve()
    server(store, cache).serve()
    command.join(30)
    assert command.result == WarmReport(1, SIZE, SIZE, mountpoint=str(MOUNTPOINT))


def test_a_request_is_for_the_one_process_that_has_the_cache(store: app.Store, cache: DiskCache) -> None:
    command = Command(store)
    assert command.asked().options["cache"] == str((store.path / "cache").resolve())
    server(store, cache, directory="another").serve()
    holder = perform.server(store.cold_work())
    assert holder.next() is None
    assert rows(store)[0].state is RequestState.WAITING
    assert requests.take_next(store.metadata, lambda row: row.verb == requests.WARM_UP) is not None
    assert perform.server(store.cold_work()).next() is None  # nor does it begin again what runs elsewhere
    assert rows(store)[0].state is RequestState.RUNNING
    server(store, cache).serve()
    command.join(30)
    assert command.result is not None


def test_a_store_that_may_only_be_read_is_warmed_up(store: app.Store, cache: DiskCache) -> None:
    with store.metadata.write() as txn:
        txn.update_store(replica=True)
    with pytest.raises(Fenced):
        requests.submit(store.metadata, "offload", "d", {})
    command = Command(store)
    command.asked()
    server(store, cache).serve()
    command.join(30)
    assert command.result is not None
    assert command.result.held_bytes == SIZE


def test_a_cache_that_no_mount_serves_is_a_conflict(
    store: app.Store, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with pytest.raises(Conflict, match="not a mount of this store that could fill it"):
        warm_up(store, ["d"], unseen)
    assert rows(store) == []


@pytest.fixture
def packed(store: app.Store) -> dict[str, bytes]:
    """Segments of all sizes around a block, cold in one pack, of which a byte of `p/1` is flipped."""
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"read_priority": "local-first", "offload_after": "1000000000"})
    sizes = [3000, 3000, 3000, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 3000]
    data = {f"p/{number}": random.Random(number).randbytes(size) for number, size in enumerate(sizes)}
    for name, content in data.items():
        append(store, name, content, seal=True)
    verbs.offload(store)
    verbs.evict(store)
    (pack,) = (store.path / "cold" / "packs").iterdir()
    content = bytearray(pack.read_bytes())
    content[4000] ^= 1
    pack.chmod(0o600)
    status = pack.stat()
    pack.write_bytes(content)
    os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))
    return data


@pytest.mark.parametrize("name", ["p/0", "p/2", "p/3", "p/4", "p/6"])
def test_a_neighbours_bit_in_a_shared_block_is_no_damage(
    store: app.Store, packed: dict[str, bytes], expected_warnings: list[str], name: str
) -> None:
    """The block cannot be cached; a reader of `cat` proves the chunk by its own checksum, and so does a warm-up."""
    shares = name in ("p/0", "p/2", "p/3")
    if shares:
        expected_warnings.append("are valid, but cannot be cached")
    report = warm_up(store, [name], unseen)
    in_block = BLOCK - 9000 if name == "p/3" else 3000 if shares else 0
    assert report.held_bytes == len(packed[name]) - in_block


def test_a_damaged_segment_keeps_no_other_from_being_warmed_up(
    store: app.Store, packed: dict[str, bytes], expected_warnings: list[str]
) -> None:
    expected_warnings.append("are valid, but cannot be cached")
    with pytest.raises(DataLoss, match=r"p/1: packs/.* does not match its checksums"):
        warm_up(store, ["p"], unseen)
    assert warm_up(store, ["p/4", "p/5", "p/6"], unseen).already_held_bytes == 3 * BLOCK + 3000


def test_a_warm_up_passes_within_the_bandwidth_of_reads(store: app.Store) -> None:
    store.paths.settings.write_text(f'[read]\ncache_bytes = {size_for(1000)}\nbandwidth = "1TiB"\n')
    store.reload()
    assert warm_up(store, ["d"], unseen).held_bytes == SIZE
    assert SIZE <= store.limits.reads.granted_bytes < SIZE + 10 * BLOCK
