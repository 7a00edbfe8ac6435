"""Decompresses a segment of which a task reads all bytes, as they arrive."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tierfs.errors import DataLoss
from tierfs.names import printable
from tierfs.scan.fetching import FetchedPiece


def unpacked(pieces: Iterator[FetchedPiece], codec: str, name: str, block_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed bytes in blocks. Raises DataLoss for other bytes, and what fetching raises."""
    with pa.CompressedInputStream(pa.PythonFile(_Pieces(pieces), mode="r"), codec) as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as exc:
                raise DataLoss(
                    f"segment {printable(name)} is not whole, or no {codec}: {exc}",
                    remedy="set the option compression to none to read its bytes as lines",
                ) from exc
            if not block:
                return
            yield block


class _Pieces:
    """Fetched pieces as a file that Arrow reads."""

    def __init__(self, pieces: Iterator[FetchedPiece]) -> None:
        self._pieces = pieces
        self._rest = b""
        self.closed = False

    def read(self, size_bytes: int) -> bytes:
        """Return up to so many bytes, none at the end."""
        if not self._rest:
            piece = next(self._pieces, None)
            self._rest = b"" if piece is None else bytes(piece.view)
        data, self._rest = self._rest[:size_bytes], self._rest[size_bytes:]
        return data

    def close(self) -> None:
        """Arrow closes what it has read."""
        self.closed = True
