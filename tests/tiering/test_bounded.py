"""Commands over many segments remember those in work, not all: memory at two sizes of a store."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store, quiet
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.metadata.records import IngestedFile
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.tiering.part import MovedPart
from tierfs.upkeep.holder.work import ColdWork

FEW, MANY = 250, 1000

MOST_BYTES_EACH = 150
"""For each segment more. A name and an id take 150, with the record 1,500."""

VERBS: dict[str, Callable[[ColdWork], object]] = {
    "orphans": lambda work: work.orphans(grace_s=0),
    "offload --keep": lambda work: work.offload("", quiet, MovedPart(keep_bytes=2)),
    "offload": lambda work: work.offload("", quiet),
    "evict, dry": lambda work: work.evict("", force=False, dry_run=True, report=quiet),
    "evict --keep": lambda work: work.evict("", force=False, dry_run=False, report=quiet, part=MovedPart(keep_bytes=2)),
    "evict": lambda work: work.evict("", force=False, dry_run=False, report=quiet),
    "consolidate": lambda work: work.consolidate("", dry_run=False, report=quiet),
}


@pytest.fixture(autouse=True)
def small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (
        "engine.metadata.directories.PAGE_SEGMENTS",
        "tiering.candidates.MAX_PACK_ENTRIES",
        "tiering.packs.packing._PARTS_IN_WORK",
        "tiering.packs.packing._BATCH",
        "tiering.offload_command._PLANNED_TOGETHER",
        "tiering.evict.MOST_SEGMENTS",
        "tiering.evict._BATCH_CHUNKS",
        "tiering.garbage.collect._BATCH_ROWS",
        "tiering.garbage.orphans._LOOKED_AT_TOGETHER",
    ):
        monkeypatch.setattr(f"tierfs.{limit}", 20)
    monkeypatch.setattr("tierfs.engine.journal.publish.ENTRY_BYTES", 10_000)


def fill(store: TestStore, count: int) -> None:
    with closing(store.engine.bulk_creator()) as bulk:
        for first in range(0, count, 250):
            names = [f"d{number // 1000}/a-name-of-some-length-{number:06}" for number in range(first, first + 250)]
            bulk.create([WholeSegment(name, bytearray(b"ab"), IngestedFile()) for name in names], seal=True)
    for name in store.files.names():
        os.utime(store.files.root / name, (0, 0))  # the clock of the tests stands in the past of the disk's


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measured(path: Path, count: int) -> dict[str, int]:
    path.mkdir()
    cold = DirectoryStorage.create(path / "cold")
    with open_test_store(path, cold=cold, policy={"chunk_bytes": "1000", "object_bytes": "100000"}) as store:
        fill(store, count)
        found = {}
        for name, verb in VERBS.items():
            with store.holding() as work:
                found[name] = peak(partial(verb, work))
        return found


def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    few, many = measured(tmp_path / "few", FEW), measured(tmp_path / "many", MANY)
    grown = {name: (many[name] - few[name]) / (MANY - FEW) for name in VERBS}
    assert {name: each for name, each in grown.items() if each > MOST_BYTES_EACH} == {}
