"""What the reads of one segment's cold bytes share: its sessions, and the spans that were asked for ahead of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tierfs.metadata.layout import PlacedChunk
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.checksum_cache import ChecksumCache
from tierfs.reading.fetch import Fetcher
from tierfs.reading.fetch_queue import WANTED_NOW
from tierfs.reading.pack_ahead import PackAhead
from tierfs.reading.readahead import Sessions
from tierfs.reading.span import Span
from tierfs.reading.spans import SpanCache
from tierfs.types import ByteRange

_MEMORY = "memory"
"""Label of what spans hold, in counts of hits and misses."""

_REMEMBERED_SPANS = 256
"""Spans of read-ahead that are dropped when the segment is closed; older ones are complete."""


class ColdPath:
    """Shared by all handles of one segment. On the trio loop only."""

    def __init__(
        self,
        checksums: ChecksumCache,
        spans: SpanCache,
        fetcher: Fetcher,
        packs: PackAhead,
        whole_chunk: Callable[[PlacedChunk], memoryview | None],
        metrics: MetricSink,
    ) -> None:
        """`whole_chunk` is Prover's, for threads."""
        self.packs = packs
        self.checksums = checksums
        self.spans = spans
        self.fetcher = fetcher
        self.whole_chunk = whole_chunk
        self.sessions = Sessions(packs.shares)
        self.handles = 0
        self.count_hits = metrics.counter(MetricName.CACHE_HITS, cache=_MEMORY)
        self.count_misses = metrics.counter(MetricName.CACHE_MISSES, cache=_MEMORY)
        self._ahead: deque[Span] = deque(maxlen=_REMEMBERED_SPANS)

    def close(self) -> None:
        """Drop what was asked for in vain: the last handle was closed."""
        for span in self._ahead:
            self.spans.abandon(span)
        self._ahead.clear()
        self.sessions.close()

    def ask(self, placed: PlacedChunk, asked: ByteRange, priority: int, *, ahead: bool = False) -> Span | None:
        """A new span of an object from `asked.start` on, cut where the next one begins; None without memory for it.

        `ahead`: for a session that reads on, and in vain once the segment is closed.
        """
        limit = self.spans.next_start(placed.object.id, asked.start)
        if limit is not None:
            asked = ByteRange(asked.start, min(asked.end, limit))
        grid = self.checksums.grid(placed.object.id, asked, placed.object.length)
        span = self.spans.add(placed.object, grid, waited_for=priority == WANTED_NOW)
        if span is not None:
            span.ahead = ahead
            self.fetcher.submit(span, priority)
            if ahead:
                self._ahead.append(span)
        return span

    def served(self, span: Span, held: ByteRange) -> memoryview:
        """The bytes of a span, which have arrived; it is noted how far the span was read."""
        if span.holder.packed:
            self.packs.served(span)
            return span.slice(held)
        # Read ahead or read whole at once: nothing is left in it to read on to, and the kernel keeps its pages, but for
        # direct_io, where only the newest of such spans can be read again from memory.
        if held.end == span.end and (span.ahead or held.start == span.start):
            self.spans.passed(span)
        else:
            self.spans.used(span)
        return span.slice(held)
