"""Reads without a column of bytes: where blocks and entries are is known from the metadata, so nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ledgers import new_ledger
from tests.pipeline.reader.reading import fill, planned, read_whole, store_of
from tierfs.app import store as app
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import Unavailable
from tierfs.pipeline.reader.block_batches import read_blocks
from tierfs.pipeline.reader.entry_batches import read_entries
from tierfs.pipeline.reader.extents import PlaceConnections
from tierfs.pipeline.reader.fetching import ScanFetcher
from tierfs.pipeline.reader.planning import Partition, Reach, Sizes
from tierfs.pipeline.reader.selection import Selection

Place = tuple[int, int, int]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    with store_of(tmp_path / "store") as opened:
        yield opened


def places(
    store: app.Store, name: str, reach: Reach, read: Callable[[ScanFetcher, Partition], Iterator[Place]]
) -> list[Place]:
    """What `read` yields of a segment, or of a directory, in splits of a few bytes."""
    place, partitions = planned(store, Selection((name,)), Sizes(max_partition_bytes=20, open_cost_bytes=1), reach)
    found = list[Place]()
    for partition in partitions:
        with ScanFetcher(place, PlaceConnections(), tuple(part.source for part in partition.parts)) as fetcher:
            found += read(fetcher, partition)
    return sorted(found)


def refused(*_: object, **__: object) -> None:
    raise AssertionError("bytes were fetched")


def test_places_of_blocks_are_those_of_their_bytes(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, b"x" * 100, cold_bytes=60)

    def whole(fetcher: ScanFetcher, partition: Partition) -> Iterator[Place]:
        blocks = read_blocks(fetcher, partition, 8, with_content=True)
        return ((block.offset, block.length_bytes, len(block.content)) for block in blocks)

    def bare(fetcher: ScanFetcher, partition: Partition) -> Iterator[Place]:
        blocks = read_blocks(fetcher, partition, 8, with_content=False)
        return ((block.offset, block.length_bytes, block.length_bytes) for block in blocks)

    expected = places(store, "s", Reach(), whole)
    assert sum(length for _, length, _ in expected) == 100
    monkeypatch.setattr(Pool, "in_order", refused)
    assert places(store, "s", Reach(), bare) == expected


def test_places_of_entries_are_those_of_their_payloads(store: app.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    new_ledger(store, [b"x" * (number % 7) for number in range(50)], "topic")

    def places_of(fetcher: ScanFetcher, partition: Partition, *, with_payloads: bool) -> Iterator[Place]:
        for batch in read_entries(fetcher, partition, with_payloads=with_payloads):
            assert len(batch.payloads) == (sum(batch.lengths) if with_payloads else 0)
            yield batch.first_entry_id, batch.start_offset, sum(batch.lengths)

    reach = Reach(cuts_at_entries=True)
    expected = places(store, "topic", reach, lambda *task: places_of(*task, with_payloads=True))
    assert sum(length for _, _, length in expected) == sum(number % 7 for number in range(50))
    monkeypatch.setattr(Pool, "in_order", refused)
    assert places(store, "topic", reach, lambda *task: places_of(*task, with_payloads=False)) == expected


def test_a_cold_tier_that_is_not_mounted_is_no_loss(store: app.Store) -> None:
    """Of a bare mount point the directory says so itself."""
    fill(store, b"x" * 100, cold_bytes=100)
    cold, away = store.paths.cold, store.paths.cold.with_name("away")
    cold.rename(away)
    with pytest.raises(Unavailable, match="segment s: this is not the store's cold tier: "):
        read_whole(store, 100)
    away.rename(cold)
    assert read_whole(store, 100) == b"x" * 100
