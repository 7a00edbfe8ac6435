"""The open handles of a reader, and counts of reads through them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.handle import ReadHandle
from tierfs.types import SegmentId, Tier

SEGMENTS_SHOWN = 1000
"""Segments in a snapshot, the most read first: naming one takes about 10 microseconds, on the loop."""


@dataclass(slots=True, eq=False)
class HandleTally:
    """Reads of one segment since its first open."""

    handles: set[ReadHandle] = field(default_factory=set)
    newest: ReadHandle | None = None
    offset: int = 0
    requests: int = 0
    bytes: int = 0


class OpenHandles:
    """The open handles of one reader, with counts of reads. A segment's counts end with its last handle."""

    def __init__(self, metrics: MetricSink) -> None:
        self._counts = {
            tier: (
                metrics.counter(MetricName.READ_REQUESTS, tier=tier.name.lower()),
                metrics.counter(MetricName.READ_BYTES, tier=tier.name.lower()),
            )
            for tier in Tier
        }
        self._tallies: dict[SegmentId, HandleTally] = {}

    def __len__(self) -> int:
        return sum(len(tally.handles) for tally in self._tallies.values())

    def add(self, handle: ReadHandle) -> None:
        """Add an opened handle."""
        self._tallies.setdefault(handle.segment.id, HandleTally()).handles.add(handle)

    def remove(self, handle: ReadHandle) -> None:
        """Remove a closed handle."""
        tally = self._tallies[handle.segment.id]
        tally.handles.remove(handle)
        if tally.newest is handle:
            tally.newest = None
        if not tally.handles:
            del self._tallies[handle.segment.id]

    def served(self, handle: ReadHandle, end_offset: int, length_bytes: int) -> None:
        """Count a read whose bytes end at `end_offset` of the segment; an empty read at the end does not count."""
        if not length_bytes or handle.served_from is None:
            return
        tally = self._tallies[handle.segment.id]
        tally.newest, tally.offset = handle, end_offset
        tally.requests += 1
        tally.bytes += length_bytes
        count_request, count_bytes = self._counts[handle.served_from]
        count_request(1)
        count_bytes(length_bytes)

    @property
    def segments(self) -> int:
        """Number of open segments."""
        return len(self._tallies)

    def most_read(self) -> list[HandleTally]:
        """Return the most read segments, at most `SEGMENTS_SHOWN`."""
        return heapq.nlargest(SEGMENTS_SHOWN, self._tallies.values(), key=lambda tally: tally.bytes)
