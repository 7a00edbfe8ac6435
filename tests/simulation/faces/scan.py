"""The bytes of a range as the tasks of a scan read them."""

from __future__ import annotations

from tests.simulation.places import COLD
from tests.simulation.world import World, listed
from tierfs.base.words.types import ByteRange
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.metadata.store import MetadataStore
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.fetching import ScanFetcher, ScanSource
from tierfs.pipeline.reader.selection import PinnedSegment, Pinner, Tail, place_of


class WorldConnections(PlaceConnections):
    """Those of a process that sees the store of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def metadata(self, place: ScannedStore) -> MetadataStore | None:
        """Return those of the store, which it closes."""
        return self._world.store.metadata

    def files(self, place: ScannedStore) -> ChunkFiles:
        """Return those of the store, which it closes."""
        return self._world.store.files


def pinned(world: World, name: str, wanted: ByteRange) -> PinnedSegment:
    """Return a range of a segment as the planner pins it."""
    with world.store.metadata.read() as txn:
        return Pinner(txn, None, Tail.LOCAL).pin(name, listed(world.store.metadata)[name], wanted)


def scanned(world: World, name: str, wanted: ByteRange) -> bytes:
    """Return bytes of a segment. Raises as tasks do."""
    store, plan = world.store, pinned(world, name, wanted)
    with store.metadata.read() as txn:
        place = place_of(txn, str(store.path), COLD)
    source = ScanSource(plan.segment.id, name, plan.priority.value, plan.ledger)
    with ScanFetcher(place, WorldConnections(world), (source,)) as fetcher:
        return fetcher.read(0, plan.extents)
