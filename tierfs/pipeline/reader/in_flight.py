"""The requests a task of a scan has in flight: as many, and as long, as the links to its storages need.

A task takes in what one processor decodes, less than a mount, so a few long requests fill a near link. A far one gives
each connection a part of its rate and answers late: there more and shorter requests are in flight (measurements:
docs/design/0026-links.md).
"""

from __future__ import annotations

from collections.abc import Callable

from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, LocationId, Tier
from tierfs.engine.chunkstore.link import LEAST_STREAMS, RANGE_BYTES, Links
from tierfs.engine.chunkstore.protocol import ChunkStorage

# Requests in flight beside the one being read: 32 MiB per task (measured: 2 are slower, 4 gain nothing).
NEAR_AHEAD = 3

# The same of a far link: 52 MiB per task.
MOST_AHEAD = 12

# Most bytes of a request while the link is unknown: soon it is known.
FIRST_STEP_BYTES = MIB

# Most bytes of a request: measured, larger ones gain nothing, and each in flight holds so much memory.
NEAR_STEP_BYTES = 8 * MIB

# The same of a local file, which is as quick in small pieces and stays in the processor's cache.
LOCAL_STEP_BYTES = 2 * MIB

# A request may begin and end inside a block.
AROUND_BYTES = 2 * CRC_BLOCK_BYTES

# Most bytes of a request to a tier, as of now.
StepOf = Callable[[Tier], int]


class InFlight:
    """Number and size of the requests of each task that reads one place. Thread-safe."""

    def __init__(self) -> None:
        self._links = Links(MOST_AHEAD)

    def follow(self, location_id: LocationId, storage: ChunkStorage) -> None:
        """Follow the link of a storage that is read."""
        self._links.add(location_id, storage)

    def answered(self, location_id: LocationId) -> bool:
        """Return whether the storage of a location has ever answered this process."""
        link = self._links.get(location_id)
        return link is not None and link.first_byte_s > 0

    @property
    def ahead(self) -> int:
        """Requests in flight beside the one being read."""
        return self._links.streams if self._far else NEAR_AHEAD

    @property
    def threads(self) -> int:
        """Threads that a new task needs: a pool of more starts more than it uses, each with a connection of its own."""
        return NEAR_AHEAD if self._links.first_byte_s and not self._far else MOST_AHEAD

    def step_bytes(self, tier: Tier) -> int:
        """Most bytes of one request."""
        if tier is Tier.LOCAL:
            return LOCAL_STEP_BYTES
        if not self._links.first_byte_s:
            return FIRST_STEP_BYTES
        return RANGE_BYTES if self._far else NEAR_STEP_BYTES

    @property
    def _far(self) -> bool:
        return self._links.streams > LEAST_STREAMS
