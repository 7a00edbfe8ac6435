"""Stores and scans of them for tests: tiny chunks, so that a few bytes lie in many objects."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests import verbs
from tests.mount.conftest import NEVER_S, append
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.words.types import ROOT_DIRECTORY, LocationId
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import policies
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.fetching import ScanFetcher
from tierfs.pipeline.reader.line_batches import Wanted
from tierfs.pipeline.reader.line_format import LineFormat
from tierfs.pipeline.reader.lines import read_lines
from tierfs.pipeline.reader.planning import Partition, Reach, Sizes, plan
from tierfs.pipeline.reader.selection import Pinner, Selection, Tail, place_of, select

DoubleT = TypeVar("DoubleT", bound=ChunkStorage)

Row = tuple[str, int, bytes]
"""Segment, offset and bytes of a line."""


@contextmanager
def store_of(path: Path, *, chunk_bytes: int = 7, object_bytes: int = 13) -> Iterator[app.Store]:
    """A store whose chunks have a few bytes; nothing moves by itself."""
    init_store(path)
    with app.open_store(path) as store:
        with store.metadata.write() as txn:
            settings = {"chunk_bytes": str(chunk_bytes), "object_bytes": str(object_bytes)}
            settings |= {"chunk_age": NEVER_S, "offload_after": NEVER_S}
            policies.put(txn, ROOT_DIRECTORY, settings)
        yield store


def connecting(patch: pytest.MonkeyPatch, double: Callable[[ChunkStorage], DoubleT]) -> list[DoubleT]:
    """Have scans connect to a double around the cold tier; the list gets it."""
    made: list[DoubleT] = []
    connect = PlaceConnections.storage

    def storage(self: PlaceConnections, place: ScannedStore, location_id: LocationId) -> DoubleT:
        if not made:
            made.append(double(connect(self, place, location_id)))
        self.in_flight(place).follow(location_id, made[0])
        return made[0]

    patch.setattr(PlaceConnections, "storage", storage)
    return made


def read_whole(store: app.Store, length_bytes: int) -> bytes:
    """The bytes of the one segment, as one task reads them."""
    place, (partition,) = planned(store, Selection(), Sizes(max_partition_bytes=2 * length_bytes), Reach(0, 0))
    with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
        return fetcher.read(0, partition.parts[0].extents)


def fill(store: app.Store, data: bytes, *, name: str = "s", cold_bytes: int = 0, seal: bool = False) -> None:
    """A segment whose first bytes are only cold, and whose others are only local."""
    if cold_bytes:
        append(store, name, data[:cold_bytes])
        verbs.offload(store, name)
        verbs.evict(store, name, force=True)
    append(store, name, data[cold_bytes:], seal=seal)


def planned(
    store: app.Store, selection: Selection, sizes: Sizes, reach: Reach, tail: Tail = Tail.LOCAL
) -> tuple[ScannedStore, list[Partition]]:
    """Store and partitions, after the way that they go to executors."""
    with store.metadata.read() as txn:
        pinner = Pinner(txn, None, tail)
        pinned = [pinner.pin(path, segment) for path, segment in select(txn, selection)]
        place = place_of(txn, str(store.path), store.settings.cold)
    found: tuple[ScannedStore, list[Partition]] = pickle.loads(pickle.dumps((place, plan(pinned, sizes, reach))))
    return found


def scan_lines(
    store: app.Store, form: LineFormat, split_bytes: int = 1 << 20, selection: Selection | None = None
) -> list[list[Row]]:
    """Lines by partition."""
    sizes = Sizes(max_partition_bytes=split_bytes, open_cost_bytes=1)
    place, partitions = planned(store, selection or Selection(), sizes, form.reach)
    return [rows_of(place, partition, form) for partition in partitions]


def rows_of(place: ScannedStore, partition: Partition, form: LineFormat) -> list[Row]:
    """The lines of one partition, as an executor reads them."""
    sources = tuple(part.source for part in partition.parts)
    with ScanFetcher(place, PlaceConnections(), sources) as fetcher:
        found = read_lines(fetcher, partition, form, Wanted())
        return [
            (partition.parts[number].source.name, offset, value)
            for number, lines in found
            for offset, value in zip(lines.offsets.to_pylist(), lines.values.cast("binary").to_pylist(), strict=True)
        ]


def offsets_of(store: app.Store, form: LineFormat, split_bytes: int, selection: Selection) -> tuple[list[int], int]:
    """The offsets of all lines, and their number, read without anything else."""
    sizes = Sizes(max_partition_bytes=split_bytes, open_cost_bytes=1)
    place, partitions = planned(store, selection, sizes, form.reach)
    offsets, count = list[int](), 0
    for partition in partitions:
        with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
            for _, lines in read_lines(fetcher, partition, form, Wanted(values=False)):
                offsets += lines.offsets.to_pylist()
                assert len(lines.offsets) == lines.count
            count += sum(lines.count for _, lines in read_lines(fetcher, partition, form, Wanted(False, False)))
    return offsets, count
