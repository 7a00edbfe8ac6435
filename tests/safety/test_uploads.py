"""Distributed writes at their limits, and uploads that arrive in part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tests.tiering.batch_writes import Driver, contents
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import Source, StoredObject
from tierfs.errors import DataLoss, InvalidRequest
from tierfs.journal.cold_identity import read_small
from tierfs.metadata import changes
from tierfs.tiering import batch_job


class Short(MemoryStorage):
    """Takes less of an upload than it was given."""

    lacks = 0

    def put(self, name: str, source: Source, **named: object) -> StoredObject:
        stored = super().put(name, source, **named)  # type: ignore[arg-type]
        return replace(stored, length_bytes=stored.length_bytes - self.lacks)


@pytest.fixture
def cold() -> Short:
    return Short()


@pytest.fixture
def store(tmp_path: Path, cold: Short) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=cold) as opened:
        yield opened


@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_has_as_many_segments_as_the_limit_at_most(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(batch_job, "MAX_SEGMENTS", 2)
    segments = {f"out/{number}": b"abc" for number in range(2 + more)}
    if more:
        with pytest.raises(InvalidRequest, match="one write of 3 segments"):
            Driver(store).write(segments)
    else:
        Driver(store).write(segments)
    assert contents(store) == ({} if more else segments)


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_task_reports_no_object_that_arrived_in_part(store: TestStore, cold: Short, lacks: int) -> None:
    driver = Driver(store)
    plan = driver.begin()
    cold.lacks = lacks
    if lacks:
        with pytest.raises(DataLoss, match="2 of 3 bytes arrived"):
            driver.upload(plan, {"out/a": b"abc"})
        assert not list(cold.list("uploads/"))
    else:
        assert [one.segment for one in driver.upload(plan, {"out/a": b"abc"})] == ["out/a"]


def test_parts_of_a_manifest_are_as_large_as_readers_accept(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_job, "_PART_BYTES", 300)
    segments = {f"out/{number:03d}": b"abc" for number in range(20)}
    Driver(store).write(segments)
    names = [one.name for one in store.cold.list("uploads/") if batch_job.is_manifest(one.name)]
    parts = [changes.parse_batch_manifest(read_small(store.cold, name), name) for name in names]
    assert sum(len(part.segments) for part in parts) == 20
    assert all(sum(each.ByteSize() for each in part.segments) <= 300 for part in parts)
