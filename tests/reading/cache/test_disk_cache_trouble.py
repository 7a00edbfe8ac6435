"""The disk cache when its process is killed, its disk fails or fills, and many threads use it: never an error."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.reading.cache.cache_blocks import (
    BLOCK,
    BLOCKS,
    OBJECT_BYTES,
    OBJECTS,
    STORE_ID,
    Open,
    read,
    size_for,
    some_range,
    store,
)
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.types import MIB, ObjectId
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.cache.files import DATA_NAME, INDEX_NAME, CacheFiles
from tierfs.reading.cache.health import CacheState

KILLS = 3
MAX_LIFE_S = 0.05
"""Longest life of a victim once it works: a hundred stores."""


def test_a_killed_process_leaves_right_blocks_or_none(directory: Path, open_cache: Open) -> None:
    chosen = random.Random(11)
    slots = 3 * BLOCKS  # far fewer than the objects have, so that slots change hands all the time
    found = 0
    for seed in range(KILLS):
        words = ["tests.reading.cache.cache_blocks", str(directory), str(size_for(slots)), str(seed)]
        with subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"working\n"
            with suppress(subprocess.TimeoutExpired):
                process.wait(chosen.random() * MAX_LIFE_S)
            process.kill()
        cache = open_cache(slots=slots)
        assert cache.stats.used_bytes > 0
        found += sum(read(cache, 1 + n, at * BLOCK) > 0 for n in range(OBJECTS) for at in range(BLOCKS))
        store(cache, 1)
        assert read(cache, 1) == OBJECT_BYTES
        cache.close()
    assert found > KILLS * slots // 2


def test_a_second_process_goes_on_without_the_cache(
    open_cache: Open, directory: Path, metrics: Metrics, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is in use by another process; reading without it")
    cache = open_cache()
    assert DiskCache.open(directory, STORE_ID, size_for(100), metrics) is None
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES
    cache.close()
    assert read(open_cache(), 1) == OBJECT_BYTES


def test_a_full_disk_stops_growth_and_nothing_else(
    open_cache: Open, small_disk: Path, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    expected_warnings.append("does not grow: the disk is full")
    (small_disk / "others").write_bytes(bytes(20 * MIB))
    cache = open_cache(slots=1000, at=small_disk / "cache")
    for object_id in (1, 2, 3):
        store(cache, object_id)
        assert (read(cache, object_id), cache.stats.used_bytes) == (0, 0)
    assert len(caplog.records) == 1
    os.truncate(small_disk / "others", 10 * MIB)
    for object_id in range(1, 41):
        store(cache, object_id)
        assert read(cache, object_id) == OBJECT_BYTES
    assert cache.stats.state is CacheState.FULL_DISK
    assert 7 * MIB < cache.stats.used_bytes <= 14 * MIB
    (small_disk / "others").unlink()
    for object_id in range(41, 81):
        store(cache, object_id)
        assert read(cache, object_id) == OBJECT_BYTES
    assert cache.stats.used_bytes >= 16 * MIB


def test_room_is_left_to_others(open_cache: Open, small_disk: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("does not grow: the disk is full")
    others = small_disk / "others"
    others.write_bytes(bytes(5 * MIB))
    cache = open_cache(slots=1000, at=small_disk / "cache", floor=4 * MIB)  # 19 MiB: 8 for the cache, then 3 too few
    for object_id in range(1, 21):
        store(cache, object_id)
    assert (cache.stats.state, cache.stats.used_bytes) == (CacheState.FULL_DISK, 8 * MIB)
    status = os.statvfs(small_disk)
    assert status.f_bavail * status.f_frsize >= 4 * MIB
    # Growth begins again with more room than it ended with.
    for others_bytes, state, new in ((3.5 * MIB, CacheState.FULL_DISK, 21), (2.5 * MIB, CacheState.ON, 22)):
        os.truncate(others, int(others_bytes))
        cache.forget(ObjectId(20))  # free slots are no sign of room
        store(cache, 20)
        store(cache, new)
        assert cache.stats.state is state


def test_a_disk_that_fills_during_a_store_loses_no_slot(
    open_cache: Open, directory: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append("does not grow: the disk is full")
    cache = open_cache(slots=4 * BLOCKS)
    store(cache, 1)
    with replaced(directory / DATA_NAME, Path("/dev/full"), os.O_WRONLY):
        store(cache, 2)
    assert (cache.stats.state, cache.stats.used_bytes) == (CacheState.FULL_DISK, BLOCKS * BLOCK)
    for object_id in (2, 3, 4):
        store(cache, object_id)
    assert [read(cache, object_id) for object_id in (1, 2, 3, 4)] == [OBJECT_BYTES] * 4
    store(cache, 5)
    assert cache.stats.state is CacheState.ON


def test_a_failing_disk_switches_the_cache_off_once(
    open_cache: Open, directory: Path, metrics: Metrics, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    expected_warnings.append("failed and is disabled until the next start")
    cache = open_cache()
    store(cache, 1)
    with replaced(directory / DATA_NAME, Path("/dev/null"), os.O_WRONLY):
        assert read(cache, 1) == 0
        assert read(cache, 1) == 0
    store(cache, 2)
    cache.forget(ObjectId(1))
    assert cache.stats.state is CacheState.FAILED
    assert (read(cache, 2), read(cache, 1, now=True), cache.holds(ObjectId(1), 0)) == (0, 0, False)
    assert len(caplog.records) == 1
    assert 'tierfs_cache_errors_total{cache="disk"} 1.0' in metrics.exposition().decode()
    assert read(open_cache(), 1) == OBJECT_BYTES


@pytest.mark.parametrize("file", [DATA_NAME, INDEX_NAME])
def test_a_disk_that_fails_while_storing(
    open_cache: Open, directory: Path, expected_warnings: list[str], file: str
) -> None:
    expected_warnings.append(f"failed and is disabled.*{os.strerror(errno.EBADF)}")
    cache = open_cache()
    store(cache, 1)
    with replaced(directory / file, Path("/dev/null"), os.O_RDONLY):
        store(cache, 2)
    assert cache.stats.state is CacheState.FAILED
    assert cache.stats.used_bytes == BLOCKS * BLOCK
    assert read(cache, 1) == 0


def test_directories_that_cannot_be_used(
    directory: Path, small_disk: Path, metrics: Metrics, expected_warnings: list[str]
) -> None:
    expected_warnings.append(r"disk cache .* (cannot be opened|are too small for a block).*; reading without it")
    assert DiskCache.open(directory / "deep", STORE_ID, MIB, metrics) is None
    assert not directory.exists()
    assert DiskCache.open(directory, STORE_ID, BLOCK, metrics) is None
    assert DiskCache.open(Path("/proc/tierfs"), STORE_ID, MIB, metrics) is None
    directory.write_text("a file")
    assert DiskCache.open(directory, STORE_ID, MIB, metrics) is None
    directory.unlink()
    directory.mkdir()
    directory.chmod(0o777)
    assert DiskCache.open(directory, STORE_ID, MIB, metrics) is None
    assert list(directory.iterdir()) == []
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert DiskCache.open(small_disk / "cache", STORE_ID, size_for(100), metrics) is None


def test_many_threads_find_right_bytes_and_the_table_stays_whole(open_cache: Open) -> None:
    slots = 2 * BLOCKS
    cache = open_cache(slots=slots)
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        try:
            for _ in range(300):
                wanted = some_range(chosen)
                action = chosen.random()
                if action < 0.4:
                    store(cache, *wanted)
                elif action < 0.95:
                    read(cache, *wanted, now=chosen.random() < 0.5)
                else:
                    cache.forget(ObjectId(wanted[0]))
                assert cache.stats.used_bytes <= slots * BLOCK
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert cache.stats.hits > 0
    table = cache._table
    assert sorted([*table._order, *table._free]) == list(range(slots))
    named = {place for blocks in table._by_object.values() for place in blocks.values()}
    assert named == set(table._order.values())
    for object_id in range(1, 1 + OBJECTS):
        store(cache, object_id)
        assert read(cache, object_id) == OBJECT_BYTES


def test_a_close_while_others_read_and_store(open_cache: Open) -> None:
    before = len(os.listdir("/proc/self/fd"))
    cache = open_cache()
    began = threading.Barrier(4)
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        began.wait()
        try:
            while cache.stats.state is not CacheState.CLOSED:
                store(cache, *some_range(chosen))
                read(cache, *some_range(chosen))
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    began.wait()
    while cache.stats.hits < 50:
        read(cache, 1)
    cache.close()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_block_whose_slot_changes_hands_while_it_is_read_is_only_a_miss(
    open_cache: Open, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache(slots=BLOCKS)
    store(cache, 1)
    plain = CacheFiles.read

    def overtaken(files: CacheFiles, slot: int, view: memoryview) -> int:
        store(cache, 2)
        return plain(files, slot, view)

    monkeypatch.setattr(CacheFiles, "read", overtaken)
    assert read(cache, 1) == 0
    monkeypatch.undo()
    assert read(cache, 2) == OBJECT_BYTES
    assert "tierfs_checksum_failures_total{" not in metrics.exposition().decode()


@contextmanager
def replaced(file: Path, path: Path, flags: int) -> Iterator[None]:
    """Another file under the descriptor of `file` for a while: what a disk that fails looks like."""
    (fd,) = (int(link.name) for link in Path("/proc/self/fd").iterdir() if link.exists() and link.samefile(file))
    kept, other = os.dup(fd), os.open(path, flags)
    os.dup2(other, fd, inheritable=False)
    os.close(other)
    try:
        yield
    finally:
        os.dup2(kept, fd, inheritable=False)
        os.close(kept)
