"""A long read goes on with an object that moves to another storage class meanwhile, and calls nothing damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.classed_storage import ClassedStorage, InClass
from tests.doubles.manual_clock import ManualClock
from tests.stores import TestStore, open_test_store, quiet
from tierfs.base.bytes.progress import Meter
from tierfs.base.options.precedence import Effective, PolicyOrigin, SetBy
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import Archived
from tierfs.base.words.types import ReadPriority
from tierfs.engine.metadata import policies
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.cache.fill import Warmer
from tierfs.reading.cache.fill_plan import Target, plan
from tierfs.upkeep.check.scrub.pieces import pieces
from tierfs.upkeep.check.scrub.scrub import Scrubber

_DATA = b"abcdefgh"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestStore]:
    """A store with one cold segment, in a bucket with classes."""
    monkeypatch.setattr(policies, "has_classes", lambda _: True)
    clock = ManualClock(1_700_000_000_000)
    bucket = ClassedStorage(clock)
    with open_test_store(tmp_path, policy={"object_bytes": "8"}, cold=bucket, clock=clock) as made:
        made.in_class = lambda name: InClass(bucket, bucket, name)
        made.append("s", _DATA, seal=True)
        made.offload()
        made.evict()
        yield made


def archive(store: TestStore, storage_class: str) -> None:
    """Move everything to a class, and delete the objects of before."""
    with store.holding() as work:
        assert work.archive("", storage_class, dry_run=False, report=quiet).objects == 1
    store.clock.advance(24 * 3600)  # type: ignore[attr-defined]
    store.settle()
    assert len([name for name in store.cold.objects if name.startswith("segments/")]) == 1  # type: ignore[attr-defined]


def test_a_running_check_reads_the_object_under_its_new_name(store: TestStore) -> None:
    scrubber = Scrubber(store.metadata, store.files, lambda _: store.cold)
    begun = list(pieces(store.metadata, store.segment("s").id))
    archive(store, "GLACIER_IR")
    assert [(checked.bad, checked.crc32c != 0) for checked in scrubber.run(begun)] == [((), True)]


def test_a_running_check_says_that_the_object_must_be_restored(store: TestStore) -> None:
    scrubber = Scrubber(store.metadata, store.files, lambda _: store.cold)
    begun = list(pieces(store.metadata, store.segment("s").id))
    archive(store, "GLACIER")
    (checked,) = scrubber.run(begun)
    assert (checked.away, checked.is_archived) == (True, True)


@pytest.mark.parametrize("storage_class", ["GLACIER_IR", "GLACIER"])
def test_a_running_warm_up_fetches_the_object_under_its_new_name(
    store: TestStore, storage_class: str, tmp_path: Path
) -> None:
    segment = store.segment("s")
    priority = Effective(ReadPriority.OFFLOADED_FIRST, PolicyOrigin(SetBy.CALL))
    wanted = plan(store.metadata, [Target("s", segment.id, priority)], 1 << 20).wanted
    archive(store, storage_class)
    cache = DiskCache.open_or_raise(tmp_path / "c", store.metadata.store_id, 1 << 20, NullMetrics(), free_floor_bytes=0)
    try:
        warmer = Warmer(cache, store.metadata, lambda _: store.cold, NullMetrics(), Meter(), 1, store.files)
        if storage_class == "GLACIER":
            with pytest.raises(Archived):
                warmer.run(wanted)
        else:
            warmer.run(wanted)
            assert warmer.uncached_bytes == 0
    finally:
        cache.close()
