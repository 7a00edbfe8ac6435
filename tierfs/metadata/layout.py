"""Layout snapshots: where the bytes of one window of a segment live, at one instant.

A snapshot is immutable and belongs to one generation of the segment. It covers a window of the
segment, so opening a file of a million chunks loads only the chunks around the offset being read.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from tierfs.checksum import Buffer, crc32c
from tierfs.metadata import chains
from tierfs.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ByteRange, Tier

WINDOW_CHUNKS = 64
"""Most chunks of each tier loaded at once: 4 GiB of 64 MiB chunks, about 0.5 ms of decoding."""


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk together with its object."""

    chunk: ChunkRecord
    object: ObjectRecord

    @property
    def range(self) -> ByteRange:
        """The segment's bytes it holds."""
        return self.chunk.range

    def proves(self, span: ByteRange, data: Buffer) -> bool:
        """Whether `data`, the segment's bytes `span`, are all of the chunk and right by its own CRC32C.

        Where chunks of many segments share blocks of a pack, one bad bit makes the block wrong for all of them.
        """
        own = self.chunk.bytes_crc32c
        return own is not None and span == self.range and crc32c(data) == own


@dataclass(frozen=True, slots=True)
class Layout:
    """One window of a segment: chunks of each tier in offset order, complete inside `window`.

    Lost extents without an object are left out; one that keeps its object is tried last, and may prove right.
    """

    segment: SegmentRecord
    window: ByteRange
    local: tuple[PlacedChunk, ...]
    cold: tuple[PlacedChunk, ...]
    transaction_id: int

    def chunks(self, tier: Tier) -> tuple[PlacedChunk, ...]:
        """The window's chunks in one tier."""
        return self.local if tier is Tier.LOCAL else self.cold

    def holds(self, offset: int) -> bool:
        """Whether a chunk of either tier has the byte at `offset`, which the window begins at or before."""
        return any(placed.range.start <= offset < placed.range.end for placed in (*self.local, *self.cold))

    @property
    def readable(self) -> ByteRange:
        """The part of the window that holds bytes."""
        return self.window.intersect(self.segment.range)


def load(txn: ReadTransaction, segment: SegmentRecord, offset: int, chunks: int = WINDOW_CHUNKS) -> Layout:
    """The layout around `offset`, and on from there for up to `chunks` chunks of each tier."""
    at = min(max(offset, segment.start_offset), segment.length)
    start, end = segment.start_offset, segment.length
    loaded: list[tuple[PlacedChunk, ...]] = []
    for tier in (Tier.LOCAL, Tier.COLD):
        found = tuple(islice(chains.chunks(txn, segment.id, tier, at), chunks))
        if len(found) == chunks:
            end = min(end, found[-1].end_offset)
        if segment.tier_state(tier).count:
            # Before its first chunk, or in a gap, there may be others that were not loaded.
            start = max(start, min(at, found[0].start_offset) if found else at)
        loaded.append(tuple(PlacedChunk(one, chains.object_of(txn, one)) for one in found if one.object_id))
    return Layout(segment, ByteRange(start, max(start, end)), loaded[0], loaded[1], txn.id)
