"""Which chunks can serve which bytes, best first. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tierfs.metadata.layout import Layout, PlacedChunk
from tierfs.types import ByteRange, ChunkState, Tier


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that every one of `candidates` holds; without a candidate, or with lost ones only, they are lost."""

    range: ByteRange
    candidates: tuple[PlacedChunk, ...]

    @property
    def lost(self) -> bool:
        """Whether no copy is known to be there; the object of a candidate may have come back."""
        return not self.candidates or self.candidates[0].chunk.lost


def resolve(layout: Layout, wanted: ByteRange, tiers: Sequence[Tier]) -> tuple[Piece, ...]:
    """Cut `wanted`, which must lie in the layout's window, into pieces in offset order.

    Candidates are in the order of `tiers`, suspect chunks behind good ones and lost ones last. A piece
    ends where any tier's chunk begins or ends, so each candidate holds all of it.
    """
    if len(tiers) == 1 or not layout.local or not layout.cold:
        return tuple(_pieces(layout, wanted, [tier for tier in tiers if layout.chunks(tier)]))
    return tuple(_pieces(layout, wanted, tiers))


def _pieces(layout: Layout, wanted: ByteRange, tiers: Sequence[Tier]) -> Iterator[Piece]:
    at = wanted.start
    while at < wanted.end:
        end = wanted.end
        candidates: list[PlacedChunk] = []
        for tier in tiers:
            chunks = layout.chunks(tier)
            index = bisect_right(chunks, at, key=_start) - 1
            holds = index >= 0 and chunks[index].range.end > at
            if holds:
                end = min(end, chunks[index].range.end)
                candidates.append(chunks[index])
            elif index + 1 < len(chunks):
                end = min(end, chunks[index + 1].range.start)
        yield Piece(ByteRange(at, end), _ranked(candidates))
        at = end


def _ranked(candidates: list[PlacedChunk]) -> tuple[PlacedChunk, ...]:
    if all(placed.chunk.state is ChunkState.GOOD for placed in candidates):
        return tuple(candidates)
    return tuple(sorted(candidates, key=lambda placed: placed.chunk.state))


def _start(placed: PlacedChunk) -> int:
    return placed.chunk.start_offset


def in_object(piece: ByteRange, placed: PlacedChunk) -> ByteRange:
    """The bytes of a piece as offsets in the object of one of its candidates."""
    shift = placed.chunk.object_offset - placed.chunk.start_offset
    return ByteRange(piece.start + shift, piece.end + shift)
