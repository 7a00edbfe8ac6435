"""The bytes of an offload: neighbouring chunk files as one Source, every byte's CRC checked on the way.

Reads cut the bytes where either grid has a line: that of the chunks they come from, and that of the
object they become. The CRCs of these cuts combine to both, so one pass over the bytes both verifies
the source and yields the object's own grid.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tierfs.checksum import Buffer, combine, crc32c
from tierfs.chunkstore.chunkfiles import ChunkFiles, map_os_errors
from tierfs.errors import DataLoss
from tierfs.types import CRC_BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """One chunk file: its name, committed length, and the CRC32C of each of its blocks."""

    name: str
    length_bytes: int
    crcs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    start: int
    fd: int
    chunk: SourceChunk

    @property
    def end(self) -> int:
        return self.start + self.chunk.length_bytes


class ChunkSource:
    """A Source over chunk files. Thread-safe; close it."""

    def __init__(self, files: ChunkFiles, chunks: Sequence[SourceChunk]) -> None:
        """Open the files; raises NotFound."""
        self._parts: list[_Part] = []
        self._cuts: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        start = 0
        try:
            for chunk in chunks:
                self._parts.append(_Part(start, files.open_for_read(chunk.name), chunk))
                start += chunk.length_bytes
        except BaseException:
            self.close()
            raise
        self._length = start

    @property
    def length_bytes(self) -> int:
        """Total number of bytes."""
        return self._length

    def read(self, offset: int, length_bytes: int) -> Buffer:
        """Exactly these bytes, in a buffer of their own. Raises DataLoss when a file is too short."""
        buffer = memoryview(bytearray(length_bytes))
        end = offset + length_bytes
        cuts: dict[int, tuple[int, int]] = {}
        for part in self._parts:
            start, stop = max(offset, part.start), min(end, part.end)
            if start < stop:
                view = buffer[start - offset : stop - offset]
                _fill(part, view, start - part.start)
                cuts.update(_cut_crcs(part, view, start))
        with self._lock:
            self._cuts.update(cuts)
        return buffer

    def verified_grid(self) -> tuple[int, ...]:
        """The object's block CRCs, once everything was read. Raises DataLoss naming a file that is damaged."""
        cuts = sorted((start, length, crc) for start, (length, crc) in self._cuts.items())
        for part in self._parts:
            inside = [cut for cut in cuts if part.start <= cut[0] < part.end]
            if tuple(_blocks(inside, part.start)) != part.chunk.crcs:
                raise DataLoss(f"chunk file {part.chunk.name} does not match its checksums", remedy="run: tierfs fsck")
        return tuple(_blocks(cuts, 0))

    def close(self) -> None:
        """Close the files; idempotent."""
        for part in self._parts:
            os.close(part.fd)
        self._parts = []


def _fill(part: _Part, view: memoryview, offset: int) -> None:
    with map_os_errors(part.chunk.name):
        while view:
            count = os.preadv(part.fd, [view], offset)
            if count == 0:
                raise DataLoss(
                    f"chunk file {part.chunk.name} ends at {offset}, its record says {part.chunk.length_bytes}"
                )
            view, offset = view[count:], offset + count


def _cut_crcs(part: _Part, view: memoryview, start: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Object offset -> (length, CRC) for each stretch between two grid lines."""
    at, end = start, start + len(view)
    while at < end:
        to_object_line = CRC_BLOCK_BYTES - at % CRC_BLOCK_BYTES
        to_chunk_line = CRC_BLOCK_BYTES - (at - part.start) % CRC_BLOCK_BYTES
        size = min(to_object_line, to_chunk_line, end - at)
        yield at, (size, crc32c(view[at - start : at - start + size]))
        at += size


def _blocks(cuts: Sequence[tuple[int, int, int]], origin: int) -> Iterator[int]:
    """CRCs of the 128 KiB blocks counted from `origin`, combined from consecutive cuts."""
    whole, filled = 0, 0
    for _, length, crc in cuts:
        whole = combine(whole, crc, length) if filled else crc
        filled += length
        if filled == CRC_BLOCK_BYTES:
            yield whole
            whole, filled = 0, 0
    if filled:
        yield whole
