"""Stores, disk caches for the tests of this folder, and a disk small enough to fill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import disk
from tests.doubles.scripted_storage import ScriptedStorage
from tests.reading.cache.cache_blocks import STORE_ID, Open, size_for
from tests.reading.readers import POLICY
from tests.stores import TestStore, open_test_store
from tierfs.base.system.prometheus import Metrics
from tierfs.reading.cache.cache import DiskCache


@pytest.fixture
def storage() -> ScriptedStorage:
    return ScriptedStorage()


@pytest.fixture
def store(tmp_path: Path, storage: ScriptedStorage) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY, cold=storage) as opened:
        yield opened


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 24 MiB."""
    with disk(tmp_path / "disk", 24 << 20) as path:
        yield path
