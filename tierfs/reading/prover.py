"""Prove whole chunks: all bytes of one copy against their checksums, and the judgement that follows.

A copy is called damaged only after two reads of it failed, for files, objects and blocks of packs alike: the first is
that of its user, the second is made here. Where a pack's chunks share a block, the chunk's own CRC32C decides.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tierfs.chunkstore.local_files import ChunkFiles
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import Closed, DataLoss, NotFound
from tierfs.metadata import chain_edits, checksums
from tierfs.metadata.layout import PlacedChunk
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.grid import grid_of
from tierfs.reading.view import in_object
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, ChunkState, LocationId, SegmentId, Tier

log = logging.getLogger(__name__)

_STEP_BYTES = 4 * MIB

# Largest chunk held in memory to be proved by its own CRC32C; packs have larger ones only by a setting.
_MOST_WHOLE_BYTES = 64 * MIB


class Prover:
    """Checks whole chunks of both tiers. For threads: it waits for disks and servers."""

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

    def proves(self, placed: PlacedChunk, stopped: threading.Event | None = None) -> bool:
        """Return whether all of a chunk exists and is right.

        Raises Unavailable when its tier does not answer, Closed at the next step once `stopped` is set.
        """
        try:
            return self._blocks_are_right(placed, stopped or threading.Event()) or self.whole_chunk(placed) is not None
        except (NotFound, DataLoss):
            return False

    def accuse(self, segment_id: SegmentId, placed: PlacedChunk) -> bool:
        """Read a chunk again that failed once; return whether it fails again. If so it is suspect now.

        Raises as `proves`, and what keeps the mark from being written.
        """
        # A transfer, or a defect of ours, damages bytes once; a disk damages them twice. A mark keeps the other copies
        # of the bytes from being removed, and a chunk that has none from being offloaded: one read is not enough.
        if self.proves(placed):
            log.warning("%s failed a read, and proved right when it was read again", printable(placed.object.name))
            return False
        chain_edits.set_state(self._metadata, segment_id, placed.object.tier, placed.chunk, ChunkState.SUSPECT)
        return True

    def whole_chunk(self, placed: PlacedChunk) -> memoryview | None:
        """Return the bytes of a small chunk that match its own CRC32C; None for others.

        Raises as reading them does.
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
        """Fill `view` from a chunk's object; return the etag of a cold one, None for any."""
        holder = placed.object
        if holder.tier is Tier.COLD:
            return self._etags.read_into(self._storage_of(holder.location_id), holder, offset, view)
        self._files.read_into(holder.name, offset, view)
        return None
