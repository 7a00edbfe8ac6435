"""Lists the pieces to read of a segment: every byte of every copy, with the checksums.

Records are read a window at a time, each in a short snapshot, so that reading for hours keeps no old pages
alive and opening a segment of a million chunks loads only the ones read next.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, SegmentId, Tier
from tierfs.engine.metadata import chains, checksums, directories, frame_rows
from tierfs.engine.metadata.layout import WINDOW_CHUNKS, Layout, PlacedChunk, load
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.reading.fetch.grid import Grid, grid_of
from tierfs.reading.view import in_object, resolve

# Long enough for a GET to be worth it, short enough for eight in memory.
PIECE_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class ScrubPiece:
    """Adjacent bytes of one copy, at most PIECE_BYTES."""

    segment_id: SegmentId
    range: ByteRange
    """The segment's bytes."""
    placed: PlacedChunk | None
    """None if no tier holds them."""
    first: bool
    """Whether the segment's CRC32C is computed from this copy."""
    grid: Grid | None = None
    """The object's blocks that hold them; None if the metadata has no checksums, or no places of their frames."""

    @property
    def tier(self) -> Tier | None:
        """The tier of the copy, or None."""
        return None if self.placed is None else self.placed.object.tier

    @property
    def in_object(self) -> ByteRange:
        """The same bytes as offsets in the object."""
        assert self.placed is not None
        return in_object(self.range, self.placed)


def pieces(
    metadata: MetadataStore,
    segment_id: SegmentId,
    wanted: ByteRange | None = None,
    tiers: tuple[Tier, ...] = tuple(Tier),
) -> Iterator[ScrubPiece]:
    """Yield all copies of a segment's readable bytes, or of those in `wanted`, in these tiers, in offset order.

    Bytes appended meanwhile are left out. Raises DataLoss when records are too damaged to decide.
    """
    at, end = (0, None) if wanted is None else (wanted.start, wanted.end)
    while True:
        with metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
            if segment is None:
                return
            at = max(at, segment.start_offset)
            end = segment.length if end is None else min(end, segment.length)
            if at >= end:
                return
            layout = _load(txn, segment, at, tiers)
            window = ByteRange(at, max(at, min(layout.window.end, end)))
            if not window:
                raise DataLoss(
                    f"the chunks of segment {segment_id} at {at} are out of order", remedy="run: tierfs check"
                )
            window_pieces = [
                piece
                for held in resolve(layout, window, tiers)
                for piece in _copies(txn, segment_id, held.range, held.candidates)
            ]
        yield from window_pieces
        at = window.end


def _load(txn: ReadTransaction, segment: SegmentRecord, at: int, tiers: tuple[Tier, ...]) -> Layout:
    """Return the layout from `at` on; of a single tier, regardless of the state of the other tier's records."""
    if len(tiers) > 1:
        return load(txn, segment, at)
    (tier,) = tiers
    chunks = list(islice(chains.chunks(txn, segment.id, tier, at), WINDOW_CHUNKS))
    end = chunks[-1].end_offset if len(chunks) == WINDOW_CHUNKS else segment.length
    placed = tuple(PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk in chunks if chunk.object_id)
    local, cold = (placed, ()) if tier is Tier.LOCAL else ((), placed)
    return Layout(segment, ByteRange(at, max(at, end)), local, cold, txn.id)


def _copies(
    txn: ReadTransaction, segment_id: SegmentId, window: ByteRange, candidates: tuple[PlacedChunk, ...]
) -> Iterator[ScrubPiece]:
    if not candidates:
        yield ScrubPiece(segment_id, window, None, first=True)
        return  # however long the lost range is
    at = window.start
    while at < window.end:
        # Without checksums nothing is read: one piece, however many bytes a record claims.
        covered = min(_next_covered(txn, placed, at) for placed in candidates)
        part = ByteRange(at, min(max(at + PIECE_BYTES, covered), window.end))
        at = part.end
        for index, placed in enumerate(candidates):
            wanted = in_object(part, placed)
            for held, grid in _grids(txn, placed, wanted):
                moved = ByteRange(held.start - wanted.start + part.start, held.end - wanted.start + part.start)
                yield ScrubPiece(segment_id, moved, placed, index == 0, grid)


def _next_covered(txn: ReadTransaction, placed: PlacedChunk, at: int) -> int:
    """Return the first byte of the segment from `at` on that has a checksum in this copy; its end without one."""
    offset = in_object(ByteRange(at, placed.chunk.end_offset), placed).start
    if checksums.run_at(txn, placed.object.id, offset) is not None:
        return at
    behind = checksums.run_behind(txn, placed.object.id, offset)
    return placed.chunk.end_offset if behind is None else at + behind - offset


def _grids(txn: ReadTransaction, placed: PlacedChunk, wanted: ByteRange) -> Iterator[tuple[ByteRange, Grid | None]]:
    """Yield the bytes that each run covers; a run ends where the next begins, perhaps with a short block."""
    object_id, length, at = placed.object.id, placed.object.length, wanted.start
    while at < wanted.end:
        run = checksums.run_at(txn, object_id, at)
        following = checksums.run_behind(txn, object_id, at)
        limit = length if following is None else min(following, length)
        held = ByteRange(at, max(at, min(wanted.end, limit)))
        if run is None or not held or not frame_rows.has_frames(run, placed.object):
            yield ByteRange(at, wanted.end), None
            return
        held = ByteRange(at, min(held.end, run.start + run.count * CRC_BLOCK_BYTES))
        yield held, grid_of((run,), held, limit)
        at = held.end
