"""The cold path of one open segment: finds or starts the fetches that hold what is wanted, and those after it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import trio

from tierfs.errors import DataLoss, TierfsError
from tierfs.metadata.layout import PlacedChunk
from tierfs.metrics import MetricName, MetricSink
from tierfs.reading.checksum_cache import ChecksumCache
from tierfs.reading.fetch import Fetcher
from tierfs.reading.fetch_queue import WANTED_NOW
from tierfs.reading.grid import blocks_touched
from tierfs.reading.pack_ahead import PackAhead, is_whole_file
from tierfs.reading.readahead import Session, Sessions
from tierfs.reading.resolve import Piece, in_object, resolve
from tierfs.reading.spans import Span, SpanCache
from tierfs.reading.transfer import BlockDiffers
from tierfs.reading.view import SegmentView
from tierfs.types import ByteRange, Tier

log = logging.getLogger(__name__)

_MEMORY = "memory"
"""Label of what spans hold, in counts of hits and misses."""

_SPANS_TRIED = 5
"""Spans that fail one after the other for other bytes than those that are wanted (a guess)."""

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
        self._packs = packs
        self._checksums = checksums
        self._spans = spans
        self._fetcher = fetcher
        self._whole_chunk = whole_chunk
        self._shares = packs.shares
        self.sessions = Sessions(packs.shares)
        self._ahead: deque[Span] = deque(maxlen=_REMEMBERED_SPANS)
        self.handles = 0
        self._count_hits = metrics.counter(MetricName.CACHE_HITS, cache=_MEMORY)
        self._count_misses = metrics.counter(MetricName.CACHE_MISSES, cache=_MEMORY)

    def read_now(
        self, view: SegmentView, tiers: tuple[Tier, ...], wanted: ByteRange, placed: PlacedChunk, held: ByteRange
    ) -> memoryview | None:
        """Bytes of an object, `wanted` of the segment, if one span has them all."""
        if not self._has(placed, held):
            return None
        # Before the bytes are taken: making room may drop them.
        self._read_ahead(view, tiers, wanted, placed, held)
        span = self._spans.find(placed.object.id, held.start)
        if span is None or span.end < held.end or not span.has(held):
            return None
        self._count_hits(blocks_touched(held))
        return self._served(span, held)

    async def read(
        self, view: SegmentView, tiers: tuple[Tier, ...], wanted: ByteRange, placed: PlacedChunk, held: ByteRange
    ) -> memoryview:
        """Bytes of an object from `held.start` on, at most up to `held.end`; raises the fetch's error.

        They are a part of `wanted`, the segment's bytes that the reader asked for. A small chunk that has a CRC32C
        of its own is judged by that where a block fails: the bad bytes may be those of another in the same pack.
        """
        try:
            return await self._read(view, tiers, wanted, placed, held)
        except BlockDiffers:
            whole = await trio.to_thread.run_sync(self._whole_chunk, placed, abandon_on_cancel=True)
            if whole is None:
                raise
            log.info("%s: a block is bad, but not for the chunk at %d", placed.object.name, placed.range.start)
            return whole[held.start - placed.chunk.object_offset :][: held.length_bytes]

    async def _read(
        self, view: SegmentView, tiers: tuple[Tier, ...], wanted: ByteRange, placed: PlacedChunk, held: ByteRange
    ) -> memoryview:
        there = self._has(placed, ByteRange(held.start, held.start + 1))
        self._read_ahead(view, tiers, wanted, placed, held)
        self._request(placed, held)
        span = await self._span(placed, held)
        part = ByteRange(held.start, min(held.end, span.end))
        (self._count_hits if there and span.has(part) else self._count_misses)(blocks_touched(part))
        if not span.has(part):
            span, part = await self._fetched(span, placed, part)
        return self._served(span, part)

    async def _fetched(self, span: Span, placed: PlacedChunk, wanted: ByteRange) -> tuple[Span, ByteRange]:
        """The span that has got the first of the wanted bytes, and which of them.

        What is wrong may lie elsewhere in a span, and in the next one that somebody asks for; the blocks that are
        wanted may be as good as ever.
        """
        part = wanted
        for tries_left in reversed(range(_SPANS_TRIED)):
            try:
                await self._fetcher.wait_for(span, part)
                break
            except DataLoss as exc:
                if not tries_left or self._is_about(exc, span, placed, wanted):
                    raise
            span = await self._span(placed, wanted)
            part = ByteRange(part.start, min(part.end, span.end))
        return span, part

    def _is_about(self, error: DataLoss, span: Span, placed: PlacedChunk, held: ByteRange) -> bool:
        """Whether the error of a fetch is one of the bytes that are wanted, as far as can be told."""
        if isinstance(error, BlockDiffers):
            return bool(error.block.intersect(held))
        return self._checksums.grid(placed.object.id, held, placed.object.length).range == span.grid.range

    async def _span(self, placed: PlacedChunk, held: ByteRange) -> Span:
        """The span that holds or is getting the first byte."""
        while (span := self._spans.find(placed.object.id, held.start)) is None:
            self._request(placed, held)
            if self._spans.find(placed.object.id, held.start) is None:
                await self._spans.wait_room()
        return span

    def close(self) -> None:
        """The last handle was closed: drop what was asked for in vain."""
        for span in self._ahead:
            self._spans.abandon(span)
        self._ahead.clear()
        self.sessions.close()

    def _has(self, placed: PlacedChunk, held: ByteRange) -> bool:
        span = self._spans.find(placed.object.id, held.start)
        return span is not None and span.end >= held.end and span.has(held)

    def _read_ahead(
        self, view: SegmentView, tiers: tuple[Tier, ...], wanted: ByteRange, placed: PlacedChunk, held: ByteRange
    ) -> None:
        """Note a read of the segment, or of its pack, and ask for what comes next as far as window and memory go."""
        in_pack = is_whole_file(view, placed)
        if in_pack:
            position, end = held, placed.object.length
            session = self._packs.sessions_of(placed.object.id).of(held, 0)
        else:
            position, end = wanted, view.segment.length
            session = self.sessions.of(wanted, view.segment.start_offset)
        if not session.proven:
            session.note(position)
            return
        plan = session.plan(position, self._shares.of(session, trio.current_time()), end)
        if plan is None:
            return
        try:
            if in_pack:
                self._ask_in_pack(placed, plan, session, held)
            else:
                self._ask_ahead(view, tiers, plan, session, wanted)
        except TierfsError as exc:
            # The bytes that are wanted now may be fine; who comes to what is wrong there meets it, and says it.
            log.debug("%s: reading ahead: %s", view.name, exc)

    def _ask_ahead(
        self, view: SegmentView, tiers: tuple[Tier, ...], plan: ByteRange, session: Session, wanted: ByteRange
    ) -> None:
        # Its last range may reach beyond the plan: cut where chunks end, not where plans do, ranges stay whole.
        reach = plan.end + session.range_bytes
        at = max(plan.start, view.segment.start_offset)  # a head may have been cut off since
        while at < plan.end:
            layout = view.layout(at)
            for piece in resolve(layout, ByteRange(at, min(reach, layout.window.end)), tiers):
                if at < plan.end:
                    at = self._ask_for(piece, plan.end, session, wanted)
                if at < min(piece.range.end, plan.end):  # memory ran out: the next read asks again
                    session.ahead = at
                    return
        session.ahead = at

    def _ask_in_pack(self, placed: PlacedChunk, plan: ByteRange, session: Session, held: ByteRange) -> None:
        """As `_ask_ahead`, by offsets of the pack. Its spans outlive the segment: the next one reads them."""
        at = plan.start
        while at < plan.end:
            span = self._spans.find(placed.object.id, at)
            if span is None:
                asked = ByteRange(at, min(placed.object.length, at + session.range_bytes))
                distance = WANTED_NOW if at < held.end else at - held.start
                span = self._new_span(placed, asked, distance, ahead=False)
            if span is None:  # memory ran out: the next read asks again
                break
            at = span.end
        session.ahead = at

    def _served(self, span: Span, held: ByteRange) -> memoryview:
        if span.holder.packed:
            self._packs.served(span)
            return span.slice(held)
        # Read ahead or read whole at once: nothing is left in it to read on to, and the kernel keeps its pages, but for
        # direct_io, where only the newest of such spans can be read again from memory.
        if held.end == span.end and (span.ahead or held.start == span.start):
            self._spans.passed(span)
        else:
            self._spans.used(span)
        return span.slice(held)

    def _request(self, placed: PlacedChunk, held: ByteRange) -> None:
        """Start fetches for all of `held` that is neither there nor on its way; stops when memory is out."""
        at = held.start
        while at < held.end:
            span = self._spans.find(placed.object.id, at)
            if span is None:
                asked = ByteRange(at, min(held.end, at + self._spans.largest_bytes))
                span = self._new_span(placed, asked, WANTED_NOW, ahead=False)
            elif not span.has(ByteRange(at, min(held.end, span.end))):
                self._fetcher.hurry(span)
            if span is None:
                return
            at = span.end

    def _ask_for(self, piece: Piece, end: int, session: Session, wanted: ByteRange) -> int:
        """Spans for a piece of read-ahead that begin before `end`; returns the offset up to which there are any."""
        if piece.lost or piece.candidates[0].object.tier is Tier.LOCAL:
            return min(piece.range.end, end)
        placed = piece.candidates[0]
        held = in_object(piece.range, placed)
        shift = piece.range.start - held.start
        at = held.start
        while at < held.end and at + shift < end:
            span = self._spans.find(placed.object.id, at)
            if span is None:
                asked = ByteRange(at, min(held.end, at + session.range_bytes))
                now = at + shift < wanted.end
                distance = WANTED_NOW if now else at + shift - wanted.start
                span = self._new_span(placed, asked, distance, ahead=True)
                if span is None:
                    break
                self._ahead.append(span)
            at = span.end
        return min(at, held.end) + shift

    def _new_span(self, placed: PlacedChunk, held: ByteRange, priority: int, *, ahead: bool) -> Span | None:
        limit = self._spans.next_start(placed.object.id, held.start)
        asked = held if limit is None else ByteRange(held.start, min(held.end, limit))
        grid = self._checksums.grid(placed.object.id, asked, placed.object.length)
        span = self._spans.add(placed.object, grid, waited_for=priority == WANTED_NOW)
        if span is not None:
            span.ahead = ahead
            self._fetcher.submit(span, priority)
        return span
