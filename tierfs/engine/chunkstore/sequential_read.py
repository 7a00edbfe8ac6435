"""Read one version of an object in order, in steps, through any storage."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.protocol import ChunkStorage, ObjectPiece, StoredObject

# Bytes per request and in memory: the part size of our own uploads, a multiple of the checksum grid.
READ_STEP_BYTES = 8 * MIB


def read_steps(
    storage: ChunkStorage, stored: StoredObject, start: int = 0, end: int | None = None, *, appended: bool = False
) -> Iterator[memoryview]:
    """Yield the bytes [start, end) of one version of an object, in order; a step is valid until the next.

    `appended`: of any version, as its writer only appends. Raises EtagDiffers.
    """
    end = stored.length_bytes if end is None else end
    buffer = memoryview(bytearray(min(READ_STEP_BYTES, end - start)))
    for at in range(start, end, READ_STEP_BYTES):
        view = buffer[: min(READ_STEP_BYTES, end - at)]
        storage.read_into(stored.name, at, view, if_match=None if appended else stored.etag)
        yield view


class ObjectFile:
    """An object read in order, never more of it than requested."""

    def __init__(self, storage: ChunkStorage, stored: StoredObject) -> None:
        self._storage = storage
        self._stored = stored
        self._at = 0

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        buffer = bytearray(min(size_bytes, self._stored.length_bytes - self._at))
        if buffer:
            self._storage.read_into(self._stored.name, self._at, memoryview(buffer), if_match=self._stored.etag)
        self._at += len(buffer)
        return bytes(buffer)

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, position: int) -> None:
        """Go on from there."""
        self._at = position


class PiecesSource:
    """A Source over pieces, each of one version. Read in order, it asks for several steps at once."""

    def __init__(self, storage: ChunkStorage, pieces: Sequence[ObjectPiece]) -> None:
        """Read the pieces from `storage`, at no time more than is asked for and one step."""
        self._storage = storage
        self._pieces = pieces
        self._starts = list(accumulate((piece.length_bytes for piece in pieces), initial=0))
        self._ahead = threading.local()
        """A thread's last bytes and their offset."""

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._starts[-1]

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """See Source.read. Raises EtagDiffers for a piece that was replaced."""
        start, view = getattr(self._ahead, "bytes", (0, memoryview(b"")))
        if not start <= offset <= offset + length_bytes <= start + len(view):
            size = max(length_bytes, min(READ_STEP_BYTES, self.length_bytes - offset))
            start, view = offset, memoryview(bytearray(size))
            self._fill(start, view)
            self._ahead.bytes = start, view
        return view[offset - start :][:length_bytes]

    def _fill(self, offset: int, view: memoryview) -> None:
        for piece, start in zip(self._pieces, self._starts, strict=False):
            first, end = max(offset, start), min(offset + len(view), start + piece.length_bytes)
            if first < end:
                wanted = view[first - offset : end - offset]
                self._storage.read_into(piece.name, piece.offset + first - start, wanted, if_match=piece.etag)
