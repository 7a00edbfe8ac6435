"""The other way in: a scan, as an executor of Spark reads a segment that a driver pinned."""

from __future__ import annotations

from tests.simulation.world import World
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.config import ColdSettings
from tierfs.scan.extents import Place, PlaceConnections
from tierfs.scan.fetching import ScanFetcher, ScanSource
from tierfs.scan.selection import Pinner, Tail, place_of
from tierfs.types import ByteRange, LocationId


class WorldConnections(PlaceConnections):
    """Connects to the bucket of a world, whatever its address."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def storage(self, place: Place, location_id: LocationId) -> ChunkStorage:
        """Return the bucket."""
        return self._world.storage


def scanned(world: World, name: str, wanted: ByteRange) -> bytes:
    """Return bytes of a segment. Raises as tasks do."""
    store = world.store
    with store.metadata.read() as txn:
        pinned = Pinner(txn, None, Tail.LOCAL).pin(name, store.segment(name), wanted)
        place = place_of(txn, str(store.path), ColdSettings())
    source = ScanSource(pinned.segment.id, name, pinned.priority.value, pinned.ledger)
    with ScanFetcher(place, WorldConnections(world), (source,)) as fetcher:
        return fetcher.read(0, pinned.extents)
