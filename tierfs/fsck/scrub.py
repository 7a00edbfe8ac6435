"""Reading pieces and checking every byte, several at once. Memory: a buffer for each thread."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from tierfs.checksum import crc32c
from tierfs.chunkstore.chunkfiles import ChunkFiles, map_os_errors
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss, NotFound, Unavailable
from tierfs.fsck.pieces import PIECE_BYTES, Piece, pieces
from tierfs.fsck.places import Places
from tierfs.fsck.ranges import minus, union
from tierfs.metadata import keys
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import OBJECTS
from tierfs.reading.etags import Etags
from tierfs.types import CRC_BLOCK_BYTES, ByteRange, LocationId, SegmentId, Tier

_THREADS = 8
_BUFFER_BYTES = PIECE_BYTES + 2 * CRC_BLOCK_BYTES
"""A piece may begin and end inside a block."""


class Fault(StrEnum):
    """What is the matter with bytes that a copy does not have."""

    DAMAGED = "damaged"
    MISSING = "missing"
    """The file or object is not there."""
    AWAY = "not reachable"
    """Nothing of the place is there."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What reading a piece showed."""

    piece: Piece
    bad: tuple[ByteRange, ...] = ()
    """The segment's bytes that this copy does not have, or has wrong."""
    why: str = ""
    crc32c: int = 0
    """Of the piece's bytes, where none is bad."""
    fault: Fault = Fault.DAMAGED
    """Of what is bad."""

    @property
    def away(self) -> bool:
        """Whether the whole place cannot be reached, which says nothing of the bytes."""
        return self.fault is Fault.AWAY


