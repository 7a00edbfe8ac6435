"""Reads bytes in blocks, which begin at multiples of their size, or decompressed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import ByteRange
from tierfs.pipeline.reader.extents import clip
from tierfs.pipeline.reader.fetching import FetchedPiece, ScanFetcher, WantedRequest
from tierfs.pipeline.reader.planning import Part, Partition


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive bytes of one segment."""

    part: int
    offset: int
    length_bytes: int
    content: bytes
    """All of them, or none if they were not read."""


def read_blocks(fetcher: ScanFetcher, partition: Partition, block_bytes: int, *, with_content: bool) -> Iterator[Block]:
    """Yield the bytes of a partition. Blocks end at multiples of `block_bytes` of a segment, and at a part's end.

    Their places are known from the metadata: without content, nothing is read.
    """
    for number, part in enumerate(partition.parts):
        if not with_content:
            yield from (Block(number, each.start, each.length_bytes, b"") for each in _windows(part, block_bytes))
            continue
        pieces = fetcher.pieces(WantedRequest(number, extent) for extent in clip(part.extents, part.owned))
        waiting = bytearray()
        for window in _windows(part, block_bytes):
            while len(waiting) < window.length_bytes:
                waiting += next(pieces).view
            yield Block(number, window.start, window.length_bytes, bytes(waiting[: window.length_bytes]))
            del waiting[: window.length_bytes]


def _windows(part: Part, block_bytes: int) -> Iterator[ByteRange]:
    at = part.owned.start
    while at < part.owned.end:
        end = min(part.owned.end, at + block_bytes - at % block_bytes)
        yield ByteRange(at, end)
        at = end


def unpacked(pieces: Iterator[FetchedPiece], codec: str, name: str, block_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed bytes in blocks. Raises DataLoss for other bytes, and what fetching raises."""
    with pa.CompressedInputStream(pa.PythonFile(_Pieces(pieces), mode="r"), codec) as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as exc:
                raise DataLoss(
                    f"segment {names.printable(name)} is truncated, or not valid {codec}: {exc}",
                    remedy="set the option compression to none to read the raw bytes as lines",
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
