"""Reads of a segment's cold bytes.

A `ColdRead` finds or starts the fetches of the wanted bytes, and those of the bytes after them.
"""

from __future__ import annotations

import logging

import trio

from tierfs.base.words.errors import DataLoss, unexpected
from tierfs.base.words.types import ByteRange, Payer, Tier
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.reading.cold_path import ColdPath
from tierfs.reading.fetch.checked_blocks import BlockDiffers
from tierfs.reading.fetch.grid import blocks_touched
from tierfs.reading.fetch.queue import WANTED_NOW
from tierfs.reading.fetch.span import Span
from tierfs.reading.pack_ahead import is_whole_file
from tierfs.reading.readahead import MOST_SPANS_AHEAD, ReadSession
from tierfs.reading.view import Piece, SegmentView, in_object, resolve

log = logging.getLogger(__name__)

# Consecutive spans that may fail for bytes other than the wanted ones (a guess).
_SPANS_TRIED = 5


class ColdRead:
    """One read of bytes `wanted` of a segment, a part of which is in an object. On the trio loop only; used once."""

    __slots__ = ("_held", "_path", "_payer", "_placed", "_spans", "_tiers", "_view", "_wanted")

    def __init__(
        self,
        path: ColdPath,
        view: SegmentView,
        tiers: tuple[Tier, ...],
        wanted: ByteRange,
        placed: PlacedChunk,
        piece: ByteRange,
        payer: Payer,
    ) -> None:
        """`piece` is the part of `wanted` to read from `placed`."""
        self._payer = payer
        self._path = path
        self._spans = path.spans
        self._view = view
        self._tiers = tiers
        self._wanted = wanted
        self._placed = placed
        self._held = in_object(piece, placed)

    def now(self) -> memoryview | None:
        """Return all the bytes if one span has them, else None."""
        held = self._held
        span = self._spans.find(self._placed.object.id, held.start)
        if span is None or span.end < held.end or not span.has(held):
            return None
        self._read_ahead()
        if not span.has(held):  # it was dropped to make room
            return None
        self._path.count_hits(blocks_touched(held))
        return self._path.served(span, held)

    async def bytes(self) -> memoryview:
        """Return the first bytes, all if one span has them; raise the fetch's error.

        If a block fails, a small chunk with a CRC32C of its own is judged by that: the bad bytes may belong to another
        chunk in the same pack.
        """
        held, placed = self._held, self._placed
        first = self._spans.find(placed.object.id, held.start)
        in_memory = first is not None and first.filled > held.start - first.start
        try:
            self._read_ahead()
            self._request()
            span = await self._span()
            part = ByteRange(held.start, min(held.end, span.end))
            count = self._path.count_hits if in_memory and span.has(part) else self._path.count_misses
            count(blocks_touched(part))
            if not span.has(part):
                span, part = await self._fetched(span, part)
            return self._path.served(span, part)
        except BlockDiffers:
            whole = await trio.to_thread.run_sync(self._path.whole_chunk, placed, abandon_on_cancel=True)
            if whole is None:
                raise
            log.info("%s: a block is bad, but not for the chunk at %d", placed.object.name, placed.range.start)
            return held.of(whole, placed.chunk.object_offset)

    async def _fetched(self, span: Span, wanted: ByteRange) -> tuple[Span, ByteRange]:
        """Return the span that has the first of the wanted bytes, and the range of those it has.

        A fetch may fail for bytes elsewhere in its span, and so may the next one; the wanted blocks may still be good.
        """
        part = wanted
        for tries_left in reversed(range(_SPANS_TRIED)):
            try:
                await self._path.fetcher.wait_for(span, part, self._payer)
                break
            except DataLoss as exc:
                if not tries_left or self._is_about(exc, span, wanted):
                    raise
            span = await self._span()
            part = ByteRange(part.start, min(part.end, span.end))
        return span, part

    def _is_about(self, error: DataLoss, span: Span, wanted: ByteRange) -> bool:
        """Return whether the error of a fetch is about the wanted bytes, as far as it is known."""
        if isinstance(error, BlockDiffers):
            return bool(error.block.intersect(wanted))
        record = self._placed.object
        return self._path.checksums.grid(record.id, wanted, record.length).range == span.grid.range

    async def _span(self) -> Span:
        """Return the span that holds or fetches the first byte."""
        while (span := self._spans.find(self._placed.object.id, self._held.start)) is None:
            self._request()
            if self._spans.find(self._placed.object.id, self._held.start) is None:
                await self._spans.wait_room()
        return span

    def _request(self) -> None:
        """Start fetches for all bytes neither in memory nor on their way; stop when memory runs out."""
        at, end = self._held.start, self._held.end
        while at < end:
            span = self._spans.find(self._placed.object.id, at)
            if span is None:
                span = self._path.ask(
                    self._placed, ByteRange(at, min(end, at + self._spans.largest_bytes)), WANTED_NOW, self._payer
                )
            elif not span.has(ByteRange(at, min(end, span.end))):
                self._path.fetcher.hurry(span, self._payer)
            if span is None:
                return
            at = span.end

    def _read_ahead(self) -> None:
        """Note a read of the segment, or of its pack, and request the next bytes within window and memory."""
        in_pack = is_whole_file(self._view, self._placed)
        if in_pack:
            position, end = self._held, self._placed.object.length
            session = self._path.packs.sessions_of(self._placed.object.id).of(position, 0)
        else:
            position, end = self._wanted, self._view.segment.length
            session = self._path.sessions.of(position, self._view.segment.start_offset)
            chunk = self._placed.chunk
            session.passed(self._held.start - chunk.object_offset + chunk.start_offset)
        if not session.proven:
            session.note(position)
            return
        share = self._path.packs.shares.of(session, trio.current_time(), self._placed.object.shrink)
        plan = session.plan(position, share, end)
        if plan is None:
            return
        try:
            if in_pack:
                self._ask_in_pack(plan, session)
            else:
                self._ask_ahead(plan, session)
        except Exception as exc:
            # The bytes wanted now may be good; a read that reaches the bad ones reports them.
            log.debug("%s: reading ahead: %s", self._view.name, unexpected(exc, self._view.name))

    def _ask_ahead(self, plan: ByteRange, session: ReadSession) -> None:
        # Its last range may reach beyond the plan: cut where chunks end, not where plans do, ranges stay whole.
        reach = plan.end + session.range_bytes
        at = max(plan.start, self._view.segment.start_offset)  # a head may have been cut off since
        while at < plan.end:
            layout = self._view.layout(at)
            for piece in resolve(layout, ByteRange(at, min(reach, layout.window.end)), self._tiers):
                if at < plan.end:
                    at = self._ask_for(piece, plan.end, session)
                if at < min(piece.range.end, plan.end):  # no room for more: a later read asks again
                    session.ahead = at
                    return
        session.ahead = at

    def _ask_for(self, piece: Piece, end: int, session: ReadSession) -> int:
        """Request spans for a piece of read-ahead that begin before `end`; return the offset where they end."""
        if piece.lost or piece.candidates[0].object.tier is Tier.LOCAL:
            return min(piece.range.end, end)
        placed = piece.candidates[0]
        held = in_object(piece.range, placed)
        shift = piece.range.start - held.start
        at = held.start
        while at < held.end and at + shift < end:
            span = self._spans.find(placed.object.id, at)
            if span is None:
                if len(session.ends_ahead) >= MOST_SPANS_AHEAD:
                    break
                asked = ByteRange(at, min(held.end, at + session.range_bytes))
                span = self._path.ask(placed, asked, _priority(at + shift, self._wanted), self._payer, ahead=True)
                if span is None:
                    break
                session.ends_ahead.append(span.end + shift)
            at = span.end
        return min(at, held.end) + shift

    def _ask_in_pack(self, plan: ByteRange, session: ReadSession) -> None:
        """Do as `_ask_ahead`, by offsets of the pack. Spans outlive the segment: reads of the next one use them."""
        at = plan.start
        while at < plan.end:
            span = self._spans.find(self._placed.object.id, at)
            if span is None:
                asked = ByteRange(at, min(self._placed.object.length, at + session.range_bytes))
                span = self._path.ask(self._placed, asked, _priority(at, self._held), self._payer)
            if span is None:  # memory ran out: the next read asks again
                break
            at = span.end
        session.ahead = at


def _priority(at: int, wanted: ByteRange) -> int:
    """Return the priority of a span that begins at `at`: its distance from the bytes wanted now."""
    return WANTED_NOW if at < wanted.end else at - wanted.start
