"""Spans: runs of one object's bytes in memory, filled by one fetch and shared by all readers.

A byte is fetched once however many want it: whoever needs a range that a span holds, or is getting,
waits for that span. Memory is bounded by the pool; room is made by dropping complete spans nobody waits
for, those that a reader has passed first, then the least recently used. On the trio loop only, but for
`filled`, which the fetching thread raises.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict

import trio

from tierfs.errors import TierfsError
from tierfs.metadata.records import ObjectRecord
from tierfs.reading.buffers import BufferPool, PooledBuffer
from tierfs.reading.grid import Grid
from tierfs.types import ByteRange, ObjectId

KEEP_PASSED_BYTES = 32 * 1024 * 1024
"""Spans that their reader has passed and that are kept for another one. Beyond it their memory is used again
at once, although the budget has room: the first touch of fresh memory is the dearest part of a read."""


class Span:
    """Bytes [start, end) of one object; those below `start + filled` have arrived and were checked."""

    __slots__ = ("buffer", "complete", "end", "error", "filled", "grid", "holder", "queued", "start", "waiters")

    def __init__(self, holder: ObjectRecord, grid: Grid, buffer: PooledBuffer) -> None:
        self.holder = holder
        self.grid = grid
        self.start, self.end = grid.range.start, grid.range.end
        self.buffer = buffer
        self.filled = 0
        self.complete = False
        self.queued = True
        self.error: TierfsError | None = None
        self.waiters: list[tuple[int, trio.Event]] = []

    @property
    def view(self) -> memoryview:
        """The span's memory."""
        return self.buffer.view[: self.end - self.start]

    def has(self, wanted: ByteRange) -> bool:
        """Whether the bytes, which lie inside the span, have arrived."""
        return self.start + self.filled >= wanted.end

    def slice(self, wanted: ByteRange) -> memoryview:
        """The bytes themselves, not copied."""
        return self.buffer.view[wanted.start - self.start : wanted.end - self.start]

    async def wait_for(self, wanted: ByteRange) -> None:
        """Return when the bytes have arrived; raises the fetch's error."""
        needed = wanted.end - self.start
        while self.filled < needed:
            if self.error is not None:
                raise self.error
            event = trio.Event()
            entry = (needed, event)
            self.waiters.append(entry)
            try:
                # The thread may have raised `filled` before it could see this waiter.
                if self.filled < needed:
                    await event.wait()
            finally:
                if entry in self.waiters:
                    self.waiters.remove(entry)

    def wake(self) -> None:
        """Wake those whose bytes have arrived, or everybody after an error."""
        for needed, event in self.waiters:
            if self.error is not None or needed <= self.filled:
                event.set()


class SpanCache:
    """All spans of a process, by object and offset."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self._by_object: dict[ObjectId, list[Span]] = {}
        self._order: OrderedDict[int, Span] = OrderedDict()
        self._passed: OrderedDict[int, Span] = OrderedDict()
        self._passed_bytes = 0
        self._room = trio.Event()

    def find(self, object_id: ObjectId, offset: int) -> Span | None:
        """The span that holds or is getting this byte of the object."""
        spans = self._by_object.get(object_id)
        if not spans:
            return None
        index = bisect_right(spans, offset, key=_start) - 1
        return spans[index] if index >= 0 and offset < spans[index].end else None

    def next_start(self, object_id: ObjectId, offset: int) -> int | None:
        """Where the next span behind `offset` begins, so that a new one does not overlap it."""
        spans = self._by_object.get(object_id, [])
        index = bisect_right(spans, offset, key=_start)
        return spans[index].start if index < len(spans) else None

    def add(self, holder: ObjectRecord, grid: Grid) -> Span | None:
        """A new span over free memory, or None when there is none even after dropping what may go."""
        length = grid.range.length_bytes
        while self._passed_bytes > KEEP_PASSED_BYTES and self._drop_one():
            continue
        buffer = self.pool.take(length)
        while buffer is None:
            if not self._drop_one():
                return None
            buffer = self.pool.take(length)
        span = Span(holder, grid, buffer)
        insort(self._by_object.setdefault(holder.id, []), span, key=_start)
        self._order[id(span)] = span
        return span

    def used(self, span: Span) -> None:
        """The span was just read."""
        if id(span) in self._order:
            self._order.move_to_end(id(span))

    def passed(self, span: Span) -> None:
        """Its reader is done with it: it goes first when room is needed."""
        if id(span) in self._order and id(span) not in self._passed:
            self._passed[id(span)] = span
            self._passed_bytes += span.buffer.class_bytes

    def remove(self, span: Span) -> None:
        """Forget a span; its memory is given back once no fetch fills it. Idempotent."""
        if self._order.pop(id(span), None) is None:
            return
        if self._passed.pop(id(span), None) is not None:
            self._passed_bytes -= span.buffer.class_bytes
        spans = self._by_object[span.holder.id]
        spans.remove(span)
        if not spans:
            del self._by_object[span.holder.id]
        if span.complete:
            self.pool.give_back(span.buffer)

    def finished(self, span: Span) -> None:
        """The fetch ended, well or not: from now on the span may be dropped."""
        span.complete = True
        if id(span) not in self._order:
            self.pool.give_back(span.buffer)
        elif span.error is not None:
            self.remove(span)

        self._room.set()

    async def wait_finished(self) -> None:
        """Return when some fetch ended, so that there may be room."""
        if self._room.is_set():
            self._room = trio.Event()
        await self._room.wait()

    def _drop_one(self) -> bool:
        for span in (*self._passed.values(), *self._order.values()):
            if span.complete and not span.waiters:
                self.remove(span)
                return True
        return False


def _start(span: Span) -> int:
    return span.start
