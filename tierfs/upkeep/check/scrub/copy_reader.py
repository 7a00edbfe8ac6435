"""Checks one piece: reads one copy and compares each byte with its checksums. Asks for no metadata.

Used by a store's scrubber and by executors of Spark, which have no metadata.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable, Sequence
from enum import StrEnum

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words.errors import Archived, DataLoss, NotFound, Unavailable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, Tier
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.reading.verified import VerifiedReader, own_sum
from tierfs.upkeep.check.scrub.pieces import PIECE_BYTES, ScrubPiece

# A piece may begin and end inside a block.
BUFFER_BYTES = PIECE_BYTES + 2 * CRC_BLOCK_BYTES
# Memory of the kernel is zero where nothing is read into it: a check of small segments would clear all of it.
_OWN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

# Returns the reason the whole place of a copy is unreachable, or None. Asked when something is missing there.
Away = Callable[[PlacedChunk], str | None]


class Fault(StrEnum):
    """The defect of bytes that a copy does not have."""

    DAMAGED = "damaged"
    MISSING = "missing"
    """The file or object does not exist."""
    AWAY = "not accessible"
    """Nothing of the place can be reached."""
    UNSEEN = "not seen"
    """It is in a directory that this machine does not have."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of reading a piece."""

    piece: ScrubPiece
    bad: tuple[ByteRange, ...] = ()
    """The segment's bytes that this copy lacks or has wrong."""
    why: str = ""
    crc32c: int = 0
    """Of the piece's bytes, if none is bad."""
    fault: Fault = Fault.DAMAGED
    """Of the bad bytes."""
    is_archived: bool = False
    """Whether they are not accessible because they have to be restored first."""

    @property
    def away(self) -> bool:
        """Whether the whole place cannot be reached, which proves nothing about the bytes."""
        return self.fault is Fault.AWAY


class CopyReader:
    """Reads pieces and checks them; thread-safe, with a buffer for each thread."""

    def __init__(self, reader: VerifiedReader, away: Away) -> None:
        self._reader = reader
        self._away = away
        self._local = threading.local()

    def check(self, piece: ScrubPiece, placed: PlacedChunk) -> Checked:
        """Read one copy of a piece. Raises Unavailable when its place does not answer."""
        grid = piece.grid
        if grid is None:
            return Checked(piece, (piece.range,), "the metadata has no checksums for these bytes")
        view = self._buffer()[: grid.range.length_bytes]
        unread: list[ByteRange] = []
        try:
            if placed.object.tier is Tier.LOCAL:
                unread = self._read_file(placed, grid.range.start, view)
                blocks = list(grid.bad_blocks(view, grid.range.start))
            else:
                blocks = self._reader.bad_blocks(placed.object, grid, view)
        except Archived as exc:  # nothing is known of the bytes until they are thawed
            return Checked(piece, (piece.range,), str(exc), fault=Fault.AWAY, is_archived=True)
        except (NotFound, Unavailable) as exc:
            why = self._away(placed)
            if why is None and isinstance(exc, Unavailable):
                raise
            fault = Fault.MISSING if why is None else Fault.AWAY
            return Checked(piece, (piece.range,), why or str(exc), fault=fault)
        except DataLoss as exc:
            return Checked(piece, (piece.range,), str(exc))
        bad = tuple(ranges.union(of_segment(piece, part) for part in (*blocks, *unread)))
        sums = crc32c(piece.in_object.of(view, grid.range.start))
        if not bad or (not unread and self._is_right(piece, placed, sums, blocks)):
            return Checked(piece, crc32c=sums)
        why = f"{placed.object.name} cannot be read there" if unread else "the bytes do not match their checksums"
        return Checked(piece, bad, why)

    def _is_right(self, piece: ScrubPiece, placed: PlacedChunk, sums: int, bad: Sequence[ByteRange]) -> bool:
        """Return whether a chunk proves right by its own CRC32C: other bytes of the blocks are bad, as in a pack.

        It is read again if the piece, whose CRC32C is `sums`, is a part of it.
        """
        own = own_sum(placed)
        if own is None or not own.may_save(bad):
            return False
        if own.range == piece.in_object:
            return sums == own.crc32c
        try:
            return self._reader.by_itself(placed.object, own, ByteRange(0, 0)) is not None
        except (NotFound, DataLoss):
            return False

    def _read_file(self, placed: PlacedChunk, offset: int, view: memoryview) -> list[ByteRange]:
        """Fill the view block by block, with zeros for unreadable bytes; return those ranges of the file."""
        name = placed.object.name
        unread: list[ByteRange] = []
        fd = self._reader.files().open_for_read(name)
        try:
            with map_os_errors(name):
                # The disk is to be checked, not the page cache with the bytes of recent writes.
                os.posix_fadvise(fd, offset, len(view), os.POSIX_FADV_DONTNEED)
                for start in range(0, len(view), CRC_BLOCK_BYTES):
                    block = view[start : start + CRC_BLOCK_BYTES]
                    done = osio.read_all(fd, block, offset + start, over=errno.EIO)
                    block[done:] = bytes(len(block) - done)
                    if done < len(block):
                        unread.append(ByteRange(offset + start + done, offset + start + len(block)))
        finally:
            os.close(fd)
        return unread

    def _buffer(self) -> memoryview:
        """Return this thread's buffer, which holds the whole blocks read last."""
        buffer: memoryview | None = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = memoryview(mmap.mmap(-1, BUFFER_BYTES, flags=_OWN))
        return buffer


def of_segment(piece: ScrubPiece, in_object: ByteRange) -> ByteRange:
    """Return bytes of the piece's object as bytes of the segment, clipped to the piece."""
    shift = piece.range.start - piece.in_object.start
    return ByteRange(max(0, in_object.start + shift), max(0, in_object.end + shift)).intersect(piece.range)
