"""Comparing a file with a segment: its bytes are read, the segment's are known by their CRC32C grids."""

from __future__ import annotations

from collections.abc import Callable

from tierfs import osio
from tierfs.checksum import crc32c
from tierfs.fsck.pieces import PIECE_BYTES, Piece, pieces
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.types import CRC_BLOCK_BYTES, ByteRange


class Incomparable(Exception):
    """The metadata has no checksum of some bytes by themselves: they were lost, or a block of an object was cut."""


def first_difference(
    metadata: MetadataStore, segment: SegmentRecord, fd: int, advance: Callable[[int], None]
) -> ByteRange | None:
    """The first block of 128 KiB, or rest of a chunk, in which a file differs from a segment of at most its length.

    None when the file begins with the segment's bytes. `advance` is told how many bytes were compared, and may raise.
    Raises Incomparable, and OSError for what reading the file raises.
    """
    buffer = memoryview(bytearray(min(segment.length, PIECE_BYTES) + 2 * CRC_BLOCK_BYTES))
    compared = 0
    for piece in pieces(metadata, segment.id, ByteRange(0, segment.length)):
        if not piece.first or piece.range.end <= compared:
            continue
        if piece.placed is None:
            raise Incomparable
        span = _own_blocks(piece, piece.placed)
        if span is None:
            difference, compared = _in_chunk(piece.placed, fd, buffer), piece.placed.range.end
        else:
            difference, compared = _in_blocks(piece, span, fd, buffer), piece.range.end
        if difference is not None:
            return difference
        advance(compared - piece.range.start)
    return None


def _own_blocks(piece: Piece, placed: PlacedChunk) -> ByteRange | None:
    """The segment's bytes that the piece's blocks hold; None when they hold others too, as those of a pack do."""
    if piece.grid is None:
        return None
    shift = piece.range.start - piece.in_object.start
    start, end = piece.grid.range.start + shift, piece.grid.range.end + shift
    return ByteRange(start, end) if placed.range.start <= start and end <= placed.range.end else None


def _in_blocks(piece: Piece, span: ByteRange, fd: int, buffer: memoryview) -> ByteRange | None:
    """The first block of a piece that the file has otherwise."""
    assert piece.grid is not None
    blocks = piece.grid.range
    shift = span.start - blocks.start
    view = buffer[: span.length_bytes]
    held = osio.read_all(fd, view, span.start)
    bad, _ = piece.grid.first_bad(view, blocks.start, 0, blocks.start + held)
    if bad is not None:
        return ByteRange(bad.start + shift, bad.end + shift)
    if held < len(view):  # the file was cut meanwhile
        return ByteRange(span.start + held, span.end)
    return None


def _in_chunk(placed: PlacedChunk, fd: int, buffer: memoryview) -> ByteRange | None:
    """The whole chunk, when the file has it otherwise: it has a CRC32C of its own, or cannot be compared."""
    if placed.chunk.bytes_crc32c is None:
        raise Incomparable
    found, at = 0, placed.range.start
    while at < placed.range.end:
        read = osio.read_all(fd, buffer[: placed.range.end - at], at)
        if not read:
            return placed.range
        found = crc32c(buffer[:read], found)
        at += read
    return None if found == placed.chunk.bytes_crc32c else placed.range
