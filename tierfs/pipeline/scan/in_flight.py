"""The requests a task of a scan has in flight: as many, and as long, as the links to its storages need.

A task takes in what one processor decodes, less than a mount, so a few long requests fill a near link. A far one gives
each connection a part of its rate and answers late: there more and shorter requests are in flight (measurements:
docs/design/0026-links.md).

Buffers stay with the process from task to task, because the first touch of fresh memory is expensive: measured on a
virtual machine, 8 MiB of fresh memory cost as much as a third of their GET.

A task waits for a server that answered before and does not answer now (docs/design/0012-outages.md). One that never
answered is more likely named wrongly than away: for that a task fails at once.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable

from tierfs.base.system.clock import Clock, SystemClock
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, LocationId, Tier
from tierfs.engine.chunkstore.link import LEAST_STREAMS, RANGE_BYTES, Links
from tierfs.engine.chunkstore.protocol import ChunkStorage

log = logging.getLogger(__name__)

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


# Size of the larger buffers.
REQUEST_BYTES = NEAR_STEP_BYTES + AROUND_BYTES

_SIZES = (RANGE_BYTES + AROUND_BYTES, REQUEST_BYTES)
# In buffers that no task holds: 66 MiB per process.
_MOST_KEPT_BYTES = 8 * REQUEST_BYTES


class Buffers:
    """Buffers of two sizes; larger ones are made when they are needed and not kept. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, deque[bytearray]] = {size_bytes: deque() for size_bytes in _SIZES}
        self.kept_bytes = 0
        """In buffers that no task holds."""

    def take(self, size_bytes: int = REQUEST_BYTES) -> bytearray:
        """Return a buffer of at least this size with arbitrary content; the caller's until it is given back."""
        fitting = [each for each in _SIZES if each >= size_bytes]
        with self._lock:
            for each in fitting:
                if self._free[each]:
                    self.kept_bytes -= each
                    return self._free[each].pop()
        return bytearray(fitting[0] if fitting else size_bytes)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer to which no reference is left."""
        with self._lock:
            free = self._free.get(len(buffer))
            if free is not None and self.kept_bytes + len(buffer) <= _MOST_KEPT_BYTES:
                free.append(buffer)
                self.kept_bytes += len(buffer)


# Of this process; a child of fork has copies of its own.
BUFFERS = Buffers()


# As `read.deadline_s` by default: a rolling restart is waited for.
DEADLINE_S = 90.0

# The storage pauses between its own tries, too (a guess).
_LONGEST_PAUSE_S = 1.0


class TaskPatience:
    """The pauses of one task's threads. Thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._ended = threading.Event()

    def answered(self) -> None:
        """Note that bytes arrived: the next failure begins another wait."""
        self._since_s = None

    def pause(self, error: TierfsError) -> bool:
        """Wait before the next try; return False, at once, after the deadline and when the task ends."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            since_s = self._since_s  # another thread may have an answer meanwhile
            if since_s is None:
                since_s = self._since_s = now_s
                log.warning("waiting up to %g s for a tier that does not answer: %s", DEADLINE_S, error)
        return now_s - since_s < DEADLINE_S and not self._ended.wait(random.uniform(0, _LONGEST_PAUSE_S))

    def end(self) -> None:
        """End all pauses, for good."""
        self._ended.set()
