"""The spans of a process: ranges of objects in memory, fetched once and shared by all readers.

A reader that needs a range which a span holds or fetches waits for that span. Memory is bounded by the pool; room is
made by dropping complete spans without waiting readers: those that a reader has passed first, then the least recently
used; unread read-ahead is dropped only for a waiting reader. On the trio loop only, except for a transfer's work in
its thread.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter

import trio

from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import MIB, ObjectId
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.fetch.buffers import SMALLEST_BYTES, BufferPool
from tierfs.reading.fetch.grid import Grid
from tierfs.reading.fetch.span import Span, Transfer

# Passed spans kept for another reader. Beyond this their memory is reused at once, although the budget has room: the
# first touch of fresh memory is the most expensive part of a read.
KEEP_PASSED_BYTES = 32 * MIB

# A span with a waiting reader takes at most this fraction of the budget, or it might never get it.
_LARGEST_SHARE = 4

_start = attrgetter("start")  # no frame of Python for each step of a search

# Read-ahead unread while readers passed so many budgets of bytes is stale: its reader went elsewhere (a guess).
_STALE_BUDGETS = 2


class SpanCache:
    """All spans of a process, by object and offset."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self._by_object: dict[ObjectId, list[Span]] = {}
        self._order: OrderedDict[int, Span] = OrderedDict()
        self._passed: OrderedDict[int, Span] = OrderedDict()
        self._passed_bytes = 0
        self._ever_passed_bytes = 0
        self.transfers = 0
        """Transfers running or queued."""
        self.settle: Callable[[Transfer], None] | None = None
        """Called with each transfer that ended or was withdrawn, while there are limits."""
        self._room = trio.Event()

    @property
    def largest_bytes(self) -> int:
        """Limit of one span: memory for it is obtainable, even rounded up to whole blocks and a buffer class."""
        return max(1, self.pool.budget_bytes // _LARGEST_SHARE)

    def find(self, object_id: ObjectId, offset: int) -> Span | None:
        """Return the span that holds or fetches this byte of the object."""
        spans = self._by_object.get(object_id)
        if not spans:
            return None
        index = bisect_right(spans, offset, key=_start) - 1
        return spans[index] if index >= 0 and offset < spans[index].end else None

    def next_start(self, object_id: ObjectId, offset: int) -> int | None:
        """Return the start of the next span after `offset`, so that a new one does not overlap it; None without one."""
        spans = self._by_object.get(object_id, [])
        index = bisect_right(spans, offset, key=_start)
        return spans[index].start if index < len(spans) else None

    def add(self, record: ObjectRecord, grid: Grid, *, waited_for: bool) -> Span | None:
        """Return a new span over free memory, or None if there is none even after evictions.

        For a span with a waiting reader, read-ahead may be evicted too, the part not yet started first.
        """
        while self._passed_bytes > KEEP_PASSED_BYTES and self._drop_first(self._passed.values()):
            continue
        span = Span(record, grid, self._may_have_room)
        while not self.give_transfer(span):
            if not self._make_room(waited_for=waited_for):
                return None
        span.passed_before_bytes = self._ever_passed_bytes
        insort(self._by_object.setdefault(record.id, []), span, key=_start)
        self._order[id(span)] = span
        return span

    def give_transfer(self, span: Span) -> bool:
        """Give the span one more transfer, if there is memory for it without evictions."""
        buffer = self.pool.take(span.end - span.start)
        if buffer is None:
            return False
        span.transfers.append(Transfer(span, buffer))
        self.transfers += 1
        return True

    def used(self, span: Span) -> None:
        """Note that the span was just read."""
        if id(span) in self._order:
            self._order.move_to_end(id(span))

    def passed(self, span: Span) -> None:
        """Note that the reader has passed the span: it is evicted first."""
        if id(span) in self._order and id(span) not in self._passed:
            self._passed[id(span)] = span
            self._passed_bytes += _memory_bytes(span)
            self._ever_passed_bytes += _memory_bytes(span)

    def abandon(self, span: Span) -> None:
        """Drop a span that will not be read, if it has not arrived and has no waiting reader. Idempotent."""
        if span.complete:
            self.passed(span)
        elif not span.waiters:
            span.abandoned = True
            self._remove(span)

    def drop(self, span: Span) -> bool:
        """Free a complete span without waiting readers; return False for any other. Idempotent."""
        if not span.complete or span.waiters:
            return False
        self._remove(span)
        return True

    def _remove(self, span: Span) -> None:
        """Forget a span; its memory is given back once no fetch fills it. Idempotent."""
        assert not span.waiters or span.error is not None, "its readers would never be woken"
        if self._order.pop(id(span), None) is None:
            return
        if self._passed.pop(id(span), None) is not None:
            self._passed_bytes -= _memory_bytes(span)
        spans = self._by_object[span.record.id]
        spans.remove(span)
        if not spans:
            del self._by_object[span.record.id]
        if span.complete:
            self._give_back_leader(span)
        elif span.transfers[0].own():
            self.ended(span.transfers[0], None)

    def ended(self, transfer: Transfer, error: TierfsError | None) -> None:
        """Finish a transfer, successful or not; the span is complete with the last one, or the leading one."""
        span = transfer.span
        if self.settle is not None:
            self.settle(transfer)
        span.transfers.remove(transfer)
        self.transfers -= 1
        if transfer is span.leader or (span.leader is None and not span.transfers):
            span.complete = True
            span.error = error
        if transfer is not span.leader:
            self.pool.give_back(transfer.release())
        elif id(span) not in self._order:
            self._give_back_leader(span)
        if span.error is not None:
            self._cut(span)
        span.wake()
        self._may_have_room()

    async def wait_room(self) -> None:
        """Wait until a transfer ended or a span lost its last waiting reader, so that there may be room."""
        if self._room.is_set():
            self._room = trio.Event()
        await self._room.wait()

    def _may_have_room(self) -> None:
        self._room.set()

    def _cut(self, span: Span) -> None:
        """Keep the bytes a failed fetch delivered: readers were woken for them and have not run yet."""
        if span.filled == 0:
            self._remove(span)
        else:
            span.end = span.start + span.filled

    def _give_back_leader(self, span: Span) -> None:
        if span.leader is not None:
            leader, span.leader = span.leader, None
            self.pool.give_back(leader.release())

    def _make_room(self, *, waited_for: bool) -> bool:
        """Drop one span, the least valuable first; return False if none may be dropped."""
        used = (span for span in self._order.values() if not self._is_unread(span))
        if self._drop_first(chain(self._passed.values(), used)):
            return True
        return waited_for and (self._withdraw_one() or self._drop_first(self._order.values()))

    def _is_unread(self, span: Span) -> bool:
        """Return whether a reader probably still needs it: dropped, it would be fetched twice."""
        since_bytes = self._ever_passed_bytes - span.passed_before_bytes
        return span.ahead and since_bytes <= _STALE_BUDGETS * self.pool.budget_bytes

    def _drop_first(self, spans: Iterable[Span]) -> bool:
        return any(self.drop(span) for span in spans)

    def _withdraw_one(self) -> bool:
        for span in reversed(self._order.values()):
            if span.queued and not span.urgent and not span.waiters:
                self._remove(span)
                return True
        return False


def _memory_bytes(span: Span) -> int:
    """Return the least memory that a span takes."""
    return max(SMALLEST_BYTES, span.end - span.start)
