"""The disk cache: right bytes or none, within its size, and never an error whatever its disk does."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.reading.cache_blocks import BLOCK, OBJECT_BYTES, OBJECTS, STORE_ID, grid, read, some_range, store
from tierfs.metrics import Metrics
from tierfs.reading.cache_files import DATA_NAME, INDEX_NAME, slots_within
from tierfs.reading.cache_health import CacheState
from tierfs.reading.disk_cache import DiskCache
from tierfs.types import MIB, ObjectId

RECORD_BYTES = 32
HEADER_BYTES = 64
KILLS = 15
MAX_LIFE_S = 0.05
BLOCKS = -(-OBJECT_BYTES // BLOCK)


def size_for(slots: int) -> int:
    """The smallest cache of so many slots."""
    return HEADER_BYTES + slots * (BLOCK + RECORD_BYTES)


Open = Callable[..., DiskCache]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def open_cache(directory: Path, metrics: Metrics) -> Iterator[Open]:
    opened: list[DiskCache] = []

    def opener(slots: int = 100, store_id: str = STORE_ID, at: Path = directory, floor: int = 0) -> DiskCache:
        for cache in opened:
            cache.close()
        cache = DiskCache.open(at, store_id, size_for(slots), metrics, free_floor_bytes=floor)
        assert cache is not None
        opened.append(cache)
        return cache

    yield opener
    for cache in opened:
        cache.close()


def test_round_trip(open_cache: Open) -> None:
    cache = open_cache()
    assert read(cache, 1) == 0
    store(cache, 1)
    store(cache, 2)
    assert read(cache, 1) == read(cache, 2) == OBJECT_BYTES
    assert read(cache, 1, 2 * BLOCK, 4 * BLOCK) == 2 * BLOCK
    assert read(cache, 1, 5 * BLOCK) == OBJECT_BYTES - 5 * BLOCK
    assert read(cache, 3) == 0
    stats = cache.stats
    assert (stats.used_bytes, stats.hits, stats.misses) == (2 * BLOCKS * BLOCK, 2 * BLOCKS + 3, 2 * BLOCKS)


def test_the_longest_prefix_is_found(open_cache: Open, metrics: Metrics) -> None:
    cache = open_cache()
    store(cache, 1, 0, 2 * BLOCK)
    store(cache, 1, 3 * BLOCK, 4 * BLOCK)
    assert read(cache, 1) == 2 * BLOCK
    assert read(cache, 1, 2 * BLOCK) == 0
    assert read(cache, 1, 3 * BLOCK) == BLOCK
    assert [cache.holds(ObjectId(1), index * BLOCK) for index in range(6)] == [True, True, False, True, False, False]
    text = metrics.exposition().decode()
    assert 'tierfs_cache_hits_total{cache="disk"} 3.0' in text
    assert 'tierfs_cache_misses_total{cache="disk"} 4.0' in text  # block 2 twice, 4 and 5 once
    assert f'tierfs_cache_bytes{{cache="disk"}} {3.0 * BLOCK}' in text


def test_a_range_with_holes_is_filled_in(open_cache: Open) -> None:
    cache = open_cache()
    store(cache, 1, BLOCK, 2 * BLOCK)
    store(cache, 2)
    store(cache, 1, 3 * BLOCK, 4 * BLOCK)
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES
    assert cache.stats.used_bytes == 2 * BLOCKS * BLOCK


def test_read_now_finds_what_is_in_the_page_cache(open_cache: Open) -> None:
    cache = open_cache()
    store(cache, 1)
    assert read(cache, 1, now=True) == OBJECT_BYTES
    assert read(cache, 2, now=True) == 0
    assert (cache.stats.hits, cache.stats.misses) == (BLOCKS, 0)


def test_read_now_does_not_wait_for_the_disk(open_cache: Open, directory: Path) -> None:
    cache = open_cache()
    store(cache, 1)
    with (directory / DATA_NAME).open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert read(cache, 1, 3 * BLOCK, now=True) == 0
    assert read(cache, 1) == OBJECT_BYTES
    assert read(cache, 1, now=True) == OBJECT_BYTES


def test_read_now_on_a_filesystem_without_it_is_never_a_hit(open_cache: Open, small_disk: Path) -> None:
    cache = open_cache(at=small_disk / "cache")
    store(cache, 1)
    assert read(cache, 1, now=True) == 0
    assert read(cache, 1) == OBJECT_BYTES
    assert cache.stats.state is CacheState.ON


def test_a_bad_block_is_a_miss_and_heals(open_cache: Open, directory: Path, metrics: Metrics) -> None:
    cache = open_cache()
    store(cache, 1)
    damage(directory / DATA_NAME, 2 * BLOCK + 5)
    assert read(cache, 1) == 2 * BLOCK
    assert not cache.holds(ObjectId(1), 2 * BLOCK)
    assert 'tierfs_checksum_failures_total{source="disk cache"} 1.0' in metrics.exposition().decode()
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES


def test_a_bad_block_is_a_miss_without_waiting_too(open_cache: Open, directory: Path) -> None:
    cache = open_cache()
    store(cache, 1)
    damage(directory / DATA_NAME, BLOCK)
    assert read(cache, 1, now=True) == BLOCK
    assert not cache.holds(ObjectId(1), BLOCK)


def test_the_checksum_of_the_caller_counts(open_cache: Open) -> None:
    cache = open_cache()
    store(cache, 1)
    assert cache.read(ObjectId(1), 0, memoryview(bytearray(OBJECT_BYTES)), grid(2)) == 0
    assert not cache.holds(ObjectId(1), 0)


def test_a_healed_block_wins_over_its_old_slot_after_a_restart(open_cache: Open, directory: Path) -> None:
    cache = open_cache()
    for object_id in (1, 2):
        store(cache, object_id)
    damage(directory / DATA_NAME, (BLOCKS - 1) * BLOCK)
    cache.forget(ObjectId(2))
    assert read(cache, 1) == 5 * BLOCK
    store(cache, 3, 0, BLOCK)  # takes the slot of the bad block
    store(cache, 1)
    cache = open_cache()
    assert read(cache, 1) == OBJECT_BYTES
    assert read(cache, 3, 0, BLOCK) == BLOCK


def test_a_restart_keeps_blocks_and_their_order(open_cache: Open) -> None:
    cache = open_cache(slots=2 * BLOCKS)
    store(cache, 1)
    store(cache, 2)
    cache = open_cache(slots=2 * BLOCKS)
    assert read(cache, 1) == read(cache, 2) == OBJECT_BYTES
    cache = open_cache(slots=2 * BLOCKS)
    store(cache, 3)
    assert [read(cache, object_id) for object_id in (1, 2, 3)] == [0, OBJECT_BYTES, OBJECT_BYTES]


@pytest.mark.parametrize("torn", [0, 8, 20, 28])
def test_a_torn_index_record_is_an_empty_slot(open_cache: Open, directory: Path, torn: int) -> None:
    store(open_cache(), 1)
    damage(directory / INDEX_NAME, HEADER_BYTES + 3 * RECORD_BYTES + torn)
    cache = open_cache()
    assert read(cache, 1) == 3 * BLOCK
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES


def test_a_cut_index_and_cut_data_are_empty_slots(open_cache: Open, directory: Path) -> None:
    store(open_cache(), 1)
    os.truncate(directory / INDEX_NAME, HEADER_BYTES + 4 * RECORD_BYTES + 7)
    assert read(open_cache(), 1) == 4 * BLOCK
    os.truncate(directory / DATA_NAME, 2 * BLOCK + 7)
    cache = open_cache()
    assert read(cache, 1) == 2 * BLOCK
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES


@pytest.mark.parametrize("change", ["store id", "header"])
def test_the_cache_of_another_store_is_discarded(open_cache: Open, directory: Path, change: str) -> None:
    store(open_cache(), 1)
    if change == "header":
        damage(directory / INDEX_NAME, 5)
    cache = open_cache(store_id=STORE_ID if change == "header" else "f" * 32)
    assert cache.stats.used_bytes == 0
    assert (directory / DATA_NAME).stat().st_size == 0
    assert read(cache, 1) == 0
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES


def test_blocks_not_read_for_longest_make_room_and_the_files_stay_within_the_size(
    open_cache: Open, directory: Path
) -> None:
    slots = 3 * BLOCKS
    cache = open_cache(slots=slots)
    chosen = random.Random(5)
    for object_id in (1, 2, 3):
        store(cache, object_id)
    assert read(cache, 1) == OBJECT_BYTES
    store(cache, 4)
    assert [read(cache, object_id) for object_id in (1, 2, 3, 4)] == [OBJECT_BYTES, 0, OBJECT_BYTES, OBJECT_BYTES]
    for _ in range(100):
        store(cache, *some_range(chosen))
        assert sum(file.stat().st_size for file in directory.iterdir()) <= size_for(slots)
        assert cache.stats.used_bytes <= slots * BLOCK


def test_a_range_larger_than_the_cache_is_stored_in_part(open_cache: Open) -> None:
    cache = open_cache(slots=4)
    store(cache, 1)
    assert read(cache, 1) == 4 * BLOCK


def test_forgotten_objects_leave_room_and_do_not_come_back(open_cache: Open) -> None:
    cache = open_cache(slots=2 * BLOCKS)
    store(cache, 1)
    store(cache, 2)
    cache.forget(ObjectId(1))
    cache.forget(ObjectId(9))
    assert read(cache, 1) == 0
    assert cache.stats.used_bytes == BLOCKS * BLOCK
    cache = open_cache(slots=2 * BLOCKS)
    assert cache.stats.used_bytes == BLOCKS * BLOCK
    store(cache, 3)
    assert read(cache, 2) == read(cache, 3) == OBJECT_BYTES


def test_another_size_at_the_next_start(open_cache: Open, directory: Path) -> None:
    cache = open_cache(slots=3 * BLOCKS)
    for object_id in (1, 2, 3):
        store(cache, object_id)
    cache = open_cache(slots=BLOCKS)
    assert sum(file.stat().st_size for file in directory.iterdir()) <= size_for(BLOCKS)
    assert [read(cache, object_id) for object_id in (1, 2, 3)] == [OBJECT_BYTES, 0, 0]
    cache = open_cache(slots=2 * BLOCKS)
    store(cache, 4)
    assert read(cache, 1) == read(cache, 4) == OBJECT_BYTES


def test_a_killed_process_leaves_right_blocks_or_none(directory: Path, open_cache: Open) -> None:
    chosen = random.Random(11)
    slots = 3 * BLOCKS  # far fewer than the objects have, so that slots change hands all the time
    found = 0
    for seed in range(KILLS):
        words = ["tests.reading.cache_blocks", str(directory), str(size_for(slots)), str(seed)]
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


def test_a_second_process_goes_on_without(
    open_cache: Open, directory: Path, metrics: Metrics, expected_warnings: list[str]
) -> None:
    expected_warnings.append("is in use by another process; reading without it")
    cache = open_cache()
    assert DiskCache.open(directory, STORE_ID, size_for(100), metrics) is None
    code = (
        "import sys; from pathlib import Path; from tierfs.metrics import NullMetrics\n"
        "from tierfs.reading.disk_cache import DiskCache\n"
        f"sys.exit(DiskCache.open(Path({str(directory)!r}), {STORE_ID!r}, 10**8, NullMetrics()) is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=True)
    assert "is in use by another process" in done.stderr
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES
    cache.close()
    assert read(open_cache(), 1) == OBJECT_BYTES


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 24 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tierfs-test", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_stops_growth_and_nothing_else(
    open_cache: Open, small_disk: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append("does not grow: the disk is full")
    (small_disk / "others").write_bytes(bytes(10 * MIB))
    cache = open_cache(slots=1000, at=small_disk / "cache")
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
    cache = open_cache(slots=1000, at=small_disk / "cache", floor=10 * MIB)
    for object_id in range(1, 41):
        store(cache, object_id)
    assert cache.stats.state is CacheState.FULL_DISK
    assert cache.stats.used_bytes == 8 * MIB
    status = os.statvfs(small_disk)
    assert status.f_bavail * status.f_frsize >= 10 * MIB


def test_a_disk_full_from_the_start_stores_nothing_until_there_is_room(
    open_cache: Open, small_disk: Path, expected_warnings: list[str]
) -> None:
    expected_warnings.append("does not grow: the disk is full")
    (small_disk / "others").write_bytes(bytes(20 * MIB))
    cache = open_cache(at=small_disk / "cache")
    store(cache, 1)
    assert (read(cache, 1), cache.stats.used_bytes) == (0, 0)
    (small_disk / "others").unlink()
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES
    assert cache.stats.state is CacheState.ON


def test_a_failing_disk_switches_the_cache_off_once(
    open_cache: Open, metrics: Metrics, expected_warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    expected_warnings.append("failed and is off until the next start")
    cache = open_cache()
    store(cache, 1)
    with replaced(cache._files._data_fd, Path("/dev/null"), os.O_WRONLY):
        assert read(cache, 1) == 0
        assert read(cache, 1) == 0
    store(cache, 2)
    cache.forget(ObjectId(1))
    assert cache.stats.state is CacheState.FAILED
    assert (read(cache, 2), read(cache, 1, now=True), cache.holds(ObjectId(1), 0)) == (0, 0, False)
    assert len(caplog.records) == 1
    assert 'tierfs_cache_errors_total{cache="disk"} 1.0' in metrics.exposition().decode()
    assert read(open_cache(), 1) == OBJECT_BYTES


@pytest.mark.parametrize("file", ["_data_fd", "_index_fd"])
def test_a_disk_that_fails_while_storing(open_cache: Open, expected_warnings: list[str], file: str) -> None:
    expected_warnings.append(f"failed and is off.*{os.strerror(errno.EBADF)}")
    cache = open_cache()
    store(cache, 1)
    with replaced(getattr(cache._files, file), Path("/dev/null"), os.O_RDONLY):
        store(cache, 2)
    assert cache.stats.state is CacheState.FAILED
    assert cache.stats.used_bytes == BLOCKS * BLOCK
    assert read(cache, 1) == 0


def test_data_cut_while_in_use_are_misses_and_heal(open_cache: Open, directory: Path) -> None:
    cache = open_cache()
    store(cache, 1)
    os.truncate(directory / DATA_NAME, BLOCK + 5)
    assert read(cache, 1) == BLOCK
    for index in range(1, 6):
        assert read(cache, 1, index * BLOCK) == 0
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES
    assert cache.stats.state is CacheState.ON


def test_directories_that_cannot_be_used(directory: Path, metrics: Metrics, expected_warnings: list[str]) -> None:
    expected_warnings.append(r"disk cache .* (cannot be opened|hold no block).*; reading without it")
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


def test_a_read_only_filesystem(
    small_disk: Path, open_cache: Open, metrics: Metrics, expected_warnings: list[str]
) -> None:
    expected_warnings.append(f"cannot be opened.*{os.strerror(errno.EROFS)}")
    cache = open_cache(at=small_disk / "cache")
    store(cache, 1)
    cache.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert DiskCache.open(small_disk / "cache", STORE_ID, size_for(100), metrics) is None


def test_size_zero_is_off_and_says_nothing(directory: Path, metrics: Metrics) -> None:
    assert DiskCache.open(directory, STORE_ID, 0, metrics) is None
    assert not directory.exists()


def test_a_closed_cache_holds_nothing_and_leaves_no_descriptor(open_cache: Open) -> None:
    before = len(os.listdir("/proc/self/fd"))
    cache = open_cache()
    store(cache, 1)
    cache.close()
    cache.close()
    assert (read(cache, 1), read(cache, 1, now=True), cache.holds(ObjectId(1), 0)) == (0, 0, False)
    store(cache, 2)
    assert cache.stats.state is CacheState.CLOSED
    assert len(os.listdir("/proc/self/fd")) == before


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
    plain = cache._files.read

    def overtaken(slot: int, view: memoryview) -> int:
        store(cache, 2)
        return plain(slot, view)

    monkeypatch.setattr(cache._files, "read", overtaken)
    assert read(cache, 1) == 0
    monkeypatch.undo()
    assert read(cache, 2) == OBJECT_BYTES
    assert "tierfs_checksum_failures_total{" not in metrics.exposition().decode()


def test_neighbours_are_read_at_once(open_cache: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache()
    store(cache, 1)
    store(cache, 2)
    plain, sizes = cache._files.read, []

    def counted(slot: int, view: memoryview) -> int:
        sizes.append(len(view))
        return plain(slot, view)

    monkeypatch.setattr(cache._files, "read", counted)
    assert read(cache, 2) == OBJECT_BYTES
    assert sizes == [OBJECT_BYTES]


def test_slots_within() -> None:
    assert slots_within(size_for(7)) == 7
    assert slots_within(size_for(7) - 1) == 6
    assert slots_within(0) == 0


def damage(path: Path, at: int) -> None:
    """Flip a bit."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


class replaced:
    """Another file under a descriptor's number for a while: what a disk that fails looks like."""

    def __init__(self, fd: int, path: Path, flags: int) -> None:
        self._fd, self._path, self._flags = fd, path, flags

    def __enter__(self) -> None:
        self._kept = os.dup(self._fd)
        other = os.open(self._path, self._flags)
        os.dup2(other, self._fd, inheritable=False)
        os.close(other)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, self._fd, inheritable=False)
        os.close(self._kept)