class Scrubber:
    """Reads pieces of both tiers."""

    def __init__(
        self, metadata: MetadataStore, files: ChunkFiles, storage_of: Callable[[LocationId], ChunkStorage]
    ) -> None:
        self._metadata = metadata
        self._files = files
        self._storage_of = storage_of
        self.etags = Etags(metadata)
        """Of objects that were read: those that differ and proved right wait to be adopted."""
        self.places = Places(metadata, storage_of)
        self._local = threading.local()

    def run(self, wanted: Iterable[Piece]) -> Iterator[Checked]:
        """Each piece checked, in the same order. Raises Unavailable when a tier does not answer."""
        ahead: deque[Future[Checked]] = deque()
        with ThreadPoolExecutor(_THREADS, "tierfs-scrub") as pool:
            try:
                for piece in wanted:
                    ahead.append(pool.submit(self.check, piece))
                    if len(ahead) >= 2 * _THREADS:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def has_all(self, segment_id: SegmentId, span: ByteRange, *tiers: Tier) -> bool:
        """Whether these tiers have good copies of all readable bytes of a range; reads them."""
        wanted: list[ByteRange] = []
        good: list[ByteRange] = []
        for checked in self.run(pieces(self._metadata, segment_id, span, tiers)):
            wanted.append(checked.piece.range)
            good.extend(minus([checked.piece.range], checked.bad))
        return not list(minus(wanted, good))

    def check(self, piece: Piece) -> Checked:
        """Read one piece. What looks bad is read once more, unless the bytes moved meanwhile."""
        if piece.placed is None:
            return Checked(piece, (piece.range,), "no tier holds these bytes")
        found = self._read(piece, piece.placed)
        if not found.bad:
            return found
        with self._metadata.read() as txn:
            still_there = txn.get(OBJECTS, keys.u64(piece.placed.object.id)) is not None
        return self._read(piece, piece.placed) if still_there else Checked(piece)

    def read(self, piece: Piece) -> bytes:
        """The bytes of a piece. Raises DataLoss when one is bad by now."""
        assert piece.placed is not None
        found = self._read(piece, piece.placed)
        if found.bad or piece.grid is None:
            raise DataLoss(f"{piece.placed.object.name}: {found.why}")
        at = piece.in_object.start - piece.grid.range.start
        return bytes(self._buffer()[at : at + piece.range.length_bytes])

    def _read(self, piece: Piece, placed: PlacedChunk) -> Checked:
        grid = piece.grid
        if grid is None:
            return Checked(piece, (piece.range,), "the metadata has no checksums for these bytes")
        view = self._buffer()[: grid.range.length_bytes]
        unread: list[ByteRange] = []
        etag: str | None = None
        try:
            if placed.object.tier is Tier.LOCAL:
                unread = self._read_file(placed, grid.range.start, view)
            else:
                storage = self._storage_of(placed.object.location_id)
                etag = self.etags.read_into(storage, placed.object, grid.range.start, view)
        except (NotFound, Unavailable) as exc:
            why = self._away(placed)
            if why is None and isinstance(exc, Unavailable):
                raise
            fault = Fault.MISSING if why is None else Fault.AWAY
            return Checked(piece, (piece.range,), why or str(exc), fault=fault)
        except DataLoss as exc:
            return Checked(piece, (piece.range,), str(exc))
        bad = tuple(union([*_bad_ranges(piece, view), *(_of_segment(piece, one) for one in unread)]))
        found = view[piece.in_object.start - grid.range.start :][: piece.range.length_bytes]
        if bad and not unread and (placed.proves(piece.range, found) or self._is_right_in_whole(placed)):
            return Checked(piece, crc32c=crc32c(found))  # another segment's bytes of the block are bad
        if bad:
            name = placed.object.name
            why = f"{name} cannot be read there" if unread else "the bytes do not match their checksums"
            return Checked(piece, bad, why)
        if placed.object.tier is Tier.COLD:
            self.etags.proved(placed.object, etag)
        return Checked(piece, crc32c=crc32c(found))

    def _is_right_in_whole(self, placed: PlacedChunk) -> bool:
        """Whether a chunk of a pack that is read in several pieces proves right by its own CRC32C."""
        chunk, holder, whole = placed.chunk, placed.object, 0
        if chunk.bytes_crc32c is None or holder.tier is not Tier.COLD:
            return False
        storage, end = self._storage_of(holder.location_id), chunk.object_offset + chunk.length
        for start in range(chunk.object_offset, end, _BUFFER_BYTES):
            view = memoryview(bytearray(min(_BUFFER_BYTES, end - start)))
            try:
                self.etags.read_into(storage, holder, start, view)
            except (NotFound, DataLoss):
                return False
            whole = crc32c(view, whole)
        return whole == chunk.bytes_crc32c

    def _away(self, placed: PlacedChunk) -> str | None:
        """Why the whole place of a copy is not reachable; None when it is."""
        if placed.object.tier is Tier.COLD:
            return self.places.away(placed.object.location_id)
        return None if self._files.is_mounted else f"{self._files.root} is not reachable: it is no chunk directory"

    def _read_file(self, placed: PlacedChunk, offset: int, view: memoryview) -> list[ByteRange]:
        """Fill the view block by block; what the disk does not deliver is zero. Returns those bytes of the file."""
        name = placed.object.name
        unread: list[ByteRange] = []
        fd = self._files.open_for_read(name)
        try:
            with map_os_errors(name):
                # The disk is to be checked, not the memory that holds what was written a minute ago.
                os.posix_fadvise(fd, offset, len(view), os.POSIX_FADV_DONTNEED)
                for start in range(0, len(view), CRC_BLOCK_BYTES):
                    block = view[start : start + CRC_BLOCK_BYTES]
                    done = _fill(fd, block, offset + start)
                    block[done:] = bytes(len(block) - done)
                    if done < len(block):
                        unread.append(ByteRange(offset + start + done, offset + start + len(block)))
        finally:
            os.close(fd)
        return unread

    def _buffer(self) -> memoryview:
        buffer: memoryview | None = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = memoryview(bytearray(_BUFFER_BYTES))
        return buffer


def _fill(fd: int, view: memoryview, offset: int) -> int:
    """Read until the view is full; returns how far the file and a damaged disk let it."""
    done = 0
    while done < len(view):
        try:
            count = os.preadv(fd, [view[done:]], offset + done)
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            count = 0
        if not count:
            break
        done += count
    return done


def _of_segment(piece: Piece, in_object: ByteRange) -> ByteRange:
    """Bytes of the piece's object as bytes of the segment, as far as they are the piece's."""
    shift = piece.range.start - piece.in_object.start
    return ByteRange(max(0, in_object.start + shift), max(0, in_object.end + shift)).intersect(piece.range)


def _bad_ranges(piece: Piece, view: memoryview) -> Iterator[ByteRange]:
    """The piece's bytes whose blocks do not match."""
    grid = piece.grid
    assert grid is not None
    index = 0
    while True:
        bad, index = grid.first_bad(view, grid.range.start, index, grid.range.end)
        if bad is None:
            return
        index += 1
        yield _of_segment(piece, bad)
