"""The open files of a mount: who has them open, and counts of reads through them."""

from __future__ import annotations

import heapq
from collections import Counter

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.words.types import Opener, SegmentId, Tier
from tierfs.reading.handle import ReadHandle

# Segments in a snapshot, the most read first: naming one takes about 10 microseconds, on the loop.
SEGMENTS_SHOWN = 1000


@dataclass(slots=True, eq=False)
class HandleTally:
    """Reads of one segment since its first open."""

    id: SegmentId
    openers: Counter[Opener] = field(default_factory=Counter)
    """Number of handles of each process that has it open."""
    newest: ReadHandle | None = None
    offset: int = 0
    requests: int = 0
    bytes: int = 0


class OpenHandles:
    """The open files of one mount. A segment's counts end with its last handle."""

    def __init__(self, metrics: MetricSink) -> None:
        self._counts = {
            tier: (
                metrics.counter(MetricName.READ_REQUESTS, tier=tier.name.lower()),
                metrics.counter(MetricName.READ_BYTES, tier=tier.name.lower()),
            )
            for tier in Tier
        }
        self._tallies: dict[SegmentId, HandleTally] = {}
        self._handles = 0

    def __len__(self) -> int:
        return self._handles

    def opened(self, segment_id: SegmentId, opener: Opener) -> None:
        """Add an open file."""
        tally = self._tallies.get(segment_id)
        if tally is None:
            tally = self._tallies[segment_id] = HandleTally(segment_id)
        tally.openers[opener] += 1
        self._handles += 1

    def closed(self, segment_id: SegmentId, opener: Opener, handle: ReadHandle | None) -> None:
        """Remove a closed file, with the handle of its reads if it was read."""
        tally = self._tallies[segment_id]
        self._handles -= 1
        tally.openers[opener] -= 1
        if not tally.openers[opener]:
            del tally.openers[opener]
        if tally.newest is handle:
            tally.newest = None
        if not tally.openers:
            del self._tallies[segment_id]

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
