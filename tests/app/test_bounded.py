"""What reads a whole store, or makes one again, holds no segment in memory: measured at two sizes of a store."""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.stores import quiet
from tierfs.app import check
from tierfs.app import store as app
from tierfs.app.recovery.from_objects import recover_from_objects
from tierfs.app.setup.create import init_store
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.tiering.backup import store as dump
from tierfs.upkeep.holder.perform import holding

FEW, MANY = 200, 600

MOST_BYTES_EACH = 600
"""For each segment more. Python's lists of free tuples fill with 450; records and names took 950, 1,140 and 1,370."""


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (
        "engine.metadata.directories.PAGE_SEGMENTS",
        "tiering.candidates.MAX_PACK_ENTRIES",
        "app.recovery.from_objects.SEGMENTS_PER_COMMIT",
    ):
        monkeypatch.setattr(f"tierfs.{limit}", 20)
    monkeypatch.setattr("tierfs.app.recovery.inventory.HEADS_AT_ONCE", 2)
    monkeypatch.setattr("tierfs.engine.journal.publish.ENTRY_BYTES", 10_000)
    monkeypatch.setattr("tierfs.app.recovery.from_objects.Checkpointer", MeasuredCheckpointer)


def peak(work: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        _result = work()  # it counts, too
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class MeasuredCheckpointer(Checkpointer):
    """Notes the peak before it writes: its parts have 4 MiB, which so few segments do not fill."""

    peaks: ClassVar[list[int]] = []

    def checkpoint(self, *arguments: Any, **named: Any) -> Any:
        self.peaks.append(tracemalloc.get_traced_memory()[1])
        return super().checkpoint(*arguments, **named)


def ignored(_journal: str) -> None:
    """The journal may be ignored."""


def made(path: Path, count: int) -> Place:
    """A store of open segments in packs; return its cold tier."""
    (path / "cold").mkdir(parents=True)
    place = Place.parsed((path / "cold").as_uri())
    init_store(path / "store", place)
    with app.open_store(path / "store") as store:
        with closing(store.engine.bulk_creator()) as bulk:
            for first in range(0, count, FEW):
                names = [f"d{number // 1000}/a-name-of-some-length-{number:06}" for number in range(first, first + FEW)]
                bulk.create([WholeSegment(name, bytearray(b"ab"), IngestedFile()) for name in names], seal=False)
        with holding(store, "a test") as work:
            work.offload("", quiet)
    return place


def measured(path: Path, count: int) -> dict[str, int]:
    place, found = made(path, count), {}
    with app.open_store(path / "store") as store:
        found["check PATH"] = peak(lambda: deque(check.verify(store, "", quiet), maxlen=1))
        found["ends of chunks after a restore"] = peak(partial(dump.end_active_chunks, store.metadata))
    before = MeasuredCheckpointer.peaks
    before.clear()
    recover_peak = peak(partial(recover_from_objects, path / "rebuilt", place, quiet, ignored))
    assert len(before) == 1
    assert before[0] <= recover_peak
    return {**found, "recover --from-objects": before[0]}


def test_memory_does_not_grow_with_the_segments(tmp_path: Path) -> None:
    few, many = measured(tmp_path / "few", FEW), measured(tmp_path / "many", MANY)
    grown = {name: (many[name] - few[name]) / (MANY - FEW) for name in few}
    assert {name: each for name, each in grown.items() if each > MOST_BYTES_EACH} == {}
