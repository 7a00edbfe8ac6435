"""Layout snapshots: where the bytes of one window of a segment live, at one instant.

A snapshot is immutable and belongs to one generation of the segment. It covers a window of the segment, so opening a
file of a million chunks loads only the chunks around the offset being read.
"""

from __future__ import annotations

from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import ByteRange, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.transaction import ReadTransaction

# Most chunks of each tier loaded at once: 4 GiB of 64 MiB chunks, about 0.5 ms of decoding.
WINDOW_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk together with its object."""

    chunk: ChunkRecord
    object: ObjectRecord

    @property
    def range(self) -> ByteRange:
        """Bytes of the segment that it holds."""
        return self.chunk.range


@dataclass(frozen=True, slots=True)
class Layout:
    """One window of a segment: chunks of each tier in offset order, complete inside `window`.

    Lost extents without an object are left out; one that keeps its object is tried last, and may verify.
    """

    segment: SegmentRecord
    window: ByteRange
    local: tuple[PlacedChunk, ...]
    cold: tuple[PlacedChunk, ...]
    transaction_id: int

    def chunks(self, tier: Tier) -> tuple[PlacedChunk, ...]:
        """Return the window's chunks in one tier."""
        return self.local if tier is Tier.LOCAL else self.cold

    def holds(self, offset: int) -> bool:
        """Return whether a chunk of either tier has the byte at `offset`, which is not before the window's start."""
        return any(placed.range.start <= offset < placed.range.end for placed in (*self.local, *self.cold))

    @property
    def readable(self) -> ByteRange:
        """The part of the window that holds bytes."""
        return self.window.intersect(self.segment.range)


def load(txn: ReadTransaction, segment: SegmentRecord, offset: int, chunks: int = WINDOW_CHUNKS) -> Layout:
    """Return the layout around `offset`, and from there for up to `chunks` chunks of each tier."""
    at = min(max(offset, segment.start_offset), segment.length)
    start, end = segment.start_offset, segment.length
    loaded: list[tuple[PlacedChunk, ...]] = []
    for tier in (Tier.LOCAL, Tier.COLD):
        records = tuple(islice(chains.chunks(txn, segment.id, tier, at), chunks))
        if len(records) == chunks:
            end = min(end, records[-1].end_offset)
        if segment.tier_state(tier).count:
            # Chunks before its first one, or in a gap, may exist and were not loaded.
            start = max(start, min(at, records[0].start_offset) if records else at)
        placed = (PlacedChunk(chunk, chains.object_of(txn, chunk)) for chunk in records if chunk.object_id)
        loaded.append(tuple(placed))
    return Layout(segment, ByteRange(start, max(start, end)), loaded[0], loaded[1], txn.id)
