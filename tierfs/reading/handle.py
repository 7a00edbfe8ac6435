"""ReadHandle: one open segment, reading from a layout snapshot.

The snapshot of an unsealed segment is renewed when any process committed something; that of a sealed one
only moves its window. When a file or object named by it is gone, the newest snapshot is tried once, then
the other tier, then the read fails.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from tierfs import names
from tierfs.checksum import Buffer
from tierfs.errors import DataLoss, Fenced, NotFound, TierfsError, Unavailable
from tierfs.metadata import checksums, directories, keys
from tierfs.metadata.layout import Layout, PlacedChunk, load
from tierfs.metadata.records import ChecksumRun, SegmentRecord
from tierfs.metadata.tables import OBJECTS
from tierfs.metrics import MetricName
from tierfs.reading.fetch import WANTED_NOW
from tierfs.reading.grid import Grid, grid_of, run_matches
from tierfs.reading.readahead import Session
from tierfs.reading.resolve import Piece, in_object, resolve
from tierfs.reading.spans import Span
from tierfs.reading.stats import count_blocks
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, ReadPriority, Tier

if TYPE_CHECKING:
    from tierfs.reading.reader import Reader

log = logging.getLogger(__name__)

_RECENT_BYTES = 64 * MIB
"""How far one resolved piece is remembered: about a chunk."""


class ReadHandle:
    """One open segment. Reads may overlap; close it once."""

    def __init__(self, reader: Reader, layout: Layout, priority: ReadPriority) -> None:
        self._reader = reader
        self._layout = layout
        self._session = Session()
        self.priority = priority
        self.served_from: Tier | None = None
        self._recent: tuple[Layout, Piece] | None = None
        self._run: ChecksumRun | None = None

    @property
    def segment(self) -> SegmentRecord:
        """The newest record this handle has seen."""
        return self._layout.segment

    @property
    def windows(self) -> tuple[int, ...]:
        """How far each of its read-ahead sessions runs ahead, in bytes."""
        return (self._session.window_bytes,) if self._session.position >= 0 else ()

    async def read(self, offset: int, size_bytes: int) -> Buffer:
        """Bytes [offset, offset + size) of the segment, cut at its end; empty at and behind it.

        The buffer is valid until the caller's next await. Raises Fenced (ESTALE) below the start offset
        or when the segment was deleted, Unavailable when no tier answers within the deadline, DataLoss
        when no good copy is left.
        """
        self._renew(offset)
        wanted = self._clamped(offset, size_bytes)
        if not wanted:
            return b""
        now = self._without_waiting(wanted)
        if now is not None:
            return now
        try:
            with trio.fail_after(self._reader.settings.deadline_s):
                return await self._read_pieces(wanted)
        except trio.TooSlowError as exc:
            raise Unavailable(f"{self._name}: no answer within {self._reader.settings.deadline_s:g} s") from exc

    def close(self) -> None:
        """Stop reading ahead for this handle."""
        self._reader.handles -= 1
        self._reader.open_handles.remove(self)

    @property
    def _name(self) -> str:
        return f"segment {names.printable(self.segment.name)}"

    def _clamped(self, offset: int, size_bytes: int) -> ByteRange:
        segment = self.segment
        if offset < segment.start_offset:
            raise Fenced(f"{self._name} begins at {segment.start_offset} now; bytes from {offset} on are gone")
        return ByteRange(min(offset, segment.length), min(offset + size_bytes, segment.length))

    def _renew(self, offset: int, *, force: bool = False) -> None:
        """Make the layout current for an unsealed segment, and move its window to `offset`."""
        layout = self._layout
        metadata = self._reader.metadata
        stale = force or (not layout.segment.sealed and metadata.last_transaction_id() != layout.transaction_id)
        outside = not layout.window.start <= offset < layout.window.end and offset < layout.segment.length
        if not stale and not outside:
            return
        with metadata.read() as txn:
            segment = directories.segment(txn, layout.segment.id)
            if segment is None:
                raise Fenced(f"{self._name} was deleted")
            self._layout = load(txn, segment, offset)

    def _without_waiting(self, wanted: ByteRange) -> memoryview | None:
        """All the bytes from one chunk, if memory or the page cache holds them; keeps read-ahead going."""
        placed = self._only_candidate(wanted)
        if placed is None:
            return None
        held = in_object(wanted, placed)
        if placed.object.tier is Tier.LOCAL:
            return self._local_now(placed, held)
        span = self._reader.spans.find(placed.object.id, held.start)
        if span is None or span.end < held.end or not span.has(held):
            return None
        self._read_ahead(wanted)
        count_blocks(self._reader.metrics, held, hit=True)
        return self._served(span, held)

    def _only_candidate(self, wanted: ByteRange) -> PlacedChunk | None:
        """The best candidate for `wanted` if one piece holds it all. Remembered: the next read is mostly there."""
        layout = self._layout
        if self._recent is not None and self._recent[0] is layout and self._recent[1].range.contains(wanted):
            return self._recent[1].candidates[0]
        if wanted.end > layout.window.end:
            return None
        reach = ByteRange(wanted.start, min(layout.window.end, wanted.start + _RECENT_BYTES))
        piece = resolve(layout, reach, self.priority.tiers)[0]
        if piece.range.end < wanted.end or not piece.candidates:
            return None
        self._recent = (layout, piece)
        return piece.candidates[0]

    def _local_now(self, placed: PlacedChunk, held: ByteRange) -> memoryview | None:
        """Bytes of a local chunk from the page cache; what is touched first is checked.

        None for whatever is not as simple as that: it goes the long way, which also says what is wrong.
        """
        local = self._reader.local
        try:
            if local.is_checked(placed.object.id, held):
                view = local.read_now(placed.object.name, held)
            else:
                view = self._checked_now(placed, held)
        except TierfsError:
            return None
        if view is not None:
            self.served_from = Tier.LOCAL
        return view

    def _checked_now(self, placed: PlacedChunk, held: ByteRange) -> memoryview | None:
        start = held.start - held.start % CRC_BLOCK_BYTES
        end = min(-(-held.end // CRC_BLOCK_BYTES) * CRC_BLOCK_BYTES, placed.object.length)
        run = self._run
        if run is None or run.object_id != placed.object.id or not run.covers(start, end):
            if self.segment.active and placed.chunk.next == 0:
                return None  # it grows: its last checksum must be read together with its length
            with self._reader.metadata.read() as txn:
                found = checksums.run_at(txn, placed.object.id, start)
            if found is None or not found.covers(start, end):
                return None
            run = self._run = replace(found, object_id=placed.object.id)
        view = self._reader.local.read_now(placed.object.name, ByteRange(start, end))
        if view is None or not run_matches(run, view, start):
            return None
        self._reader.local.mark_checked(placed.object.id, ByteRange(start, end))
        return view[held.start - start : held.end - start]

    async def _read_pieces(self, wanted: ByteRange) -> Buffer:
        parts: list[Buffer] = []
        at = wanted.start
        while at < wanted.end:
            self._renew(at)
            layout = self._layout
            rest = ByteRange(at, min(wanted.end, max(layout.window.end, at)))
            piece = resolve(layout, rest, self.priority.tiers)[0]
            data = await self._read_piece(piece, wanted)
            at += len(data)
            if len(data) == wanted.length_bytes:
                return data
            parts.append(bytes(data))  # the next await may reuse the memory
        return b"".join(parts)

    async def _read_piece(self, piece: Piece, wanted: ByteRange) -> Buffer:
        """One piece, from the best candidate that delivers; renews the layout once when a copy is gone."""
        try:
            return await self._from_candidates(piece, wanted)
        except NotFound:
            self._renew(piece.range.start, force=True)
            again = resolve(self._layout, piece.range, self.priority.tiers)[0]
            try:
                return await self._from_candidates(again, wanted)
            except NotFound as exc:
                raise DataLoss(f"{self._name}: {exc}", remedy="run: tierfs fsck") from exc

    async def _from_candidates(self, piece: Piece, wanted: ByteRange) -> Buffer:
        if not piece.candidates:
            raise self._no_copy(piece.range)
        first: TierfsError | None = None
        for placed in piece.candidates:
            try:
                data = await self._from_candidate(placed, piece.range, wanted)
            except TierfsError as exc:
                first = first or exc
                log.info("%s: %s failed: %s", self._name, placed.object.tier.name.lower(), exc)
                continue
            if first is not None:
                self._fell_back(placed, first)
            return data
        assert first is not None
        raise first

    async def _from_candidate(self, placed: PlacedChunk, piece: ByteRange, wanted: ByteRange) -> memoryview:
        if placed.object.tier is Tier.LOCAL:
            held = in_object(piece, placed)
            grid = self._grid_to_check(placed, held)
            view = await self._reader.local.read(placed.object.id, placed.object.name, held, grid)
            self.served_from = Tier.LOCAL
            return view
        self._read_ahead(wanted)
        span, held = await self._span_for(placed, in_object(piece, placed))
        count_blocks(self._reader.metrics, held, hit=span.has(held))
        if not span.has(held):
            if span.queued:
                self._reader.fetcher.submit(span, WANTED_NOW)
            await span.wait_for(held)
        return self._served(span, held)

    def _served(self, span: Span, held: ByteRange) -> memoryview:
        self.served_from = Tier.COLD
        if held.end == span.end:
            self._reader.spans.passed(span)
        else:
            self._reader.spans.used(span)
        return span.slice(held)

    def _grid_to_check(self, placed: PlacedChunk, held: ByteRange) -> Grid | None:
        """The blocks of a local chunk that were not checked yet, with the CRCs of the newest commit."""
        if self._reader.local.is_checked(placed.object.id, held):
            return None
        with self._reader.metadata.read() as txn:
            holder = txn.get(OBJECTS, keys.u64(placed.object.id))
            if holder is None:
                raise NotFound(f"chunk file {placed.object.name} was evicted")
            runs = checksums.runs_covering(txn, placed.object.id, held)
            return grid_of(runs, held, holder.length)

    async def _span_for(self, placed: PlacedChunk, held: ByteRange) -> tuple[Span, ByteRange]:
        """The span that holds the beginning of `held`, and what of `held` that is.

        Made if there is none; while all memory is in use by fetches, waits for one of them to end.
        """
        spans = self._reader.spans
        while True:
            span = spans.find(placed.object.id, held.start) or self._new_span(placed, held, WANTED_NOW)
            if span is not None:
                return span, ByteRange(held.start, min(held.end, span.end))
            await spans.wait_finished()

    def _new_span(self, placed: PlacedChunk, held: ByteRange, priority: int) -> Span | None:
        limit = self._reader.spans.next_start(placed.object.id, held.start)
        end = held.end if limit is None else min(held.end, limit)
        with self._reader.metadata.read() as txn:
            runs = checksums.runs_covering(txn, placed.object.id, ByteRange(held.start, end))
        grid = grid_of(runs, ByteRange(held.start, end), placed.object.length)
        span = self._reader.spans.add(placed.object, grid)
        if span is not None:
            self._reader.fetcher.submit(span, priority)
        return span

    def _read_ahead(self, wanted: ByteRange) -> None:
        """Ask for what comes next, as far as window, layout and memory go."""
        plan = self._session.plan(wanted, self._reader.max_window_bytes, self._layout.window.end)
        if plan is None or not plan:
            return
        step = self._session.range_bytes()
        start = max(plan.start, self._layout.window.start)
        if start >= plan.end:
            return
        for piece in resolve(self._layout, ByteRange(start, plan.end), self.priority.tiers):
            if not piece.candidates or piece.candidates[0].object.tier is Tier.LOCAL:
                continue
            if not self._fetch_piece(piece, step, wanted.start):
                return

    def _fetch_piece(self, piece: Piece, step: int, position: int) -> bool:
        """Spans for a piece, `step` bytes each; False when memory ran out."""
        placed = piece.candidates[0]
        held = in_object(piece.range, placed)
        at = held.start
        while at < held.end:
            span = self._reader.spans.find(placed.object.id, at)
            if span is None:
                distance = max(0, piece.range.start + at - held.start - position)
                span = self._new_span(placed, ByteRange(at, min(held.end, at + step)), distance)
            if span is None:
                return False
            at = span.end
        return True

    def _no_copy(self, lost: ByteRange) -> TierfsError:
        tiers = " or ".join(tier.name.lower() for tier in self.priority.tiers)
        if len(self.priority.tiers) == 1:
            return Unavailable(
                f"{self._name}: bytes {lost.start} to {lost.end} are not in the {tiers} tier, and the read "
                f"priority is {self.priority}",
                remedy="read with another --read-priority",
            )
        return DataLoss(f"{self._name}: bytes {lost.start} to {lost.end} are lost")

    def _fell_back(self, placed: PlacedChunk, error: TierfsError) -> None:
        tier = placed.object.tier.name.lower()
        self._reader.metrics.count(MetricName.READ_FALLBACKS, tier=tier)
        log.warning("%s is read from the %s tier instead: %s", self._name, tier, error)
