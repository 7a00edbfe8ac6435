"""A scan of a part of a packed chunk: a neighbour's bad bit in a shared block is no damage of it, as for `cat`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.pipeline.reader.reading import fill, planned, store_of
from tests.pipeline.reader.test_scrubbing import flip
from tierfs.app import store as app
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB, ByteRange, Tier
from tierfs.pipeline.reader.extents import PlaceConnections, clip, from_flat
from tierfs.pipeline.reader.fetching import ScanFetcher
from tierfs.pipeline.reader.planning import Reach, Sizes
from tierfs.pipeline.reader.selection import Selection

# The third begins in the block of the second, and is longer than the first requests of a task.
DATA = {f"s{number}": random.Random(number).randbytes(size) for number, size in enumerate((3000, 3000, 3 * MIB, 3000))}
BAD = "s1"


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[app.Store]:
    """One pack with four segments, one of which has a bad bit, nowhere else."""
    name = f"store-{request.node.name}"  # connections of a process outlive the test, and know a store by its path
    with store_of(tmp_path / name, chunk_bytes=8 * MIB, object_bytes=64 * MIB) as opened:
        for segment, data in DATA.items():
            fill(opened, data, name=segment, seal=True)
        verbs.offload(opened)
        verbs.evict(opened, force=True)
        assert len(list((opened.path / "cold" / "packs").iterdir())) == 1
        flip(opened, BAD, Tier.COLD, 100)
        yield opened


def scanned(store: app.Store, name: str, span: ByteRange) -> bytes:
    """Bytes of one segment as a task reads them, whose partition has only these."""
    selection = Selection((name,))
    place, partitions = planned(store, selection, Sizes(max_partition_bytes=64 * MIB), Reach(0, 0))
    (part,) = [part for partition in partitions for part in partition.parts]
    extents = [from_flat(extent.flat()) for extent in clip(part.extents, span)]  # as a partition of these bytes travels
    with ScanFetcher(place, PlaceConnections(), (part.source,)) as fetcher:
        return fetcher.read(0, extents)


@pytest.mark.parametrize("name", [name for name in DATA if name != BAD])
@pytest.mark.parametrize("cut", [0, 7])
def test_a_neighbours_bit_is_no_damage(store: app.Store, name: str, cut: int) -> None:
    data = DATA[name]
    span = ByteRange(cut, len(data) - cut)
    assert scanned(store, name, span) == data[span.start : span.end]


@pytest.mark.parametrize("span", [ByteRange(0, 3000), ByteRange(50, 200)])
def test_a_flipped_bit_in_the_chunk_itself_is_damage(store: app.Store, span: ByteRange) -> None:
    with pytest.raises(DataLoss, match="does not match its checksums"):
        scanned(store, BAD, span)
