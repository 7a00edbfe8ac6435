"""Comparing a file with a segment: its bytes are read, the segment's are known by their CRC32C grids."""

from __future__ import annotations

import os
from collections.abc import Callable

from tierfs.fsck.pieces import PIECE_BYTES, Piece, pieces
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
    for piece in pieces(metadata, segment.id, ByteRange(0, segment.length)):
        if not piece.first:
            continue
        difference = _difference(piece, fd, buffer)
        if difference is not None:
            return difference
        advance(piece.range.length_bytes)
    return None


def _difference(piece: Piece, fd: int, buffer: memoryview) -> ByteRange | None:
    """The first block of a piece that the file has otherwise."""
    if piece.placed is None or piece.grid is None:
        raise Incomparable
    shift = piece.range.start - piece.in_object.start
    blocks = piece.grid.range
    wanted = ByteRange(blocks.start + shift, blocks.end + shift)
    if not piece.placed.range.contains(wanted):
        raise Incomparable
    view = buffer[: wanted.length_bytes]
    held = _read_at(fd, view, wanted.start)
    bad, _ = piece.grid.first_bad(view, blocks.start, 0, blocks.start + held)
    if bad is not None:
        return ByteRange(bad.start + shift, bad.end + shift)
    if held < len(view):  # the file was cut meanwhile
        return ByteRange(wanted.start + held, wanted.end)
    return None


def _read_at(fd: int, view: memoryview, offset: int) -> int:
    """Fill `view` as far as the file goes; returns how many bytes came."""
    done = 0
    while done < len(view) and (read := os.preadv(fd, [view[done:]], offset + done)):
        done += read
    return done
