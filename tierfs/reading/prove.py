"""Proving a chunk: every byte of it is read from its object and checked against its checksums."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tierfs.chunkstore.chunkfiles import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import Closed, DataLoss, NotFound
from tierfs.metadata import checksums
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.store import MetadataStore
from tierfs.reading.etags import Etags
from tierfs.reading.grid import grid_of
from tierfs.reading.resolve import in_object
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, LocationId, Tier

_STEP_BYTES = 4 * MIB

_MOST_WHOLE_BYTES = 64 * MIB
"""Of a chunk that is held in memory to be proved by its own CRC32C; packs have larger ones only by a setting."""


class Prover:
    """Reads chunks of both tiers. For threads: it waits for disks and servers."""

    def __init__(
        self,
        metadata: MetadataStore,
        files: ChunkFiles,
        storage_of: Callable[[LocationId], ChunkStorage],
        etags: Etags,
    ) -> None:
        self._metadata = metadata
        self._files = files
        self._storage_of = storage_of
        self._etags = etags

    def proves(self, placed: PlacedChunk, stopped: threading.Event) -> bool:
        """Whether all of a chunk is there and right.

        Raises Unavailable when its tier does not answer, Closed at the next step once it is `stopped`.
        """
        try:
            return self._blocks_are_right(placed, stopped) or self.whole_chunk(placed) is not None
        except (NotFound, DataLoss):
            return False

    def whole_chunk(self, placed: PlacedChunk) -> memoryview | None:
        """The bytes of a small chunk that prove right by its own CRC32C; None for others.

        Raises what reading them raises.
        """
        held = in_object(placed.range, placed)
        if placed.chunk.bytes_crc32c is None or held.length_bytes > _MOST_WHOLE_BYTES:
            return None
        view = memoryview(bytearray(held.length_bytes))
        self._fill(placed, held.start, view)
        return view if placed.proves(placed.range, view) else None

    def _blocks_are_right(self, placed: PlacedChunk, stopped: threading.Event) -> bool:
        held = in_object(placed.range, placed)
        begin = held.start - held.start % CRC_BLOCK_BYTES
        for start in range(begin, held.end, _STEP_BYTES):
            if stopped.is_set():
                raise Closed(f"{placed.object.name}: the store was closed while it was read")
            if not self._is_right(placed, ByteRange(max(start, held.start), min(start + _STEP_BYTES, held.end))):
                return False
        return True

    def _is_right(self, placed: PlacedChunk, span: ByteRange) -> bool:
        holder = placed.object
        with self._metadata.read() as txn:
            grid = grid_of(checksums.runs_covering(txn, holder.id, span), span, holder.length)
        view = memoryview(bytearray(grid.range.length_bytes))
        etag = self._fill(placed, grid.range.start, view)
        bad, _ = grid.first_bad(view, grid.range.start, 0, grid.range.end)
        if bad is None and holder.tier is Tier.COLD:
            self._etags.proved(holder, etag)
        return bad is None

    def _fill(self, placed: PlacedChunk, offset: int, view: memoryview) -> str | None:
        """Returns the etag under which an object's bytes came."""
        holder = placed.object
        if holder.tier is Tier.COLD:
            return self._etags.read_into(self._storage_of(holder.location_id), holder, offset, view)
        self._files.read_into(holder.name, offset, view)
        return None
