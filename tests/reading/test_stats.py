"""The statistics of a reader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import ReadSettings
from tierfs.base.system import processes
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.types import Opener
from tierfs.reading import open_handles
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import StoreReader
from tierfs.reading.stats import figures, snapshot


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


HERE, GONE = Opener(os.getpid(), 7), Opener(1 << 30, 7)


def opened(reader: StoreReader, store: TestStore, name: str, opener: Opener = HERE) -> ReadHandle:
    handle = reader.open(store.segment(name).id)
    reader.open_handles.opened(handle.segment.id, opener)
    return handle


def close(reader: StoreReader, handle: ReadHandle, opener: Opener) -> None:
    reader.open_handles.closed(handle.segment.id, opener, handle)
    handle.close()


def reader_of(store: TestStore, metrics: Metrics) -> StoreReader:
    return StoreReader(store.metadata, store.files, lambda _: store.cold, ReadSettings(), metrics)


async def test_handles_of_a_segment_are_counted_together_until_the_last_is_closed(store: TestStore) -> None:
    store.append("d/s", b"abcdefgh", seal=True)
    metrics = Metrics()
    async with reader_of(store, metrics) as reader:
        first, second = (opened(reader, store, "d/s", process) for process in (HERE, GONE))
        assert len(reader.open_handles) == 2
        for handle, end in ((first, 3), (second, 8)):
            length = len(await handle.read(0, end))
            reader.open_handles.served(handle, end, length)
        (shown,) = snapshot(reader).segments
        assert (shown.name, shown.handles, shown.length, shown.sealed) == ("d/s", 2, 8, True)
        here, gone = shown.processes
        assert (here.pid, here.uid, here.handles) == (os.getpid(), 7, 1)
        assert here.command == processes.command_of(os.getpid()) != ""
        assert gone.command == ""
        assert (shown.requests, shown.bytes, shown.offset, shown.served_from) == (2, 11, 8, "local")
        assert metrics.values(MetricName.READ_BYTES) == {("local",): 11, ("cold",): 0}
        close(reader, second, GONE)
        (shown,) = snapshot(reader).segments
        assert (shown.handles, shown.bytes) == (1, 11)
        close(reader, first, HERE)
        assert snapshot(reader).segments == ()
        assert (figures(reader).handles, figures(reader).segments_open) == (0, 0)
        requests = metrics.values(MetricName.READ_REQUESTS)
        store.append("d/t", b"abcd")
        handle = opened(reader, store, "d/t")
        reader.open_handles.served(handle, 4, len(await handle.read(4, 100)))
        assert snapshot(reader).segments[0].requests == 0, "a read at the end counts nowhere"
        assert metrics.values(MetricName.READ_REQUESTS) == requests
        reader.open_handles.served(handle, 4, len(await handle.read(0, 4)))
        store.engine.delete("d", recursive=True, cold_due_ms=0)
        assert [segment.name for segment in snapshot(reader).segments] == ["t"], "a deleted one keeps its name"
        handle.close()


async def test_only_those_most_was_read_of_are_shown(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_handles, "SEGMENTS_SHOWN", 2)
    async with reader_of(store, Metrics()) as reader:
        for name, size in (("a", 1), ("b", 3), ("c", 2)):
            store.append(name, b"abcd")
            handle = opened(reader, store, name)
            reader.open_handles.served(handle, size, len(await handle.read(0, size)))
        assert [segment.name for segment in snapshot(reader).segments] == ["b", "c"]
        assert figures(reader).segments_open == 3
