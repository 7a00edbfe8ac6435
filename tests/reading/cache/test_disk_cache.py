"""The disk cache: right bytes or none, within its size, over restarts."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.doubles.page_cache import ToldPages
from tests.reading.cache.cache_blocks import (
    BLOCK,
    BLOCKS,
    HEADER_BYTES,
    OBJECT_BYTES,
    RECORD_BYTES,
    STORE_ID,
    Open,
    grid,
    read,
    size_for,
    some_range,
    store,
)
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.types import ObjectId
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.cache.files import DATA_NAME, INDEX_NAME, CacheFiles
from tierfs.reading.cache.health import CacheState


def test_ranges_are_stored_whole_or_with_holes_and_found_up_to_the_next_one(open_cache: Open, metrics: Metrics) -> None:
    cache = open_cache()
    assert read(cache, 3) == 0
    store(cache, 1, 0, 2 * BLOCK)
    store(cache, 2)
    store(cache, 1, 3 * BLOCK, 4 * BLOCK)
    assert read(cache, 1) == 2 * BLOCK
    assert read(cache, 1, 2 * BLOCK) == 0
    assert read(cache, 1, 3 * BLOCK) == BLOCK
    assert [cache.holds(ObjectId(1), index * BLOCK) for index in range(6)] == [True, True, False, True, False, False]
    text = metrics.exposition().decode()
    assert 'tierfs_cache_hits_total{cache="disk"} 3.0' in text
    assert f'tierfs_cache_misses_total{{cache="disk"}} {4.0 + BLOCKS}' in text  # block 2 twice, 4 and 5 once
    assert metrics.registry.get_sample_value("tierfs_cache_bytes", {"cache": "disk"}) == (3 + BLOCKS) * BLOCK
    store(cache, 1)
    assert read(cache, 1) == read(cache, 2) == OBJECT_BYTES
    assert read(cache, 1, 5 * BLOCK) == OBJECT_BYTES - 5 * BLOCK
    assert cache.stats.used_bytes == 2 * BLOCKS * BLOCK


def test_read_now_does_not_wait_for_the_disk(open_cache: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache()
    store(cache, 1)
    with monkeypatch.context() as patch:
        patch.setattr(ToldPages, "holds", False)
        assert read(cache, 1, 3 * BLOCK, now=True) == 0
        assert read(cache, 1) == OBJECT_BYTES
    assert read(cache, 1, now=True) == OBJECT_BYTES
    assert read(cache, 2, now=True) == 0
    assert (cache.stats.hits, cache.stats.misses) == (2 * BLOCKS, 0)


@pytest.mark.parametrize("page_cache", ["untold"], indirect=True)
def test_read_now_on_a_filesystem_without_it_is_never_a_hit(open_cache: Open) -> None:
    cache = open_cache()
    store(cache, 1)
    assert read(cache, 1, now=True) == 0
    assert read(cache, 1) == OBJECT_BYTES
    assert cache.stats.state is CacheState.ON


@pytest.mark.parametrize("now", [False, True])
def test_a_bad_block_is_a_miss_and_heals(open_cache: Open, directory: Path, metrics: Metrics, now: bool) -> None:
    cache = open_cache()
    store(cache, 1)
    damage(directory / DATA_NAME, 2 * BLOCK + 5)
    assert read(cache, 1, now=now) == 2 * BLOCK
    assert not cache.holds(ObjectId(1), 2 * BLOCK)
    assert 'tierfs_checksum_failures_total{source="disk cache"} 1.0' in metrics.exposition().decode()
    store(cache, 1)
    assert read(cache, 1) == OBJECT_BYTES


def test_the_checksum_of_the_caller_counts(open_cache: Open) -> None:
    cache = open_cache()
    store(cache, 1)
    assert cache.read(ObjectId(1), 0, memoryview(bytearray(OBJECT_BYTES)), grid(2)) == 0
    assert not cache.holds(ObjectId(1), 0)


def test_a_healed_block_wins_over_its_old_slot_after_a_restart(open_cache: Open, directory: Path) -> None:
    cache = open_cache()
    store(cache, 2)
    store(cache, 1)
    damage(directory / DATA_NAME, (2 * BLOCKS - 1) * BLOCK)
    cache.forget(ObjectId(2))  # the healed block goes to a slot before the old one
    assert read(cache, 1) == 5 * BLOCK
    store(cache, 1)
    cache = open_cache()
    assert read(cache, 1) == OBJECT_BYTES
    assert cache.stats.used_bytes == BLOCKS * BLOCK


def test_a_restart_keeps_blocks_and_their_order(open_cache: Open, metrics: Metrics) -> None:
    cache = open_cache(slots=2 * BLOCKS)
    store(cache, 1)
    store(cache, 2)
    metrics.set_gauge(MetricName.CACHE_BYTES, 0, cache="disk")
    cache = open_cache(slots=2 * BLOCKS)
    assert metrics.registry.get_sample_value("tierfs_cache_bytes", {"cache": "disk"}) == 2 * BLOCKS * BLOCK
    assert read(cache, 1) == read(cache, 2) == OBJECT_BYTES
    for object_id in (3, 4):
        store(open_cache(slots=2 * BLOCKS), object_id)
    cache = open_cache(slots=2 * BLOCKS)
    assert [read(cache, object_id) for object_id in (1, 2, 3, 4)] == [0, 0, OBJECT_BYTES, OBJECT_BYTES]


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
    os.truncate(directory / DATA_NAME, BLOCK + 5)  # while it is in use
    assert read(cache, 1) == BLOCK
    for index in range(1, 6):
        assert read(cache, 1, index * BLOCK) == 0
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


def test_another_size_at_the_next_start(open_cache: Open, directory: Path, metrics: Metrics) -> None:
    cache = open_cache(slots=3 * BLOCKS)
    for object_id in (1, 2, 3):
        store(cache, object_id)
    cache = open_cache(slots=BLOCKS)
    assert sum(file.stat().st_size for file in directory.iterdir()) <= size_for(BLOCKS)
    assert [read(cache, object_id) for object_id in (1, 2, 3)] == [OBJECT_BYTES, 0, 0]
    cache = open_cache(slots=4)
    store(cache, 5)
    assert read(cache, 5) == 4 * BLOCK, "a range larger than the cache is stored in part"
    cache = open_cache(slots=2 * BLOCKS)
    store(cache, 4)
    assert read(cache, 4) == OBJECT_BYTES
    assert DiskCache.open(directory / "off", STORE_ID, 0, metrics) is None, "it is off, and says nothing"


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


def test_slots_freed_in_any_order_are_neighbours_again(open_cache: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache(slots=2 * BLOCKS)
    store(cache, 1)
    store(cache, 2)
    for index in reversed(range(BLOCKS)):
        read(cache, 1, index * BLOCK, min(OBJECT_BYTES, (index + 1) * BLOCK))
    read(cache, 2)
    store(cache, 3)
    sizes = watch_reads(monkeypatch)
    assert read(cache, 3) == OBJECT_BYTES
    assert sizes == [OBJECT_BYTES]


def damage(path: Path, at: int) -> None:
    """Flip a bit."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def watch_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each system call that reads from now on."""
    plain, sizes = CacheFiles.read, []

    def watched(files: CacheFiles, slot: int, view: memoryview) -> int:
        sizes.append(len(view))
        return plain(files, slot, view)

    monkeypatch.setattr(CacheFiles, "read", watched)
    return sizes
