"""State that all cold reads of one segment share: its sessions, and the spans requested ahead of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.words.types import ByteRange, Payer
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.reading.fetch.checksum_cache import ChecksumCache
from tierfs.reading.fetch.fetcher import Fetcher
from tierfs.reading.fetch.queue import WANTED_NOW
from tierfs.reading.fetch.span import Span
from tierfs.reading.fetch.span_cache import SpanCache
from tierfs.reading.pack_ahead import PackAhead
from tierfs.reading.readahead import Sessions

# Label of spans in counts of hits and misses.
_MEMORY = "memory"

# Spans of read-ahead that are dropped when the segment is closed; older ones are complete.
_REMEMBERED_SPANS = 256


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
        """`whole_chunk` is VerifiedReader's, to be called in threads."""
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
        """Drop spans requested ahead and never read: the last handle was closed."""
        for span in self._ahead:
            self.spans.abandon(span)
        self._ahead.clear()
        self.sessions.close()

    def ask(
        self, placed: PlacedChunk, asked: ByteRange, priority: int, payer: Payer, *, ahead: bool = False
    ) -> Span | None:
        """Return a new span of an object from `asked.start` on, cut where the next one begins; None without memory.

        `ahead` spans are for a session that reads on, and useless once the segment is closed. Raises BudgetSpent.
        """
        gate = self.fetcher.gate
        if gate is not None:
            gate.require(payer, priority)
        limit = self.spans.next_start(placed.object.id, asked.start)
        if limit is not None:
            asked = ByteRange(asked.start, min(asked.end, limit))
        grid = self.checksums.grid(placed.object.id, asked, placed.object.length)
        span = self.spans.add(placed.object, grid, waited_for=priority == WANTED_NOW)
        if span is not None:
            span.ahead = ahead
            self.fetcher.submit(span, priority, payer)
            if ahead:
                self._ahead.append(span)
        return span

    def served(self, span: Span, held: ByteRange) -> memoryview:
        """Return arrived bytes of a span, and note how far the span was read."""
        if span.record.packed:
            self.packs.served(span)
            return span.slice(held)
        # Read ahead or read whole at once: nothing in it is left to read, and the kernel keeps its pages, except for
        # direct_io, where only the newest of such spans can be read again from memory.
        if held.end == span.end and (span.ahead or held.start == span.start):
            self.spans.passed(span)
        else:
            self.spans.used(span)
        return span.slice(held)
